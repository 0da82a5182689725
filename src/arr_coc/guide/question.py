"""The question: its words as vectors, the words to look for on the picture, and the role of each word.

split_words("Who pays INV-204?")    ["who", "pays", "inv-204"]
WordEncoder()(["total", "tota1"])   [2, DIM], of unit length
terms("Who is the seller?")         the words "who", "is", "the", "seller", and "vendor", ... for the last
QuestionEncoder()(words, vectors)   Reading: tokens [T, WIDTH], pooled [WIDTH]
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from arr_coc.choose.filters import unit
from arr_coc.guide.lexicon import (
    MAX_WORD_CHARS,
    MEANING_WIDTH,
    STOP_WORDS,
    answers,
    expand,
    hints,
    inflections,
    meanings_of,
    related,
    text_meaning,
)

# Characters that are told apart, without case and accents.
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789.,:;-_/%$€£()+=#@&'\"!?*<>"
MAX_LETTERS = 24  # characters of a word that its convolution reads
NGRAM_ROWS = 20_000  # rows of the table of hashed n-grams
DIM = 96  # width of the vectors of words and of print


def folded(text: str) -> str:
    """Return a text in lower case and without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


@lru_cache(maxsize=100_000)
def normal(word: str) -> str:
    """Return a word as it is compared: folded, without punctuation around it; signs alone stay."""
    plain = folded(word)
    return plain.strip(".,:;!?\"'“”‘’«»()[]{}<>|*_=-–—·•…/\\") or plain


def split_words(text: str) -> list[str]:
    """Return the words of a text in order, each `normal`, without empty ones."""
    return [word for word in (normal(part[:MAX_WORD_CHARS]) for part in text.split()) if word]


@lru_cache(maxsize=100_000)
def _ngrams(word: str) -> tuple[int, ...]:
    """Rows of the table: hashed n-grams of 1 to 4 characters with the word's borders, and the word itself."""
    framed = f"<{word}>"
    grams = {framed} | {framed[i : i + n] for n in (1, 2, 3, 4) for i in range(len(framed) - n + 1)}
    return tuple(zlib.crc32(gram.encode()) % NGRAM_ROWS for gram in sorted(grams))


@lru_cache(maxsize=100_000)
def _letters(word: str) -> tuple[int, ...]:
    """Return the characters of a word as numbers: 0 is padding, 1 any character outside ALPHABET."""
    numbers = tuple(ALPHABET.find(letter) + 2 for letter in word[:MAX_LETTERS])
    return numbers + (0,) * (MAX_LETTERS - len(word))


class WordEncoder(nn.Module):
    """Vectors of words by their letters: any word has one, and a wrong letter changes it little.

    The mean of vectors of hashed character n-grams (Bojanowski et al. 2017), plus a small convolution.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(NGRAM_ROWS, DIM, mode="mean")
        nn.init.normal_(self.table.weight, std=0.5)
        self.letters = nn.Embedding(len(ALPHABET) + 2, 32, padding_idx=0)
        self.spell = nn.Sequential(
            nn.Conv1d(32, 96, 3, padding=1), nn.ReLU(), nn.Conv1d(96, 96, 3, padding=1), nn.ReLU()
        )
        self.join = nn.Linear(96, DIM)

    def forward(self, words: Sequence[str]) -> Tensor:
        """Return the vectors [W, DIM] of normal words (see `normal`), float32."""
        if not words:
            return self.join.weight.new_zeros(0, DIM, dtype=torch.float32)
        device = self.join.weight.device
        return self.encode(*(part.to(device) for part in letters_of(words)))

    def encode(self, grams: Tensor, starts: Tensor, letters: Tensor) -> Tensor:
        """Return the vectors [W, DIM] of words as numbers, see `letters_of`."""
        spelled = self.spell(self.letters(letters).movedim(1, 2))
        spelled = spelled.masked_fill(letters[:, None] == 0, 0.0).amax(-1)  # padding counts as 0
        return unit(self.table(grams, starts) + self.join(spelled))


def letters_of(words: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Return words as numbers, on the CPU, of which "" has none.

    Returns:
        Rows of the table of n-grams of all words, long [G]; where those of each word start, long [W]; its
        characters, long [W, MAX_LETTERS].
    """
    grams = [_ngrams(word) if word else () for word in words]
    rows = np.fromiter((row for gram in grams for row in gram), np.int64)
    starts = np.cumsum([0, *(len(gram) for gram in grams[:-1])], dtype=np.int64)
    letters = np.array([_letters(word) for word in words], np.int64)
    return torch.from_numpy(rows), torch.from_numpy(starts), torch.from_numpy(letters)


MAX_SIGNS = 24  # of a question in a script without spaces that asks outright for what is odd
MAX_WORDS = 48  # words of a question that are read; of a longer one the first and the last
HASHED_WORDS = 8192  # rows of the table of hashed whole words
WIDTH = 96  # of the layers over the question
# They stand for what may be printed beside the answer, as "when" for a date.
QUESTION_WORDS = frozenset(("when", "who", "whom", "whose", "where", "how", "why", "which"))
# Words of questions about all of a picture, or about what stands out in it.
GENERAL_WORDS = frozenset(
    "anomaly anything article belong caption catches chart contain contains content contents convert "
    "dashboard describe description detail details difference different document drawing email "
    "everything exception explain extract eye find fit form gist going html image invoice kind letter "
    "look looks map markdown match mistake not notice ocr odd others outlier overall overview page "
    "painting photo photograph picture place poster read receipt remarkable represent rest screen "
    "screenshot see seen show shown site slide something sort spot stand stands strange striking "
    "summarise summarize summary table tell text transcribe transcription translate translation type "
    "unusual website weird wrong".split()
)
OVERVIEW_VERBS = frozenset("caption describe explain recap summarise summarize transcribe".split())
ALOUD = frozenset(("aloud", "loud"))
# What a whole picture may be; a table or a label is a part of one.
PICTURE_KINDS = frozenset(
    "article bill brochure chart dashboard document drawing email flyer form image infographic invoice "
    "letter map memo newspaper page painting photo photograph picture poster receipt report screen "
    "screenshot sheet site slide spreadsheet statement ticket webpage website".split()
)
SHOWING = frozenset("depict depicted depicts see seen show shown shows".split())
# Words of "what is shown ...?" that name no part of a picture.
FILLERS = frozenset("a an are be can could do does here i in is of on s that the this to was we you".split())
# What is all of a picture where it is asked what it shows; a chart may be a part of a page.
PICTURE_NAMES = frozenset("image page painting picture screen screenshot".split())


# Words that ask for a text about all of a picture, and what may be said of such a text.
OVERVIEW_NOUNS = frozenset("caption description gist outline overview recap summary synopsis".split())
MAKING = frozenset("a an create give generate make produce provide short write".split())
MANNER = frozenset(
    "brief complete concise detail detailed details entire full general long one-line overall quick rough "
    "sentence short whole".split()
)
# Of "What am I looking at?", "What is going on here?".
AT_ALL = frozenset("going happening here looking".split())

# Words that ask for what is odd, whatever it is, in English, German, French, Spanish, Italian, Portuguese,
# Dutch and Russian, without accents and case.
ODD_WORDS = frozenset(
    "aberrant abnormal abnormalities abnormality anomalies anomalous anomaly atypical bizarre deviating "
    "inconsistencies inconsistency inconsistent intruder intruders irregular irregularities irregularity "
    "odd oddest oddities oddity oddness outlier outliers peculiar strange strangest surprise surprises "
    "surprising suspicious uncommon unexpected unique unusual weird weirdest "
    "abweichend abweichung abweichungen anomalie anomalien auffallig auffalliges auffalligkeiten ausreisser "
    "komisch merkwurdig merkwurdiges seltsam seltsames ungewohnlich ungewohnliches "
    "anormal anormale etrange inattendu inhabituel insolite intrus "
    "anomalia anomalias atipico atipica extrano extrana inusual inusuales rara raro "
    "anomala anomalo insolita insolito intruso strana strano "
    "diferente estranha estranho incomum "
    "afwijkend afwijkende afwijking afwijkingen ongewoon ongewoons raar vreemd vreemds "
    "аномалии аномалия лишнее необычно необычного необычное странно странного странное".split()
)
ODD_SIGNS = re.compile("异常|反常|不寻常|奇怪|異常|変わった|おかしい|이상한|특이한")  # scripts without spaces
# Turns of phrase for the same; what they are said of has to be general, too.
ODD_PHRASES = re.compile(
    r"\b(?:stand|stands|standing|stick|sticks|sticking|jump|jumps|pop|pops) out\b"
    r"|\bout of (?:place|the ordinary|line)\b|\bodd (?:one|man|thing) out\b"
    r"|(?:\bnot|n't) (?:really |quite )?(?:belong|belongs|belonging|fit|fits|match|matches)(?: in)?\b"
    r"|(?:\bnot|n't) like the (?:others|other ones|rest)\b"
    r"|\bunlike (?:the |all )?(?:others|other ones|rest)\b"
    r"|\b(?:break|breaks|breaking) the (?:pattern|rule|symmetry)\b"
    r"|\bcatch(?:es)? (?:the|your|my|one's) eyes?\b"
    r"|(?:\bnot|n't) (?:look|seem) right\b|\bshould(?:n't| not) be (?:here|there)\b|\bas it should be\b"
    r"|\bwhich \w+ is the exception\b|\bexceptions? to the (?:pattern|rule)\b|\bdiff(?:ers?|erent)\b"
    r"|\ball (?:of (?:them|these|those) )?(?:the same|alike|identical)\b"
    r"|\b(?:any|some)thing (?:is |looks |seems )?(?:off|wrong|missing|remarkable|striking)\b"
    r"|\bone (?:is )?missing\b"
    r"|\bwhat(?:'s| is| looks| seems) (?:wrong|off|missing|remarkable|striking)\b|\bmistakes?\b"
    r"|\bfallt (?:.+ )?auf\b|\bpasst (?:.+ )?nicht\b|\banders als\b|\bsort du lot\b"
    r"|\bno encaja\b|\bfuera de lugar\b"
    r"|\bfuori posto\b|\bsalta (?:all'occhio|a la vista|aos olhos)\b|\bfora do lugar\b|\bvalt (?:.+ )?op\b"
)
# What an odd thing may be called and where it is looked for, and the small words of the same languages.
ODD_FILLERS = frozenset(
    "among amongst anything anywhere appear appears area are aren as check circle detect did didn does "
    "doesn element elements especially "
    "ever everything find first found going group here highlight identify image isn item items kind like "
    "locate look looking looks mark most "
    "n't notice object objects odd-looking one ones other others part parts particularly pattern picture "
    "place point rather really region rest same see seem seems set shape shapes single something spot "
    "strike strikes t thing things whatever als am an anderen auf aus bild bilds da das dass dem den der "
    "des die dies diese diesem dieser du ein eine einen einer es etwas fallt gibt hier ihm ihnen im in "
    "irgendetwas irgendwelche irgendwo ist mir nicht passt rest sehen sie siehst sind und von was welche "
    "welches wo zeig "
    "a-t-il au aux avec c ce ces cet cette chose choses d dans de des du elle element elements en est et "
    "ici il image l la le les lot l'intrus ou photo que quel quelle quelque quelques qui qu'il qu'y s sont "
    "sur t-il trouve un une vois vois-tu voyez voyez-vous y "
    "al algo alguna algun algunas algunos aqui con cual cuales del donde el ella ellos encaja encuentra es "
    "esta este estos foto fuera hay imagen la las lo los lugar muestra que se ves ve alguma algum cosa c'e "
    "ci che cosa di dove e foto fuori gli i immagine in nell nella nelle ne qualche qualcosa quale questa "
    "questo quest si sono trova tra un una vedi "
    "ao aos da das do dos e ha imagem na nas nesta neste nessa no nos o os qual que tem uma voce aan "
    "afbeelding dan deze dit een er foto hier het iets in is op opvallend plaatje valt van wat welke zie в "
    "где есть здесь изображении какие картинке ли на необычен нет тут фото что это этом этой".split()
)


def outright_scope(words: Sequence[str]) -> tuple[bool, bool]:
    """Return whether a question asks outright for all of a picture, and whether for what is unusual in it."""
    return is_overview(words), is_unusual(words)


def is_overview(words: Sequence[str]) -> bool:
    """Return whether a question asks outright for all of a picture: "describe the invoice", "what is shown
    here".
    """
    first, *rest = words
    if first == "what" and SHOWING.intersection(rest):
        others = [word for word in rest if word not in SHOWING and word not in FILLERS]
        return len(others) <= 1 and all(word in PICTURE_NAMES for word in others)
    content = [word for word in words if word not in STOP_WORDS and word not in ALOUD and word not in MANNER]
    if first in ("what", "what's"):
        return not AT_ALL.isdisjoint(words) and AT_ALL.issuperset(content)
    if first != "read" and first in MAKING and OVERVIEW_NOUNS.intersection(content):
        return all(word in OVERVIEW_NOUNS or word in MAKING or word in PICTURE_KINDS for word in content)
    verb, *kinds = content or ("",)
    few = len(kinds) == 1 if verb == "read" else verb in OVERVIEW_VERBS and len(kinds) <= 1
    return few and all(word in PICTURE_KINDS for word in kinds)


def is_unusual(words: Sequence[str]) -> bool:
    """Return whether a question asks outright for what is odd and names nothing, as "any anomalies?" does."""
    text = " ".join(word.strip("¿¡") for word in words if any(map(str.isalpha, word))).replace("’", "'")
    if ODD_SIGNS.search(text):
        return len(text) <= MAX_SIGNS
    rest = ODD_PHRASES.sub(" ", text)
    parts = [part for word in rest.split() for part in (word, *word.split("'")) if part]
    odd = rest != text or not ODD_WORDS.isdisjoint(parts)
    return odd and all(_names_nothing(word) for word in rest.split())


def _names_nothing(word: str) -> bool:
    """Return whether a word of a question for what is odd says no more than that, or where: in the
    picture.
    """
    return all(
        part in STOP_WORDS or part in ODD_WORDS or part in ODD_FILLERS or part in PICTURE_KINDS
        for part in ([word] if word in ODD_FILLERS else word.split("'"))
    )


# Words that ask how or where a thing is shown: no part of its name.
ASKING = SHOWING | ALOUD | frozenset("look looks place read sort spot type kind".split())
# Words that make a question one about all of a picture or what is odd, unless they are part of a name.
STANCE_WORDS = (GENERAL_WORDS | OVERVIEW_VERBS | OVERVIEW_NOUNS | ODD_WORDS | AT_ALL) - ASKING - STOP_WORDS
STANCE_WORDS |= {"all"}
DETERMINERS = frozenset("the my our your its their his her".split())
# The other words of a question for one word of print: "Where is the overview?", "What does the summary say?".
POINTING = DETERMINERS | frozenset("what what's where which how much many is are was were".split())
TELLING = frozenset("do does did say says show shows tell give me see".split())
NAME_GAP = 2  # words such as "for" and "of the" between two words of a name


def names_print(
    words: Sequence[str], is_there: Callable[[int], bool], beside: Callable[[int, int], bool]
) -> bool:
    """Return whether a question asks for something by a name that is printed, whatever else its words may
    mean.

    "What is the overview page?" does where "Overview page" is printed. Every word of STANCE_WORDS has to be
    part of the name: "Describe the overview page." is about the picture. Of a name of one word the question
    says nothing else, so that "What is the page about?" is about the picture, too.

    Args:
        words: of the question.
        is_there: whether a word, by its index, is surely printed.
        beside: whether two words, by their indices, are printed next to each other.
    """
    if is_overview(words):
        return False
    content = [i for i, word in enumerate(words) if word not in STOP_WORDS or word in STANCE_WORDS]
    stances = {i for i in content if words[i] in STANCE_WORDS}
    if len(content) == 1:
        (only,) = content
        others = {word for i, word in enumerate(words) if i != only}
        allowed = POINTING if words[only] in PICTURE_KINDS else POINTING | TELLING
        pointed = not others or (only > 0 and words[only - 1] in DETERMINERS)
        return pointed and others <= allowed and is_there(only)
    pairs = [(i, j) for i, j in pairwise(content) if j - i <= NAME_GAP + 1 and words[i] != words[j]]
    named = {i for pair in pairs if beside(*pair) for i in pair}
    return bool(named) and stances <= named


class Terms(NamedTuple):
    """The words of a question, and those that may be printed for them."""

    words: tuple[str, ...]  # its own
    # words that may be printed for one of them: synonyms and hints of the lexicon, other forms of a word, and
    # words of related meaning
    others: tuple[str, ...]
    stands_for: tuple[int, ...]  # the index of that word, one per other
    # of that bond, in (0, 1]: 1 for what the lexicon lists, less for what is merely related
    strengths: tuple[float, ...]


@lru_cache(maxsize=256)
def terms(question: str) -> Terms:
    """Return the words of a question, at most MAX_WORDS, and others that may be printed for them; cached."""
    words = split_words(question) or ["?"]
    if len(words) > MAX_WORDS:
        words = words[: MAX_WORDS // 2] + words[-(MAX_WORDS - MAX_WORDS // 2) :]
    others = dict(reversed((*expand(words), *answers(words))))
    for index, word in enumerate(words):
        for form in () if word in STOP_WORDS else inflections(word):
            if form not in words:
                others.setdefault(form, index)
    asks = next((i for i, word in enumerate(words) if word in QUESTION_WORDS), 0)
    for hint in hints(question):
        for word in split_words(hint):
            if word not in words:
                others.setdefault(word, asks)
    strengths = dict.fromkeys(others, 1.0)
    for index, word in enumerate(words):
        for other, strength in () if word in STOP_WORDS else related(word):
            if other not in words and strength > strengths.get(other, 0.0):
                others[other], strengths[other] = index, strength
    return Terms(tuple(words), tuple(others), tuple(others.values()), tuple(strengths[o] for o in others))


class QuestionTensors(NamedTuple):
    """Q questions as numbers, on one device: all that the guide needs of them, and no text.

    T words and W terms that may stand for them, shorter questions padded. The vectors of the words of all
    questions come first, then those of the terms: word t of question q is q * T + t, its term w is
    Q * T + q * W + w.
    """

    grams: Tensor  # long [G], see `letters_of`
    starts: Tensor  # long [Q * (T + W)]
    letters: Tensor  # long [Q * (T + W), MAX_LETTERS]
    there: Tensor  # bool [Q, T], which words are not padding
    rows: Tensor  # long [Q, T], of the table of whole words
    common: Tensor  # bool [Q, T], words of questions about all of a picture, and those that mean nothing
    meanings: Tensor  # [Q, T, MEANING_WIDTH], zeros for words without a row
    defined: Tensor  # bool [Q, T], words that mean something by themselves
    whole: Tensor  # [Q, MEANING_WIDTH], the meaning of the whole question
    colours: Tensor  # bool [Q, T, len(colours)], which colours each word names
    stands_for: Tensor  # long [Q, W], the word that each term stands for
    strengths: Tensor  # [Q, W], of that bond, 0 for padding

    def to(self, device: torch.device) -> QuestionTensors:
        """Return the same on a device."""
        return QuestionTensors(*(part.to(device, non_blocking=True) for part in self))


STEPS: tuple[int, int, int] = (16, 64, 1024)  # words, terms and n-grams are padded to multiples off the CPU


def question_tensors(
    questions: Sequence[Terms],
    colours: Mapping[str, Sequence[int]],
    count: int,
    device: torch.device | str = "cpu",
) -> QuestionTensors:
    """Return questions as numbers on a device.

    `colours` has the words that name some of `count` colours, with their numbers. Off the CPU sizes are
    padded to multiples of STEPS, so that few kernels and graphs are made.
    """
    device = torch.device(device)
    steps = (1, 1, 1) if device.type == "cpu" else STEPS
    words = _multiple(max(len(one.words) for one in questions), steps[0])
    others = _multiple(max(len(one.others) for one in questions), steps[1])
    size = len(questions)
    every = [word for one in questions for word in (*one.words, *("",) * (words - len(one.words)))]
    terms = [word for one in questions for word in (*one.others, *("",) * (others - len(one.others)))]
    grams, starts, letters = letters_of([*every, *terms])
    if short := _multiple(len(grams), steps[2]) - len(grams):
        # What is padded would be part of the last word, so it is a word of its own, which nobody reads.
        starts = torch.cat((starts, torch.tensor([len(grams)])))
        letters = torch.cat((letters, letters.new_zeros(1, MAX_LETTERS)))
        grams = torch.cat((grams, grams.new_zeros(short)))

    def flags(is_so: Callable[[str], bool]) -> Tensor:
        return torch.tensor([is_so(word) for word in every]).view(size, words)

    named = np.zeros((size * words, count), np.bool_)
    for i, word in enumerate(every):
        named[i, list(colours.get(word, ()))] = True
    stands_for = np.zeros((size, others), np.int64)
    strengths = np.zeros((size, others), np.float32)
    for i, one in enumerate(questions):
        stands_for[i, : len(one.others)] = one.stands_for
        strengths[i, : len(one.others)] = one.strengths
    return QuestionTensors(
        grams,
        starts,
        letters,
        flags(bool),
        torch.tensor([zlib.crc32(b"=" + w.encode()) % HASHED_WORDS for w in every]).view(size, words),
        flags(lambda word: word in STOP_WORDS or word in GENERAL_WORDS),
        meanings_of(every).view(size, words, MEANING_WIDTH),
        flags(lambda word: word not in STOP_WORDS),
        torch.stack([text_meaning(one.words) for one in questions]),
        torch.from_numpy(named).view(size, words, count),
        torch.from_numpy(stands_for),
        torch.from_numpy(strengths),
    ).to(device)


def _multiple(count: int, step: int) -> int:
    """Return the least multiple of a step that is at least a count."""
    return -(-count // step) * step


class Reading(NamedTuple):
    """Questions as the head uses them."""

    tokens: Tensor  # [Q, T, WIDTH], one per word
    there: Tensor  # bool [Q, T], which of them are not padding
    pooled: Tensor  # [Q, WIDTH], their means
    expected: Tensor  # [Q, MEANING_WIDTH], of unit length: the meaning of print that answers each


class QuestionEncoder(nn.Module):
    """Two transformer layers over the words of a question, which give each word its role."""

    def __init__(self) -> None:
        super().__init__()
        self.meaning = nn.Embedding(HASHED_WORDS, 64)
        self.join = nn.Linear(DIM + 64, WIDTH)
        self.learned = nn.Linear(MEANING_WIDTH, WIDTH, bias=False)
        nn.init.zeros_(self.learned.weight)
        self.place = nn.Parameter(torch.randn(MAX_WORDS, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            4,
            2 * WIDTH,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.expected = nn.Linear(WIDTH, MEANING_WIDTH)
        nn.init.zeros_(self.expected.weight)
        nn.init.zeros_(self.expected.bias)

    def forward(self, questions: QuestionTensors, vectors: Tensor) -> Reading:
        """Read questions with the vectors of their words, [Q, T, DIM].

        Print is expected to mean what the question means, but for what was learned.
        """
        tokens = self.encode(questions, vectors, torch.ones_like(questions.there))
        return self._reading(questions, tokens)

    def read_twice(self, questions: QuestionTensors, vectors: Tensor) -> tuple[Reading, Tensor]:
        """Return the reading of `forward`, and the `pooled` of one without the rows of particular words, [Q,
        WIDTH].

        A name may share its row in the table of hashed whole words with "overview": in the second reading
        the rows of words of general questions alone count.
        """
        parts = {name: getattr(questions, name) for name in ("rows", "meanings", "there")}
        both = questions._replace(**{name: torch.cat((part, part)) for name, part in parts.items()})
        counted = torch.cat((torch.ones_like(questions.there), questions.common))
        tokens, second = self.encode(both, torch.cat((vectors, vectors)), counted).chunk(2)
        return self._reading(questions, tokens), _mean(second, questions.there)

    def _reading(self, questions: QuestionTensors, tokens: Tensor) -> Reading:
        pooled = _mean(tokens, questions.there)
        expected = unit(questions.whole + self.expected(pooled).float())
        return Reading(tokens, questions.there, pooled, expected)

    def encode(self, questions: QuestionTensors, vectors: Tensor, counted: Tensor) -> Tensor:
        """Return the tokens [Q, T, WIDTH] of questions.

        `counted` bool [Q, T]: words whose rows in the table of whole words count.
        """
        dtype = self.join.weight.dtype
        rows = self.meaning(questions.rows) * counted[..., None]
        joined = self.join(torch.cat((vectors.to(dtype), rows.to(dtype)), -1))
        joined = joined + self.learned(questions.meanings.to(joined)) + self.place[: joined.shape[1]]
        tokens = self.layers(joined, src_key_padding_mask=~questions.there)
        return tokens.masked_fill(~questions.there[..., None], 0.0)


def _mean(tokens: Tensor, there: Tensor) -> Tensor:
    """Return the mean [Q, WIDTH] of the tokens [Q, T, WIDTH] that are there; others are zeros."""
    return tokens.sum(1) / there.sum(1, keepdim=True).to(tokens.dtype)
