"""The guide's head: scores every place of a page for a question, from where the question's words stand.

    PageEncoder()(pictures, prints, meanings)   [B, WIDTH, H, W], once per page; H = h/16, W = w/32
    Head()(pages, reading, maps, expected)      Judgement: logits [Q, H, W], per question

It learns what lies right of, below or across from the words. Attention runs along rows and along columns (Ho
et al. 2019).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.guide.compiling import constant_result
from arr_coc.guide.lexicon import MEANING_WIDTH
from arr_coc.guide.print_encoder import FEATURE_WIDTH, PLACE, block_mean, convolution
from arr_coc.guide.question import WIDTH as QUESTION_WIDTH
from arr_coc.guide.question import Reading

WIDTH = 96
HEADS = 4
PAGE_BLOCKS, BLOCKS = 4, 3  # blocks of the page, before any question, and of the head, for each
# Maps of a word: likeness, and that relative to the page's best, of the word, its synonyms and related words;
# agreement of its meaning, and that relative; its colour; how a place looks like the thing. Then two of the
# whole question: agreement with the meaning that it expects to be printed, and that relative.
MAPS, OF_QUESTION = 12, 2
APPEARANCE_WIDTH = 32  # width of the vectors by which places are compared with the things that words name

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class Judgement(NamedTuple):
    """The logits that the head gives Q questions about a page: of every place, and of the whole."""

    logits: Tensor  # [Q, H, W], one per place
    present: Tensor  # [Q], that the page holds what is asked for
    overview: Tensor  # [Q], that the question is about all of the page
    unusual: Tensor  # [Q], that it asks for what stands out


@lru_cache(maxsize=64)
@constant_result
def _coordinates(size: tuple[int, int], device: torch.device) -> Tensor:
    """Return how far places lie from each side of the page, [1, 4, H, W]: 1 at the side, fading over 160
    px.
    """
    with torch.inference_mode(False):  # another call may learn
        down, right = (
            torch.arange(n, device=device, dtype=torch.float32) * px / 160
            for n, px in zip(size, PLACE, strict=True)
        )
        maps = [torch.exp(-x) for x in (down, down[-1] - down, right, right[-1] - right)]
        grids = [m[:, None].expand(size) if i < 2 else m.expand(size) for i, m in enumerate(maps)]
        return torch.stack(grids)[None]


@lru_cache(maxsize=64)
@constant_result
def _turns(
    n: int, vectors: int, width: int, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles by which `rotate` turns each vector, [n, vectors * width] each."""
    with torch.inference_mode(False):  # another call may learn
        frequencies = 0.5 ** torch.linspace(0, 7, width // 2, device=device, dtype=torch.float32)
        angles = torch.arange(n, device=device)[:, None] * frequencies * math.pi / 2
        cos, sin = angles.cos(), angles.sin()
        # As wide as the vectors, so that each product is one run through memory.
        cos = torch.cat((cos, cos), -1).repeat(1, vectors).to(dtype)
        return cos, torch.cat((-sin, sin), -1).repeat(1, vectors).to(dtype)


def rotate(x: Tensor) -> Tensor:
    """Return vectors [B, N, V, D] with rotary position embedding (Su et al. 2021) by their place among N."""
    half = x.shape[-1] // 2
    cos, sin = _turns(*x.shape[-3:], x.device, x.dtype)
    other = torch.cat((x[..., half:], x[..., :half]), -1).flatten(2)
    return torch.addcmul(x.flatten(2) * cos, other, sin).view(x.shape)


def _zeroed(layer: Layer) -> Layer:
    """Return the layer with weights of zero: a residual branch then starts as the identity."""
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class AxialAttention(nn.Module):
    """Attention along the last but one dimension of [..., N, WIDTH]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.inner = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.outer = _zeroed(nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        lines = self.inner(self.norm(x)).flatten(0, -3)  # (B, N, 3 * WIDTH), all other axes in the batch
        vectors = lines.unflatten(-1, (3 * HEADS, -1))
        # Queries and keys are rotated together, values not: (B, N, HEADS, WIDTH / HEADS) each.
        turned, value = rotate(vectors[..., : 2 * HEADS, :]), vectors[..., 2 * HEADS :, :]
        query, key = turned.chunk(2, -2)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))  # heads before N
        if torch.is_grad_enabled() and x.device.type == "cpu":
            # There fused attention takes ten times as long backward on lines this short.
            weights = (query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2)).softmax(-1)
            mixed = weights.to(value.dtype) @ value
        else:
            mixed = F.scaled_dot_product_attention(query, key, value)
        return x + self.outer(mixed.transpose(1, 2).flatten(-2)).view(x.shape)


class AxialBlock(nn.Module):
    """Convolution, attention along rows and along columns, and two linear layers.

    If `led`, a question scales and shifts what they read.
    """

    def __init__(self, led: bool = True) -> None:
        super().__init__()
        self.lead = nn.Linear(QUESTION_WIDTH, 4 * WIDTH) if led else None
        if self.lead is not None:
            _zeroed(self.lead)
        self.norms = nn.ModuleList((nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)))
        self.conv = _zeroed(nn.Conv2d(WIDTH, WIDTH, 3, padding=1))
        self.rows, self.columns = AxialAttention(), AxialAttention()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), _zeroed(nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor, pooled: Tensor | None = None) -> Tensor:
        """[Q, H, W, WIDTH] -> the same shape; `pooled` [Q, QUESTION_WIDTH] of the questions that lead."""
        lead = None if self.lead is None else self.lead(pooled)[:, None, None].unflatten(-1, (4, -1))
        y = _led(self.norms[0](x), lead, 0)
        x = x + self.conv(y.movedim(-1, 1)).movedim(1, -1)  # channels first, and back
        x = self.rows(x)  # along W
        x = self.columns(x.transpose(1, 2)).transpose(1, 2)  # along H
        return x + self.down(F.gelu(self.up(_led(self.norms[1](x), lead, 2))))


def _led(x: Tensor, lead: Tensor | None, first: int) -> Tensor:
    """[Q, H, W, WIDTH] scaled and shifted by the rows `first` and the next of a lead [Q, 1, 1, 4, WIDTH]."""
    return x if lead is None else torch.addcmul(lead[..., first + 1, :], x, 1 + lead[..., first, :])


class PageEncoder(nn.Module):
    """The net that encodes a page before any question; half of the blocks run once for all questions."""

    def __init__(self) -> None:
        super().__init__()
        self.print = nn.Conv2d(5 * FEATURE_WIDTH, WIDTH, 1)
        self.colour = nn.Sequential(
            convolution(3, 24, stride=2), nn.ReLU(inplace=True),
            convolution(24, 48, stride=2), nn.ReLU(inplace=True),
            convolution(48, WIDTH, stride=(1, 2)), nn.ReLU(inplace=True),
        )  # fmt: skip
        self.paint = nn.Conv2d(6 + 4, WIDTH, 1)
        self.meant = nn.Conv2d(MEANING_WIDTH, WIDTH, 1, bias=False)
        nn.init.zeros_(self.meant.weight)
        self.near = convolution(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(AxialBlock(led=False) for _ in range(PAGE_BLOCKS))

    def forward(self, picture: Tensor, prints: Sequence[Tensor], meanings: Tensor) -> Tensor:
        """Encode pages as features [B, WIDTH, h/16, w/32].

        `picture` is float [B, 3, h, w] in [0, 1], sides multiples of 32. `prints` are the print encoder's
        features [B, FEATURE_WIDTH, h/8, w/16] of the picture at its full, half and quarter size; `meanings`
        those of words, [B, MEANING_WIDTH, h/16, w/32].
        """
        dtype = self.print.weight.dtype
        near, half, quarter = prints
        size = (picture.shape[-2] // PLACE[0], picture.shape[-1] // PLACE[1])
        # A place covers 2 x 2 slots of the picture, one at half its size, and a quarter of one at a quarter.
        quarter = F.interpolate(quarter, scale_factor=2, mode="nearest")
        parts = (F.avg_pool2d(near, 2), F.max_pool2d(near, 2), half, F.max_pool2d(half, 3, 1, 1), quarter)
        features = [part[..., : size[0], : size[1]] for part in parts]
        small = block_mean(picture, (4, 4))
        mean = block_mean(small, (PLACE[0] // 4, PLACE[1] // 4))
        squares = block_mean(picture.square(), PLACE)
        spread = (squares - mean.square()).clamp_min(0).sqrt()  # rounding may leave less than 0
        sides = _coordinates(size, picture.device).expand(len(picture), -1, -1, -1)
        paint = torch.cat((mean, spread, sides), 1).to(dtype)
        small = small.to(dtype, memory_format=torch.channels_last)
        x = self.print(torch.cat(features, 1).to(dtype)) + self.colour(small) + self.paint(paint)
        x = x + self.meant(meanings.to(dtype))
        x = x + self.near(F.relu(x))
        x = self.norm(x.movedim(1, -1))
        for block in self.blocks:
            x = block(x)
        return x.movedim(-1, 1)


class Head(nn.Module):
    """The net that scores places: from maps of how like each word they are, and a page, to logits.

    Each map is weighed by the role of its word and added to the page. Blocks of convolution and axial
    attention carry it from labels to values ("right of", "below"). The raw match of the words is added to the
    result.
    """

    def __init__(self) -> None:
        super().__init__()
        self.roles = nn.Linear(QUESTION_WIDTH, MAPS * WIDTH)
        self.trust = nn.Linear(QUESTION_WIDTH, MAPS)
        nn.init.constant_(self.trust.bias, 0.5)
        self.look, self.name = nn.Linear(WIDTH, APPEARANCE_WIDTH), nn.Linear(QUESTION_WIDTH, APPEARANCE_WIDTH)
        self.query, self.key, self.value = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(QUESTION_WIDTH, WIDTH),
            nn.Linear(QUESTION_WIDTH, WIDTH),
        )
        self.blocks = nn.ModuleList(AxialBlock() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.last = nn.Linear(WIDTH, 1)
        nn.init.constant_(self.last.bias, -5.0)  # few places are needed
        self.present = nn.Sequential(
            nn.Linear(2 * WIDTH + QUESTION_WIDTH + MAPS, 64), nn.GELU(), nn.Linear(64, 1)
        )
        self.scope = nn.Sequential(nn.Linear(QUESTION_WIDTH, 32), nn.GELU(), nn.Linear(32, 2))

    def appearance(self, page: Tensor, tokens: Tensor) -> Tensor:
        """Return the logit that each place resembles what each word names, [Q, T, H, W].

        Of the page or pages [1 or Q, WIDTH, H, W] and the words of questions, tokens [Q, T, WIDTH].
        """
        places = self.look(page.movedim(1, -1)).flatten(1, 2)  # (B, H * W, APPEARANCE_WIDTH)
        names = self.name(tokens)
        return (names @ places.mT).unflatten(-1, page.shape[-2:]) - 3.0  # few look like it

    def forward(self, page: Tensor, reading: Reading, maps: Tensor, expected: Tensor) -> Judgement:
        """Score the places of a page, or of a page per question, [1 or Q, WIDTH, H, W], for Q questions.

        `maps` are [Q, T, MAPS - OF_QUESTION - 1, H, W] in [0, 1] of each question's words, `expected`
        [Q, OF_QUESTION, H, W] of each question; the map of appearance is made here.
        """
        tokens, there = reading.tokens, reading.there
        base = page.movedim(1, -1)  # (B, H, W, WIDTH)
        appearance = self.appearance(page, tokens).sigmoid()[:, :, None].to(maps.dtype)
        # Words share the maps of their question.
        shared = expected.to(maps.dtype)[:, None].expand(-1, tokens.shape[1], -1, -1, -1)
        likeness = torch.cat((maps, appearance, shared), 2) * there[..., None, None, None]
        roles = self.roles(tokens).unflatten(-1, (MAPS, WIDTH))
        x = base + torch.einsum("qtmhw,qtmc->qhwc", likeness.to(base.dtype), roles)
        keys = self.key(tokens)[:, None].mT  # (Q, 1, WIDTH, T)
        weights = (self.query(x) @ keys / 8).masked_fill(~there[:, None, None], -torch.inf).softmax(-1)
        x = x + weights @ self.value(tokens)[:, None]
        trust = F.softplus(self.trust(tokens)).to(likeness.dtype)
        direct = torch.einsum("qtmhw,qtm->qhw", likeness, trust)
        best = (likeness.flatten(3).amax(-1) * trust).sum(1)  # (Q, MAPS): how well the words are found
        pooled = reading.pooled
        for block in self.blocks:
            x = block(x, pooled)
        x = self.norm(x)
        # The last layer is float32: bfloat16 would round logits of -5 to a 32nd.
        logits = self.last(x.to(self.last.weight.dtype))[..., 0] + direct
        flat = x.flatten(1, 2)
        summary = torch.cat((flat.mean(1), flat.amax(1), pooled, best.to(x.dtype)), -1)
        overview, unusual = self.scope(pooled).float().unbind(-1)
        return Judgement(logits.float(), self.present(summary)[:, 0].float(), overview, unusual)
