"""The head: where the words of a question stand, and what lies right of, below or across from them.

The likeness of every word to every slot becomes a map; each is weighed by the role of its word and added
to what is known of the page. Blocks of convolution, attention along rows and along columns then carry it
from labels to values: "right of", "below" and "where this row meets that column" are what axial attention
(Ho et al. 2019) does in one step. The raw match of the words is added to the result, so that finding a
word is never forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.guide.eyes import WIDTH as PRINT
from arr_coc.guide.eyes import block_mean, convolution
from arr_coc.guide.meanings import WIDTH as MEANING
from arr_coc.guide.question import WIDTH as ASKED
from arr_coc.guide.question import Reading

PLACE = (16, 32)
"""Height and width in px of the places that the head decides about: as high as a line of small print."""
WIDTH = 96
HEADS = 4
PAGE_BLOCKS, BLOCKS = 4, 3
"""Blocks of the page, before any question, and of the head, for each."""
MAPS = 10
"""Maps of a word: its likeness and that relative to the page's best place, its own, that of its synonyms and
that of words it is related to; how well its meaning agrees with that of what is printed, and that relative
to the best; of the name of a colour, which places show it; and how well a place looks like what it names."""
LOOKS = 32
"""Width of the vectors that looks of places and words are compared by."""


Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


class Judgement(NamedTuple):
    """What the head says of questions about a page.

    `logits` [Q, H, W] one per place; `present` [Q] the logit that the page holds what is asked for;
    `whole` [Q] that the question is about all of the page; `odd` [Q] that it asks for what stands out.
    """

    logits: Tensor
    present: Tensor
    whole: Tensor
    odd: Tensor


def _coordinates(size: tuple[int, int], device: torch.device) -> Tensor:
    """How far places lie from each side of the page, [1, 4, H, W]: 1 at the side, fading over 160 px."""
    down, right = (
        torch.arange(n, device=device, dtype=torch.float32) * px / 160
        for n, px in zip(size, PLACE, strict=True)
    )
    maps = [torch.exp(-x) for x in (down, down[-1] - down, right, right[-1] - right)]
    grids = [m[:, None].expand(size) if i < 2 else m.expand(size) for i, m in enumerate(maps)]
    return torch.stack(grids)[None]


@lru_cache(maxsize=64)
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
    """Rotary position embedding (Su et al. 2021) of vectors [B, N, V, D] by their place among N."""
    half = x.shape[-1] // 2
    cos, sin = _turns(*x.shape[-3:], x.device, x.dtype)
    other = torch.cat((x[..., half:], x[..., :half]), -1).flatten(2)
    return torch.addcmul(x.flatten(2) * cos, other, sin).view(x.shape)


def _nothing(layer: Layer) -> Layer:
    """A layer that gives zeros until it has learned."""
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class Line(nn.Module):
    """Attention along the last but one dimension of [..., N, WIDTH]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.inner = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.outer = _nothing(nn.Linear(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """[..., N, WIDTH] -> the same shape."""
        lines = self.inner(self.norm(x)).flatten(0, -3)
        vectors = lines.unflatten(-1, (3 * HEADS, -1))
        turned, value = rotate(vectors[..., : 2 * HEADS, :]), vectors[..., 2 * HEADS :, :]
        query, key = turned.chunk(2, -2)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        # Fused attention is slower on lines this short: twice forward, ten times backward on a CPU.
        weights = (query * query.shape[-1] ** -0.5 @ key.transpose(-1, -2)).softmax(-1)
        mixed = weights.to(value.dtype) @ value
        return x + self.outer(mixed.transpose(1, 2).flatten(-2)).view(x.shape)


class Block(nn.Module):
    """Convolution, attention along rows and along columns, and two linear layers.

    Args:
        led: whether a question leads them: scales and shifts what they read.
    """

    def __init__(self, led: bool = True) -> None:
        super().__init__()
        self.lead = nn.Linear(ASKED, 4 * WIDTH) if led else None
        if self.lead is not None:
            _nothing(self.lead)
        self.norms = nn.ModuleList((nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)))
        self.conv = _nothing(nn.Conv2d(WIDTH, WIDTH, 3, padding=1))
        self.rows, self.columns = Line(), Line()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), _nothing(nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor, pooled: Tensor | None = None) -> Tensor:
        """[Q, H, W, WIDTH] -> the same shape; `pooled` [Q, ASKED] of the questions that lead."""
        lead = None if self.lead is None else self.lead(pooled)[:, None, None].unflatten(-1, (4, -1))
        y = _led(self.norms[0](x), lead, 0)
        x = x + self.conv(y.movedim(-1, 1)).movedim(1, -1)
        x = self.rows(x)
        x = self.columns(x.transpose(1, 2)).transpose(1, 2)
        return x + self.down(F.gelu(self.up(_led(self.norms[1](x), lead, 2))))


def _led(x: Tensor, lead: Tensor | None, first: int) -> Tensor:
    """[Q, H, W, WIDTH] scaled and shifted by the rows `first` and the next of a lead [Q, 1, 1, 4, WIDTH]."""
    return x if lead is None else torch.addcmul(lead[..., first + 1, :], x, 1 + lead[..., first, :])


class PageEncoder(nn.Module):
    """What is known of a page before any question: [1, WIDTH, h/16, w/32] from print, colours and places.

    Which places are of one line, column or card doesn't depend on a question, so blocks as the head's say it
    once for all of them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.print = nn.Conv2d(5 * PRINT, WIDTH, 1)
        self.colour = nn.Sequential(
            convolution(3, 24, stride=2), nn.ReLU(inplace=True),
            convolution(24, 48, stride=2), nn.ReLU(inplace=True),
            convolution(48, WIDTH, stride=(1, 2)), nn.ReLU(inplace=True),
        )  # fmt: skip
        self.paint = nn.Conv2d(6 + 4, WIDTH, 1)
        self.meant = nn.Conv2d(MEANING, WIDTH, 1, bias=False)
        nn.init.zeros_(self.meant.weight)
        self.near = convolution(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(Block(led=False) for _ in range(PAGE_BLOCKS))

    def forward(self, picture: Tensor, sights: Sequence[Tensor], meanings: Tensor) -> Tensor:
        """Encode a page.

        Args:
            picture: Float [1, 3, h, w] in [0, 1], sides multiples of 32.
            sights: features of the eyes at each of the guide's scales: [1, PRINT, h/8, w/16] of the picture,
                then of it at half and at a quarter of its size.
            meanings: [MEANING, h/16, w/32] of `Glossary`.
        """
        dtype = self.print.weight.dtype
        near, half, quarter = sights
        size = (picture.shape[-2] // PLACE[0], picture.shape[-1] // PLACE[1])
        quarter = F.interpolate(quarter, scale_factor=2, mode="nearest")
        parts = (F.avg_pool2d(near, 2), F.max_pool2d(near, 2), half, F.max_pool2d(half, 3, 1, 1), quarter)
        prints = [part[..., : size[0], : size[1]] for part in parts]
        small = block_mean(picture, (4, 4))
        mean = block_mean(small, (PLACE[0] // 4, PLACE[1] // 4))
        squares = torch.cat([block_mean(channel.square(), PLACE) for channel in picture.split(1, 1)], 1)
        spread = (squares - mean.square()).clamp_min(0).sqrt()
        paint = torch.cat((mean, spread, _coordinates(size, picture.device)), 1).to(dtype)
        small = small.to(dtype, memory_format=torch.channels_last)
        x = self.print(torch.cat(prints, 1).to(dtype)) + self.colour(small) + self.paint(paint)
        x = x + self.meant(meanings[None].to(dtype))
        x = x + self.near(F.relu(x))
        x = self.norm(x.movedim(1, -1))
        for block in self.blocks:
            x = block(x)
        return x.movedim(-1, 1)


class Head(nn.Module):
    """From maps of likeness and a page to a logit per place; see the module."""

    def __init__(self) -> None:
        super().__init__()
        self.roles = nn.Linear(ASKED, MAPS * WIDTH)
        self.trust = nn.Linear(ASKED, MAPS)
        nn.init.constant_(self.trust.bias, 0.5)
        self.look, self.name = nn.Linear(WIDTH, LOOKS), nn.Linear(ASKED, LOOKS)
        self.query, self.key, self.value = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(ASKED, WIDTH),
            nn.Linear(ASKED, WIDTH),
        )
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.last = nn.Linear(WIDTH, 1)
        nn.init.constant_(self.last.bias, -5.0)  # few places are needed
        self.present = nn.Sequential(nn.Linear(2 * WIDTH + ASKED + MAPS, 64), nn.GELU(), nn.Linear(64, 1))
        self.scope = nn.Sequential(nn.Linear(ASKED, 32), nn.GELU(), nn.Linear(32, 2))

    def looks(self, page: Tensor, reading: Reading) -> Tensor:
        """The logit that each place looks like what a word names, [T, H, W]; arguments as of a call."""
        places = self.look(page[0].movedim(0, -1))
        return (places @ self.name(reading.tokens).T).movedim(-1, 0) - 3.0  # few look like it

    def forward(self, page: Tensor, readings: list[Reading], maps: list[Tensor]) -> Judgement:
        """Judge the places of a page for some questions.

        Args:
            page: [1, WIDTH, H, W] of `PageEncoder`.
            readings: of each question.
            maps: of each question, [T, MAPS - 1, H, W] in [0, 1]; the last one is made here.
        """
        base = page[0].movedim(0, -1)  # (H, W, WIDTH)
        rows, direct, best = [], [], []
        for reading, print_maps in zip(readings, maps, strict=True):
            looks = self.looks(page, reading).sigmoid()[:, None]
            likeness = torch.cat((print_maps, looks.to(print_maps.dtype)), 1)
            roles = self.roles(reading.tokens).unflatten(-1, (MAPS, WIDTH))
            x = base + torch.einsum("tmhw,tmc->hwc", likeness.to(base.dtype), roles)
            weights = (self.query(x) @ self.key(reading.tokens).T / 8).softmax(-1)
            rows.append(x + weights @ self.value(reading.tokens))
            trust = F.softplus(self.trust(reading.tokens)).to(likeness.dtype)
            direct.append(torch.einsum("tmhw,tm->hw", likeness, trust))
            best.append((likeness.flatten(2).amax(-1) * trust).sum(0))
        x, pooled = torch.stack(rows), torch.stack([reading.pooled for reading in readings])
        for block in self.blocks:
            x = block(x, pooled)
        x = self.norm(x)
        logits = self.last(x.to(self.last.weight.dtype))[..., 0] + torch.stack(direct)
        flat = x.flatten(1, 2)
        summary = torch.cat((flat.mean(1), flat.amax(1), pooled, torch.stack(best).to(x.dtype)), -1)
        whole, odd = self.scope(pooled).float().unbind(-1)
        return Judgement(logits.float(), self.present(summary)[:, 0].float(), whole, odd)
