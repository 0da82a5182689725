"""The open vocabulary of rendered pages: words, names, codes, prices, dates, places.

    Vocabulary(rng, "train").word(), .name(), .price(), .date(), .code()

Common words come from wordfreq's frequency lists, people and places from faker's, in languages of Latin
script; codes, prices and dates are made here. One word in eight is held out: it is of the test split alone.
"""

from __future__ import annotations

import random
import zlib
from functools import lru_cache
from pathlib import Path

LANGUAGES: tuple[str, ...] = (*["en"] * 6, "de", "fr", "es", "it", "pt", "nl", "sv", "pl")
"""Languages of the words, English most often."""
LOCALES: tuple[str, ...] = (
    "en_US", "en_GB", "en_US", "de_DE", "fr_FR", "es_ES", "it_IT", "nl_NL", "pt_BR", "sv_SE", "pl_PL",
)  # fmt: skip
"""Locales of names, companies and places."""
MONTHS: tuple[str, ...] = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
CURRENCIES: tuple[str, ...] = (
    "${}", "${}", "€{}", "{} EUR", "£{}", "{} €", "USD {}", "CHF {}", "{} kr", "¥{}",
)  # fmt: skip
UNITS: tuple[str, ...] = (
    "kg", "g", "km", "m", "cm", "mm", "L", "ml", "MB", "GB", "kWh",
    "W", "V", "°C", "h", "min", "s", "ms", "Hz", "mph", "lbs",
)  # fmt: skip

SORTS: tuple[str, ...] = (
    "price", "date", "time", "code", "name", "place", "count", "measure", "percent", "word", "email", "phone",
)  # fmt: skip
"""Sorts of values that `Vocabulary.value` draws from."""
ALL_SORTS: tuple[str, ...] = (*SORTS, "amount", "address", "company", "job", "country")
"""All sorts of values that `Vocabulary.of` makes."""


def held_out(word: str) -> bool:
    """Return whether a word belongs to the test split alone: one in eight, by a hash of its letters."""
    return zlib.crc32(b"word:" + word.lower().encode()) % 8 == 0


@lru_cache(maxsize=1)
def _hashes() -> frozenset[int]:
    """Return the hashes in `barred.txt`."""
    lines = Path(__file__).with_name("barred.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(int(code, 16) for line in lines if line[:1] != "#" for code in line.split())


def barred(word: str) -> bool:
    """Return whether a word is vulgar or hateful, by a hash of its letters."""
    return zlib.crc32(word.lower().encode()) in _hashes()


@lru_cache(maxsize=32)
def common_words(language: str, split: str) -> tuple[str, ...]:
    """Return the 30,000 most frequent words of a language with 3 to 14 letters, less barred and held-out
    ones.
    """
    from wordfreq import top_n_list

    words = [w for w in top_n_list(language, 30_000) if 3 <= len(w) <= 14 and w.isalpha() and _latin(w)]
    words = [w for w in words if not barred(w)]
    if split != "test":
        return tuple(w for w in words if not held_out(w))
    return tuple(w for w in words if held_out(w)) * 3 + tuple(words)


def _latin(word: str) -> bool:
    """Return whether all letters are of Latin script."""
    return all(ord(letter) < 0x250 for letter in word)


@lru_cache(maxsize=1)
def _fakers() -> dict:
    from faker import Faker
    from faker.providers.address.it_IT import Provider

    Provider.cities = sorted(Provider.cities)  # a set's order, another one in every process
    return {locale: Faker(locale) for locale in sorted(set(LOCALES))}


class Vocabulary:
    """Random texts of a split."""

    def __init__(self, rng: random.Random, split: str) -> None:
        self.rng, self.split = rng, split
        self.language = rng.choice(LANGUAGES)
        self.locale = rng.choice(LOCALES)
        self._faker = _fakers()[self.locale]
        self._faker.seed_instance(rng.getrandbits(32))

    def word(self) -> str:
        """One word in lower case; frequent ones come more often."""
        words = common_words(self.language, self.split)
        place = int(len(words) * self.rng.random() ** 1.6)
        return words[place]

    def words(self, low: int, high: int) -> str:
        """Return a phrase of some words in lower case."""
        return " ".join(self.word() for _ in range(self.rng.randint(low, high)))

    def title(self, low: int = 1, high: int = 4) -> str:
        """Return a heading: a phrase in one of the usual capitalisations."""
        text = self.words(low, high)
        how = self.rng.random()
        return text.title() if how < 0.45 else text.upper() if how < 0.55 else text[:1].upper() + text[1:]

    def sentence(self, low: int = 5, high: int = 16) -> str:
        """Return a sentence of random words with a full stop."""
        words = self.words(low, high).split()
        if len(words) > 8 and self.rng.random() < 0.4:
            words[len(words) // 2] += ","
        return " ".join(words).capitalize() + self.rng.choice("....?!")

    def paragraph(self, low: int = 2, high: int = 6) -> str:
        """Some sentences."""
        return " ".join(self.sentence() for _ in range(self.rng.randint(low, high)))

    def name(self) -> str:
        """Return a person's name."""
        return self._faker.name()

    def first_name(self) -> str:
        """Return a person's first name."""
        return self._faker.first_name()

    def company(self) -> str:
        """Return a company's name."""
        return self._faker.company()

    def city(self) -> str:
        """Return a city's name."""
        return self._faker.city()

    def country(self) -> str:
        """Return a country's name."""
        return self._faker.country()

    def street(self) -> str:
        """Return a street and a number."""
        return self._faker.street_address().replace("\n", ", ")

    def email(self) -> str:
        """Return an e-mail address."""
        return self._faker.ascii_safe_email()

    def phone(self) -> str:
        """Return a telephone number."""
        return self._faker.phone_number()

    def job(self) -> str:
        """Return a profession."""
        return self._faker.job()

    def domain(self) -> str:
        """Return a domain name."""
        return self._faker.domain_name()

    def number(self, most: int = 9999) -> str:
        """Return a whole number, with or without thousands marks."""
        number = int(most ** self.rng.random())
        return f"{number:,}" if self.rng.random() < 0.5 else str(number)

    def percent(self) -> str:
        """Return a percentage."""
        number = f"{self.rng.uniform(0, 100):.{self.rng.choice((0, 0, 1, 2))}f}"
        return number + self.rng.choice(("%", "%", " %"))

    def amount(self) -> str:
        """Return a sum of money without currency."""
        value = 10 ** self.rng.uniform(0, 4.5)
        text = f"{value:,.2f}" if self.rng.random() < 0.8 else f"{round(value):,}"
        return text.translate(str.maketrans(",.", ".,")) if self.rng.random() < 0.2 else text

    def price(self) -> str:
        """Return a sum of money with currency."""
        return self.rng.choice(CURRENCIES).format(self.amount())

    def measure(self) -> str:
        """Return a number with a unit."""
        value = 10 ** self.rng.uniform(0, 3.5)
        return f"{value:.{self.rng.choice((0, 0, 1, 2))}f} {self.rng.choice(UNITS)}"

    def date(self) -> str:
        """Return a date in one of the usual forms."""
        day, month, year = self.rng.randint(1, 28), self.rng.randint(1, 12), self.rng.randint(1985, 2034)
        name = MONTHS[month - 1]
        return self.rng.choice((
            f"{year}-{month:02}-{day:02}", f"{day:02}/{month:02}/{year}", f"{month}/{day}/{year % 100:02}",
            f"{day:02}.{month:02}.{year}", f"{day} {name} {year}", f"{name} {day}, {year}",
            f"{day} {name[:3]} {year}", f"{name[:3]} {day}", f"{day}-{name[:3]}-{year}",
        ))  # fmt: skip

    def time(self) -> str:
        """Return a time of day."""
        hour, minute = self.rng.randint(0, 23), self.rng.choice((0, 15, 30, 45, self.rng.randint(0, 59)))
        if self.rng.random() < 0.4:
            half = "am" if hour < 12 else "pm"
            return f"{hour % 12 or 12}:{minute:02}{self.rng.choice((' ', ''))}{half}"
        return f"{hour:02}:{minute:02}"

    def code(self) -> str:
        """Return a code of letters and digits, as of orders, tickets and serial numbers."""
        letters, digits = "ABCDEFGHJKLMNPQRSTUVWXYZ", "0123456789"

        def part(alphabet: str, low: int, high: int) -> str:
            return "".join(self.rng.choice(alphabet) for _ in range(self.rng.randint(low, high)))

        form = self.rng.randrange(6)
        if form == 0:
            return part(letters, 2, 3) + "-" + part(digits, 3, 6)
        if form == 1:
            return part(letters + digits, 6, 10)
        if form == 2:
            return "#" + part(digits, 4, 8)
        if form == 3:
            return part(digits, 2, 4) + "-" + part(digits, 3, 5) + "-" + part(letters, 1, 2)
        if form == 4:
            return part(letters, 1, 1) + part(digits, 2, 4) + part(letters, 0, 2)
        return part("0123456789abcdef", 6, 10)

    def value(self) -> tuple[str, str]:
        """Return a value of any sort: its sort and its text."""
        sort = self.rng.choice(SORTS)
        return sort, self.of(sort)

    def of(self, sort: str) -> str:
        """Return a value of a sort of `value`; ValueError for an unknown sort."""
        makers = {
            "price": self.price, "amount": self.price, "date": self.date, "time": self.time,
            "code": self.code, "name": self.name, "place": self.city, "count": self.number,
            "measure": self.measure, "percent": self.percent, "email": self.email, "phone": self.phone,
            "address": self.street, "company": self.company, "job": self.job, "country": self.country,
            "word": lambda: self.words(1, 3),
        }  # fmt: skip
        if sort not in makers:
            raise ValueError(f"sort {sort!r} is unknown; use one of {', '.join(makers)}")
        return makers[sort]()
