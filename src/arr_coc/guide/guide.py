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
from arr_coc.files.device import resolve_device, resolve_dtype
from arr_coc.files.paths import local_path
from arr_coc.files.saved import BUNDLED, check_finite, make_folder, reading, write_tensors
from arr_coc.files.validation import check_records
from arr_coc.guide.colours import colour_maps, colours_of
from arr_coc.guide.head import Head, Judgement, PageEncoder
from arr_coc.guide.print_encoder import (
    MeaningEncoder,
    PrintEncoder,
    PrintFeatures,
    block_max,
    block_mean,
    luminance,
    print_runs,
    run_meanings,
)
from arr_coc.guide.question import QuestionEncoder, Reading, Terms, WordEncoder, definitions, terms

SCALES = 3  # print is read in a picture, at half and at a quarter of its size
SIDE_MULTIPLE = 32  # px; sides of a picture are padded to multiples
MIN_SIDE = 128  # px of a padded side; narrower pictures in bfloat16 may show print on a blank


class GuidePage(NamedTuple):
    """The guide's encoding of a picture, which depends on no question."""

    # vectors of print, [DIM, h/8, w/16] of the picture, and of it at half and at a quarter of its size
    prints: tuple[Tensor, ...]
    meanings: Tensor  # [MEANING_WIDTH, h/16, w/32], what the print means
    passages: Tensor  # the same of the whole run of print that a place belongs to, of unit length or 0
    colours: Tensor  # [12, h/16, w/32] in [0, 1], how far each place shows each of `colours.NAMES`
    features: Tensor  # [1, WIDTH, h/16, w/32] of `PageEncoder`
    size: tuple[int, int]  # (height, width) of the picture in px before it was padded
    runs: Tensor  # [h/16, w/4], its runs of print (`print_runs`)
    vocabulary: int  # how many different common words are read on it

    @property
    def nbytes(self) -> int:
        """Memory of its tensors."""
        return sum(
            one.nbytes
            for one in (*self.prints, self.meanings, self.passages, self.colours, self.features, self.runs)
        )


class Search(NamedTuple):
    """Where the words of a question stand on an encoded picture (page)."""

    terms: Terms  # the T words of the question, and the others that may be printed for them
    own: Tensor  # [T, DIM], vectors of its own words
    cosines: Tensor  # [W, h/16, w/32], of the vectors of all terms, its own words first, with every place
    agreements: Tensor  # [T, h/16, w/32] in [0, 1], of the meanings of its own words with every place
    # [T, h/16, w/32], how far each place shows the colour that a word names; 0 for other words
    colours: Tensor


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

    def likeness(self, cosine: Tensor) -> Tensor:
        """The logit that a slot shows a word, from the cosine of their vectors."""
        return self.scale.exp() * (cosine - self.threshold)

    def page(self, picture: Tensor) -> GuidePage:
        """Encode a picture, float [3, h, w] in [0, 1], before any question."""
        picture = picture.contiguous()  # a channel's pixels side by side: many steps go channel by channel
        size = (picture.shape[-2], picture.shape[-1])
        down, right = (max(MIN_SIDE - side, -side % SIDE_MULTIPLE) for side in size)
        pad = (0, right, 0, down)
        picture = F.pad(picture[None].float(), pad, mode="replicate")[0] if any(pad) else picture.float()
        return self.compose(picture, self.encode_print(picture))._replace(size=size)

    def encode_print(self, picture: Tensor) -> list[PrintFeatures]:
        """The print of a picture [3, h, w] at each of the SCALES; its sides are whole SIDE_MULTIPLEs."""
        light = luminance(picture[None])
        scales = [self.eyes(light)]
        for _ in range(SCALES - 1):
            light = _half(light)
            scales.append(self.eyes(light))
        return scales

    def compose(self, picture: Tensor, scales: Sequence[PrintFeatures]) -> GuidePage:
        """The page of a picture, from its pixels and its print at each scale."""
        prints = tuple(scale.print[0] for scale in scales)
        light = luminance(picture[None])
        meanings, vocabulary = self.glossary(prints, light, self.likeness)
        features = self.pages(picture[None], [scale.features for scale in scales], meanings)
        size = (picture.shape[-2], picture.shape[-1])
        colours, runs = colour_maps(picture), print_runs(light)
        passages = run_meanings(meanings, runs)
        return GuidePage(prints, meanings, passages, colours, features, size, runs, vocabulary)

    def judge(self, page: GuidePage, questions: Sequence[str]) -> Judgement:
        """Score every place of a page, h/16 x w/32 of them, for Q questions."""
        return self.weigh(page, self.search(page, questions))

    def search(self, page: GuidePage, questions: Sequence[str]) -> list[Search]:
        """Find the words of each of some questions on a page."""
        every = [terms(question) for question in questions]
        vectors = self.words([word for t in every for word in (*t.words, *t.others)])
        parts = vectors.split([len(t.words) + len(t.others) for t in every])
        return [
            Search(
                t,
                part[: len(t.words)],
                self._cosines(page, part),
                self._agreements(page, t),
                _colours(page, t),
            )
            for t, part in zip(every, parts, strict=True)
        ]

    def weigh(self, page: GuidePage, searches: Sequence[Search]) -> Judgement:
        """Score every place of a page from where the words of some questions stand."""
        own = [search.own for search in searches]
        readings = self.reader.read([search.terms.words for search in searches], own)
        maps = [self.maps(search) for search in searches]
        return self.head(page.features, readings, maps, [self._expected(page, one) for one in readings])

    def read(self, questions: Sequence[Sequence[str]]) -> list[Reading]:
        """Read questions of normal words, at least one, without a page."""
        vectors = self.words([word for words in questions for word in words])
        return self.reader.read(questions, vectors.split([len(words) for words in questions]))

    def maps(self, search: Search) -> Tensor:
        """The maps of a question's words, [T, MAPS - OF_QUESTION - 1, H, W] in [0, 1]; see `head.MAPS`."""
        count = len(search.own)
        direct, others = search.cosines[:count], search.cosines[count:]
        places = torch.tensor(search.terms.stands_for, device=others.device, dtype=torch.long)
        strengths = torch.tensor(search.terms.strengths, device=others.device)
        listed, related = strengths == 1, strengths < 1  # by the lexicon, and by meaning
        synonym = _gathered(others[listed], places[listed], torch.full_like(direct, -1.0))
        maps = [*self._likenesses(direct), *self._likenesses(synonym)]  # a cosine of -1 is a likeness of 0
        for likeness in self._likenesses(others[related]):
            weighed = likeness * strengths[related][:, None, None].to(likeness.dtype)
            maps.append(_gathered(weighed, places[related], torch.zeros_like(direct)))
        agreements = search.agreements.to(direct.dtype)
        maps += [agreements, _relative(agreements), search.colours.to(direct.dtype)]
        return torch.stack(maps, 1)

    def _likenesses(self, cosine: Tensor) -> tuple[Tensor, Tensor]:
        """How likely each place shows each word, and how near it comes to the page's best: [W, H, W] each."""
        if not len(cosine):
            return cosine, cosine
        return torch.sigmoid(self.likeness(cosine)), _relative(cosine)

    def _agreements(self, page: GuidePage, terms: Terms) -> Tensor:
        """How well the meanings of words and places agree, [T, h/16, w/32] in [0, 1]."""
        meant = definitions(terms.words).to(page.meanings)
        return torch.einsum("tm,mhw->thw", meant, page.meanings).clamp(0, 1)

    def _expected(self, page: GuidePage, reading: Reading) -> Tensor:
        """How well print agrees with what a question expects, and that relative, [2, h/16, w/32] in [0,
        1].
        """
        expected = reading.expected.to(page.passages)
        agreement = torch.einsum("m,mhw->hw", expected, page.passages)[None].clamp(0, 1)
        return torch.cat((agreement, _relative(agreement)))

    def _cosines(self, page: GuidePage, words: Tensor) -> Tensor:
        """How well each word agrees with each place, [W, DIM] -> [W, h/16, w/32]: the best of all sizes."""
        near, half, quarter = (torch.einsum("wd,dhx->whx", words, each) for each in page.prints)
        height, width = page.features.shape[-2:]
        # A slot at half the size covers a place, one at a quarter 2 x 2 places.
        quarter = quarter.repeat_interleave(2, -2).repeat_interleave(2, -1)[:, :height, :width]
        return torch.maximum(block_max(near, (2, 2)), torch.maximum(half[:, :height, :width], quarter))


def _colours(page: GuidePage, terms: Terms) -> Tensor:
    """How far places show the colours that words name, [T, h/16, w/32] in [0, 1]."""
    maps = page.colours.new_zeros(len(terms.words), *page.colours.shape[1:])
    for i, word in enumerate(terms.words):
        if colours := colours_of(word):
            maps[i] = page.colours[list(colours)].amax(0)
    return maps


def _relative(cosine: Tensor) -> Tensor:
    """How near each place comes to the page's best, if that is any good, [W, H, W] -> [W, H, W] in [0, 1]."""
    top = cosine.amax((1, 2), keepdim=True)
    # The second factor is small where the best cosine itself is: then no place is any good.
    return torch.exp(12 * (cosine - top)) * torch.sigmoid(12 * (top - 0.3))


def _gathered(others: Tensor, places: Tensor, maps: Tensor) -> Tensor:
    return maps.scatter_reduce(0, places[:, None, None].expand_as(others), others, "amax")


def _half(light: Tensor) -> Tensor:
    half = block_mean(light, (2, 2))
    pad = (0, -half.shape[-1] % 16, 0, -half.shape[-2] % 8)
    return F.pad(half, pad, mode="replicate") if any(pad) else half


PICTURE_INPUTS = frozenset({"text_evidence"})  # inputs of channel groups that `picture_inputs` makes
EVIDENCE_PX = 8  # side of a cell of `text_evidence`


@torch.no_grad()
def text_evidence(guide: Guide, picture: Tensor) -> Tensor:
    """The probability of print at each 8 x 8 px of a picture, for the texture group "text_mask".

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
    """The inputs of channels that are made of a picture [3, h, w] alone, for `generate_texture_array`."""
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
    """The absolute path of a guide's folder; ValueError if `load_guide` can't read it."""
    load_guide(folder)
    return local_path(folder).absolute()


@lru_cache(maxsize=4)
def _load(path: Path, dtype: torch.dtype, device: torch.device) -> Guide:
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
    """The dtype that convolutions are fastest in: bfloat16 on a GPU or a CPU with instructions for it."""
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported()
    else:
        supports = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # torch names none in public
        fast = device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in supports)
    return torch.bfloat16 if fast else torch.float32
