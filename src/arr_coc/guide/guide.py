"""The guide: a small network that scores the places of a picture by a question, without a base model.

page = load_guide().page(picture)          [3, h, w] -> GuidePage, once per picture
guide.judge(page, ["What is the total?"])  Judgement: logits [Q, h/16, w/32], then per question
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from arr_coc.choose.knowing import same_start
from arr_coc.choose.texture import Channels, channel_groups
from arr_coc.files.atomic import make_folder
from arr_coc.files.device import resolve_device, resolve_dtype
from arr_coc.files.paths import local_path
from arr_coc.files.saved import BUNDLED, check_finite, reading, write_tensors
from arr_coc.files.validation import check_records
from arr_coc.guide.colours import NAMES, colour_maps, colour_words
from arr_coc.guide.compiling import constant_result
from arr_coc.guide.head import Head, Judgement, PageEncoder
from arr_coc.guide.print_encoder import (
    PLACE,
    Likeness,
    MeaningEncoder,
    PrintEncoder,
    PrintFeatures,
    block_max,
    block_mean,
    complete_runs,
    luminance,
    print_runs,
    run_meanings,
)
from arr_coc.guide.question import (
    QuestionEncoder,
    QuestionTensors,
    Reading,
    Terms,
    WordEncoder,
    question_tensors,
    terms,
)

SCALES = 3  # print is read in a picture, at half and at a quarter of its size
SIDE_MULTIPLE = 32  # px; sides of a picture are padded to multiples
MIN_SIDE = 128  # px of a padded side; narrower pictures in bfloat16 may show print on a blank


class GuidePage(NamedTuple):
    """The guide's encoding of one picture, or of B of one size, which depends on no question."""

    # vectors of print, [B, DIM, h/8, w/16] of a picture, and of it at half and at a quarter of its size
    prints: tuple[Tensor, ...]
    meanings: Tensor  # [B, MEANING_WIDTH, h/16, w/32], what the print means
    passages: Tensor  # the same of the whole run of print that a place belongs to, of unit length or 0
    colours: Tensor  # [B, 12, h/16, w/32] in [0, 1], how far each place shows each of `colours.NAMES`
    features: Tensor  # [B, WIDTH, h/16, w/32] of `PageEncoder`
    size: tuple[int, int]  # (height, width) of the picture in px
    encoded: tuple[int, int]  # those at which it was encoded, before it was padded
    runs: Tensor  # [B, h/16, w/4], its runs of print (`print_runs`)
    vocabulary: Tensor  # [B], how many different common words are read on it
    even: float = 1.0  # in [0, 1], of a single picture: the share of its px that are as their neighbours

    @property
    def nbytes(self) -> int:
        """Memory of its tensors."""
        return sum(part.nbytes for part in self.tensors())

    def tensors(self) -> tuple[Tensor, ...]:
        """Return its tensors in order, those of print first."""
        own = (self.meanings, self.passages, self.colours, self.features, self.runs, self.vocabulary)
        return (*self.prints, *own)

    def of(self, tensors: Sequence[Tensor]) -> GuidePage:
        """Return a page of the same size with other tensors, in the order of `tensors`."""
        *prints, meanings, passages, colours, features, runs, vocabulary = tensors
        fixed = (self.size, self.encoded)
        return GuidePage(tuple(prints), meanings, passages, colours, features, *fixed, runs, vocabulary)

    def split(self) -> list[GuidePage]:
        """Return the pages of each of its pictures."""
        return [self.of(parts) for parts in zip(*(part.split(1) for part in self.tensors()), strict=True)]


def join_pages(pages: Sequence[GuidePage]) -> GuidePage:
    """Return the pages of several pictures of one size as one."""
    if len(pages) == 1:
        return pages[0]
    return pages[0].of(list(map(torch.cat, zip(*(page.tensors() for page in pages), strict=True))))


class Search(NamedTuple):
    """Where the words of Q questions stand on an encoded picture (page), or each on a page of its own."""

    questions: QuestionTensors  # of T words each, and W terms that may be printed for them
    own: Tensor  # [Q, T, DIM], vectors of the words
    cosines: Tensor  # [Q, T, h/16, w/32], of the vectors of the words with every place
    others: Tensor  # [Q, W, h/16, w/32], of those of the terms
    agreements: Tensor  # [Q, T, h/16, w/32] in [0, 1], of the meanings of the words with every place
    # [Q, T, h/16, w/32], how far each place shows the colour that a word names; 0 for other words
    colours: Tensor


class Judged(NamedTuple):
    """All that the guide says of Q questions, on its device: see `Guide.question`."""

    cells: Tensor  # [Q, H, W], logits
    present: Tensor  # [Q], the logit that the picture holds what is asked for
    scope: Tensor  # [Q, 2] in [0, 1], that a question is about all of a picture, and about what stands out
    best: Tensor  # [Q, T + W], the best cosine of each word and term with a place
    best_at: Tensor  # [Q, T + W], the number of that place
    colour: Tensor  # [Q, T], how far the best place shows the colour that a word names
    colour_at: Tensor  # [Q, T], the number of that place
    vocabulary: Tensor  # [Q], how many common words are read on the picture
    vectors: Tensor  # [Q, WIDTH], of the questions


class Guide(nn.Module):
    """The networks of the guide; the names of its parts are those of the tensors in its file.

    `eyes` maps pixels to vectors of print, `words` letters to vectors of words, `glossary` print to meanings,
    `reader` a question's words to their roles, `pages` a picture to features, and `head` all to a logit of
    each place. `scale` is the logarithm of the factor of `likeness`, `threshold` the cosine at which it is 0,
    `sharpness` the logarithm of a factor on cosines in training.
    """

    def __init__(self) -> None:
        super().__init__()
        with same_start():
            self.eyes = PrintEncoder()
            self.words = WordEncoder()
            self.glossary = MeaningEncoder()
            self.sharpness = nn.Parameter(torch.tensor(math.log(14.0)))
            self.scale = nn.Parameter(torch.tensor(math.log(12.0)))
            self.threshold = nn.Parameter(torch.tensor(0.6))
            self.reader = QuestionEncoder()
            self.pages = PageEncoder()
            self.head = Head()

    @property
    def version(self) -> str:
        """Eight hexadecimal digits that tell guides of other weights apart."""
        parts = (self.words.join.weight, self.reader.join.weight, self.head.last.weight, self.threshold)
        return f"{zlib.crc32(b''.join(part.detach().cpu().float().numpy().tobytes() for part in parts)):08x}"

    @property
    def likeness(self) -> Likeness:
        """The logit that a slot shows a word, from the cosine of their vectors."""
        return Likeness(self.scale.exp(), self.threshold)

    def page(self, picture: Tensor) -> GuidePage:
        """Encode a picture, float [3, h, w] in [0, 1], before any question."""
        return self.encode(picture[None])

    def encode(self, pictures: Tensor) -> GuidePage:
        """Encode pictures of one size, float [B, 3, h, w] in [0, 1], before any question."""
        # A channel's pixels side by side: many steps go channel by channel.
        pictures = pictures.contiguous().float()
        size = (pictures.shape[-2], pictures.shape[-1])
        down, right = (max(MIN_SIDE - side, -side % SIDE_MULTIPLE) for side in size)
        if down or right:
            pictures = F.pad(pictures, (0, right, 0, down), mode="replicate")
        return self.compose(pictures, self.encode_print(pictures))._replace(size=size, encoded=size)

    def encode_print(self, pictures: Tensor) -> list[PrintFeatures]:
        """Return the print of pictures [B, 3, h, w] at each of the SCALES; their sides are whole
        SIDE_MULTIPLEs.
        """
        light = luminance(pictures)
        scales = [self.eyes(light)]
        for _ in range(SCALES - 1):
            light = _half(light)
            scales.append(self.eyes(light))
        return scales

    def compose(self, pictures: Tensor, scales: Sequence[PrintFeatures]) -> GuidePage:
        """Return the page of pictures [B, 3, h, w], from their pixels and their print at each scale."""
        prints = tuple(scale.print for scale in scales)
        light = luminance(pictures)
        meanings, vocabulary = self.glossary(prints, light, self.likeness)
        features = self.pages(pictures, [scale.features for scale in scales], meanings)
        size = (pictures.shape[-2], pictures.shape[-1])
        colours, runs = colour_maps(pictures), print_runs(light)
        passages = run_meanings(meanings, runs)
        return GuidePage(prints, meanings, passages, colours, features, size, size, runs, vocabulary)

    def terms_of(self, question: str) -> Terms:
        """Return what is looked for on a picture by a question."""
        return terms(question)

    def tensors(self, questions: Sequence[Terms]) -> QuestionTensors:
        """Return questions as numbers on the guide's device."""
        return question_tensors(questions, colour_words(), len(NAMES), self.threshold.device)

    def question(self, page: GuidePage, questions: QuestionTensors, grid: tuple[int, int]) -> Judged:
        """Return what the guide says of Q questions about a page, or about a page each; cells on a grid (H,
        W).

        Like `encode` a function of tensors alone: nothing waits for the device.
        """
        search = self.find(page, questions)
        reading, second = self.reader.read_twice(questions, search.own)
        judged = self.weigh(page, search, reading)
        cells = cell_logits(complete_runs(judged.logits, page.runs), page.encoded, grid)
        places = crop_places(torch.cat((search.cosines, search.others), 1), page.encoded).flatten(2)
        best, best_at = places.max(-1)
        colour, colour_at = crop_places(search.colours, page.encoded).flatten(2).max(-1)
        vocabulary = page.vocabulary.expand(len(cells))
        scope = self._scope(reading.pooled, second)
        vectors = reading.pooled
        return Judged(cells, judged.present, scope, best, best_at, colour, colour_at, vocabulary, vectors)

    def judge(self, page: GuidePage, questions: Sequence[str]) -> Judgement:
        """Score every place of a page, h/16 x w/32 of them, for Q questions."""
        return self.weigh(page, self.search(page, questions))

    def search(self, page: GuidePage, questions: Sequence[str]) -> Search:
        """Find the words of some questions on a page, or each on a page of its own."""
        return self.find(page, self.tensors([self.terms_of(question) for question in questions]))

    def find(self, page: GuidePage, questions: QuestionTensors) -> Search:
        """Find the words of questions on a page, or each on a page of its own."""
        own, others = self.vectors(questions)
        cosines = self._cosines(page, torch.cat((own, others), 1))
        agreements = _with_places(questions.meanings * questions.defined[..., None], page.meanings).clamp(
            0, 1
        )
        named = torch.where(questions.colours[..., None, None], page.colours[:, None], 0.0).amax(2)
        count = own.shape[1]
        return Search(questions, own, cosines[:, :count], cosines[:, count:], agreements, named)

    def vectors(self, questions: QuestionTensors) -> tuple[Tensor, Tensor]:
        """Return the vectors of the words [Q, T, DIM] and terms [Q, W, DIM] of questions."""
        size, words = questions.there.shape
        vectors = self.words.encode(questions.grams, questions.starts, questions.letters)
        own, others = vectors[: size * words], vectors[size * words :][: questions.stands_for.numel()]
        return own.unflatten(0, (size, words)), others.view(size, -1, own.shape[-1])

    def weigh(self, page: GuidePage, search: Search, reading: Reading | None = None) -> Judgement:
        """Score every place of a page from where the words of questions stand.

        `reading` is of the questions; None: they are read here.
        """
        reading = self.reader(search.questions, search.own) if reading is None else reading
        expected = _with_places(reading.expected[:, None], page.passages).clamp(0, 1)
        expected = torch.cat((expected, _relative(expected)), 1)
        return self.head(page.features, reading, self.maps(search), expected)

    def read(self, questions: Sequence[Sequence[str]]) -> Reading:
        """Read questions of normal words, at least one, without a page."""
        tensors = self.tensors([Terms(tuple(words), (), (), ()) for words in questions])
        return self.reader(tensors, self.vectors(tensors)[0])

    def scope(self, questions: QuestionTensors) -> Tensor:
        """Return how far questions are about all of any picture, and about what stands out, [Q, 2] in [0,
        1].
        """
        reading, second = self.reader.read_twice(questions, self.vectors(questions)[0])
        return self._scope(reading.pooled, second)

    def _scope(self, *pooled: Tensor) -> Tensor:
        """Return the lowest scope of some readings, see `QuestionEncoder.read_twice`."""
        return self.head.scope(torch.stack(pooled)).float().sigmoid().amin(0)

    def maps(self, search: Search) -> Tensor:
        """Return the maps of questions' words, [Q, T, MAPS - OF_QUESTION - 1, H, W] in [0, 1]; see
        `head.MAPS`.
        """
        direct, others = search.cosines, search.others
        strengths = search.questions.strengths[..., None, None]
        places = search.questions.stands_for[..., None, None].expand_as(others)
        # By the lexicon; the others are by meaning. A cosine of -1 is a likeness of 0.
        listed = torch.where(strengths == 1, others, -1.0)
        synonym = torch.full_like(direct, -1.0).scatter_reduce(1, places, listed, "amax")
        agreements = search.agreements.to(direct.dtype)
        count, terms = direct.shape[1], others.shape[1]
        every = torch.cat((direct, synonym, others, agreements), 1)
        likeness = torch.sigmoid(self.likeness(every[:, :-count]))
        relative = _relative(every)
        parts = [one.split((count, count, terms), 1) for one in (likeness, relative[:, :-count])]
        bonds = torch.where(strengths == 1, 0.0, strengths).to(others.dtype)
        related = (
            torch.zeros_like(direct).scatter_reduce(1, places, part * bonds, "amax") for _, _, part in parts
        )
        own, stood_for = zip(*(part[:2] for part in parts), strict=True)
        colours = search.colours.to(direct.dtype)
        return torch.stack((*own, *stood_for, *related, agreements, relative[:, -count:], colours), 2)

    def _cosines(self, page: GuidePage, words: Tensor) -> Tensor:
        """Return how well each word agrees with each place, [Q, W, DIM] -> [Q, W, h/16, w/32]: the best of
        all sizes.
        """
        near, half, quarter = (_with_places(words, each) for each in page.prints)
        height, width = page.features.shape[-2:]
        # A slot at half the size covers a place, one at a quarter 2 x 2 places.
        quarter = quarter.repeat_interleave(2, -2).repeat_interleave(2, -1)[..., :height, :width]
        return torch.maximum(block_max(near, (2, 2)), torch.maximum(half[..., :height, :width], quarter))


def _with_places(words: Tensor, places: Tensor) -> Tensor:
    """Return the products of vectors [Q, W, D] with those of places [1 or Q, D, h, w], [Q, W, h, w]."""
    flat = places.flatten(2)
    if len(flat) == 1:  # one product of large matrices
        products = (words.flatten(0, 1).to(flat.dtype) @ flat[0]).view(*words.shape[:2], -1)
    else:
        products = words.to(flat.dtype) @ flat
    return products.unflatten(-1, places.shape[-2:])


def _relative(cosine: Tensor) -> Tensor:
    """Return how near each place comes to the page's best, if that is any good, [..., H, W] in [0, 1]."""
    top = cosine.amax((-2, -1), keepdim=True)
    # The second factor is small where the best cosine itself is: then no place is any good.
    return torch.exp(12 * (cosine - top)) * torch.sigmoid(12 * (top - 0.3))


def crop_places(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the part of maps of places [..., h, w] that lies in a picture of (height, width) px."""
    height, width = (-(-side // px) for side, px in zip(size, PLACE, strict=True))
    return maps[..., :height, :width]


def cell_logits(places: Tensor, size: tuple[int, int], grid: tuple[int, int]) -> Tensor:
    """Logits of the cells of a picture of (height, width) px, [..., H, W], from those of places [..., h, w].

    The log of the mean odds of the places in each; places may reach beyond the picture.
    """
    rows, columns = (_samples(*axis, places.device) for axis in zip(size, grid, PLACE, strict=True))
    top = places.amax((-2, -1), keepdim=True)  # so that no odds overflow
    odds = (places - top).exp()[..., rows.flatten(), :][..., columns.flatten()]  # (..., H * n, W * m)
    mean = odds.unflatten(-1, columns.shape).unflatten(-3, rows.shape).mean((-3, -1))  # over n and m
    return mean.clamp_min(1e-30).log() + top


@lru_cache(maxsize=64)
@constant_result
def _samples(side: int, cells: int, place: int, device: torch.device) -> Tensor:
    """Return the places in each cell along a side of `side` px: long [cells, n], each at least once."""
    with torch.inference_mode(False):
        n = max(4, math.ceil(side / cells / place))
        middles = (torch.arange(cells * n) + 0.5) * (side / (cells * n))
        return (middles / place).long().view(cells, n).to(device)


def _half(light: Tensor) -> Tensor:
    half = block_mean(light, (2, 2))
    pad = (0, -half.shape[-1] % 16, 0, -half.shape[-2] % 8)
    return F.pad(half, pad, mode="replicate") if any(pad) else half


PICTURE_INPUTS = frozenset({"text_evidence"})  # inputs of channel groups that `picture_inputs` makes
EVIDENCE_PX = 8  # side of a cell of `text_evidence`


@torch.no_grad()
def text_evidence(guide: Guide, picture: Tensor) -> Tensor:
    """Return the probability of print at each 8 x 8 px of a picture, for the texture group "text_mask".

    Float [3, h, w] in [0, 1] of any size -> float32 [ceil(h / 8), ceil(w / 8)].
    """
    if picture.ndim != 3 or len(picture) != 3 or 0 in picture.shape:
        raise ValueError(f"picture must be [3, h, w], got {tuple(picture.shape)}; pass one picture in RGB")
    height, width = picture.shape[-2:]
    pad = (0, -width % SIDE_MULTIPLE, 0, -height % SIDE_MULTIPLE)
    light = luminance(F.pad(picture[None].float(), pad, mode="replicate"))
    near, half = (guide.eyes.character_evidence(each) for each in (light, F.avg_pool2d(light, 2)))
    evidence = torch.maximum(near, half.repeat_interleave(2, -2).repeat_interleave(2, -1))
    return evidence[: -(-height // EVIDENCE_PX), : -(-width // EVIDENCE_PX)]


def picture_inputs(channels: Channels, picture: Tensor) -> dict[str, Any]:
    """Return the inputs of channels that are made of a picture [3, h, w] alone, for
    `generate_texture_array`.
    """
    if not any("text_evidence" in {*group.needs, *group.reads} for group in channel_groups(channels)):
        return {}
    return {"text_evidence": text_evidence(load_guide(device=picture.device), picture)[None]}


def check_channels(channels: Channels) -> None:
    """ValueError if a channel group needs more than a picture, as "components" needs encoder features."""
    for group in channel_groups(channels):
        if lacking := sorted({*group.needs} - PICTURE_INPUTS):
            raise ValueError(
                f"channel group {group.name!r} needs {' and '.join(lacking)}, which a picture alone doesn't "
                "give: leave it out of the layer's channels ('full20' has none such), use ARRCOCModel, or "
                "call the layer yourself with texture_inputs"
            )


GUIDE_FILE = "guide.safetensors"
GUIDE_FORMAT = "arr-coc guide 6"
BUNDLED_GUIDE = BUNDLED / "guide"
GUIDE_FOLDER = "guide"  # of a guide inside the folder of an allocator that goes by it


def save_guide(guide: Guide, folder: str | Path, trained_on: Sequence[dict[str, Any]] = ()) -> None:
    """Write a guide in training to a folder, tables and matrices in bfloat16, all else in float32.

    A ValueError for one of `load_guide`, whose batch norms are gone. `trained_on` records how it was made.
    """
    if not any(isinstance(part, nn.BatchNorm2d) for part in guide.modules()):
        raise ValueError(
            "a guide of load_guide has no batch norms left to save: save the one that was trained"
        )
    records = check_records(list(trained_on))
    tensors = {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() and tensor.ndim > 1 else tensor
        for name, tensor in guide.state_dict().items()
    }
    place = make_folder(local_path(folder))
    write_tensors(tensors, place / GUIDE_FILE, {"format": GUIDE_FORMAT, "trained_on": json.dumps(records)})
    _load.cache_clear()  # one of this folder may be another now


def load_guide(
    folder: str | Path | None = None,
    dtype: str | torch.dtype | None = "auto",
    device: str | torch.device | None = "cpu",
) -> Guide:
    """Load a guide, ready to run; the same one for the same arguments until `save_guide` writes another.

    `folder` is of `save_guide` (None: the bundled one); `dtype` "float32", "bfloat16", "float16", or "auto":
    bfloat16 where it is fast. A ValueError if there is no guide of this version.
    """
    place = (BUNDLED_GUIDE if folder is None else local_path(folder)).absolute()
    where = device if isinstance(device, torch.device) else resolve_device(device)
    wanted = None if dtype == "auto" else resolve_dtype(dtype)
    return _load(place / GUIDE_FILE, wanted or fast_dtype(where), where)


def guide_folder(folder: str | Path) -> Path:
    """Return the absolute path of a guide's folder; ValueError if `load_guide` can't read it."""
    load_guide(folder)
    return local_path(folder).absolute()


@lru_cache(maxsize=4)
def _load(path: Path, dtype: torch.dtype, device: torch.device) -> Guide:
    resolve_device(device)  # refuses one that was never looked up by its name, such as "meta"
    if not path.is_file():
        raise ValueError(
            f"{str(path.parent)!r} has no guide ({GUIDE_FILE}): give a folder that arr-coc train guide --out "
            "made"
        )
    with reading(f"{str(path)!r} is not a saved guide", "copy it again, or make it with arr-coc train guide"):
        with safe_open(path, framework="pt") as file:
            stated = (file.metadata() or {}).get("format")
            if stated != GUIDE_FORMAT:
                raise ValueError(f"format {stated!r}, need {GUIDE_FORMAT!r}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        weights = {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}
        check_finite(weights)
        guide = Guide()
        guide.load_state_dict(weights, strict=True)
    return prepared(guide, dtype).to(device)


def prepared(guide: Guide, dtype: torch.dtype) -> Guide:
    """Make a guide ready to run, in place: frozen, batch norms folded into convolutions, channels last.

    All but the vectors of words and the last layer compute in `dtype`; results change by rounding alone.
    """
    guide.eval().requires_grad_(False)
    for part in list(guide.modules()):
        if isinstance(part, nn.Sequential):
            _fold(part)
    guide.to(memory_format=torch.channels_last)
    for part in (guide.eyes, guide.pages, guide.reader, guide.head):
        part.to(dtype)
    guide.head.last.float()
    if dtype == torch.bfloat16:  # of the range of float32, which the weights of its words need
        guide.glossary.to(dtype)
    return guide


def _fold(layers: nn.Sequential) -> None:
    """Fold each batch norm of a sequence into the convolution before it, in place."""
    for i in range(len(layers) - 1):
        conv, norm = layers[i], layers[i + 1]
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
            layers[i], layers[i + 1] = fuse_conv_bn_eval(conv, norm), nn.Identity()


def fast_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype that convolutions are fastest in: bfloat16 on a GPU that has it or a CPU with AMX.

    On an Intel CPU whose AVX-512 has it, but without AMX, a page takes 1.3 times as long in bfloat16.
    """
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported()
    else:  # torch names this in private alone
        fast = device.type == "cpu" and getattr(torch.cpu, "_is_amx_tile_supported", bool)()
    return torch.bfloat16 if fast else torch.float32
