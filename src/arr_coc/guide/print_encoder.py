"""Print on a picture: a convolutional network from pixels to a vector for every slot of 8 x 16 px.

PrintEncoder()(luminance(picture))    print [B, DIM, h/8, w/16], features [B, FEATURE_WIDTH, h/8, w/16]
MeaningEncoder()(prints, light, ...)  [B, MEANING_WIDTH, h/16, w/32], what the print means
print_runs(light)                     [B, h/16, w/4], which columns of pixels belong to one run of print
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.guide.lexicon import MEANING_WIDTH, common_words, meanings_of
from arr_coc.guide.question import ALPHABET, DIM, WordEncoder

SLOT = (8, 16)  # height and width in px of a slot, in which print is read
PLACE = (16, 32)  # height and width in px of a place, of which relevance is decided
STEM_WIDTHS = (16, 32, 64)  # channels at a half, a quarter and an eighth of the picture's size
FEATURE_WIDTH = 96  # channels at slots
CONTRAST_WINDOW = 33  # side in px of the neighbourhood whose mean and spread of luminance are taken out
MAX_SLICED_COLUMNS = 4  # columns of a block up to which slices are added up: torch reduces so few slowly


class PrintFeatures(NamedTuple):
    """What `PrintEncoder` finds in each slot of 8 x 16 px: print, and features for the head."""

    print: Tensor  # [B, DIM, H, W], vectors of unit length to compare with those of words
    features: Tensor  # [B, FEATURE_WIDTH, H, W]
    # [B, len(ALPHABET), h/8, w/8], logits of the characters that stand there; None where they weren't asked
    # for
    characters: Tensor | None = None


# torch pools a picture of one or three channels pixel by pixel on a CPU: these three take a third to a
# twentieth of that. Rows come first, as whole lines of pixels; what is left for the columns is little.


def block_mean(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the mean of each block of size = (rows, columns): [..., h, w] -> [..., h / rows, w /
    columns].
    """
    rows, columns = size
    x = x.unflatten(-2, (-1, rows)).mean(-2)
    if columns > MAX_SLICED_COLUMNS:
        return x.unflatten(-1, (-1, columns)).mean(-1)
    return reduce(torch.add, (x[..., i::columns] for i in range(columns))) / columns


def block_max(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the largest value of each block, as `block_mean`."""
    rows, columns = size
    x = x.unflatten(-2, (-1, rows)).amax(-2)
    if columns > MAX_SLICED_COLUMNS:
        return x.unflatten(-1, (-1, columns)).amax(-1)
    return reduce(torch.maximum, (x[..., i::columns] for i in range(columns)))


def window_mean(x: Tensor, side: int) -> Tensor:
    """Return the mean of every window of side x side px, [..., h, w] -> [..., h - side + 1, w - side + 1]."""
    return _window_sum(_window_sum(x, side, -2), side, -1) / side**2


def _window_sum(x: Tensor, side: int, dim: int) -> Tensor:
    """Return the sums of `side` neighbours along a dimension, [..., n, ...] -> [..., n - side + 1, ...]."""
    # From sums of 1, 2, 4, ... neighbours, those that `side` is made of.
    total, done, width, size = None, 0, 1, x.shape[dim]
    while width <= side:
        if side & width:
            part = x.narrow(dim, done, size - side + 1)
            total, done = part if total is None else total + part, done + width
        if 2 * width <= side:
            x = x.narrow(dim, 0, x.shape[dim] - width) + x.narrow(dim, width, x.shape[dim] - width)
        width *= 2
    assert total is not None
    return total


def luminance(picture: Tensor) -> Tensor:
    """Return the luminance of pictures, [B, 3, h, w] -> [B, 1, h, w]."""
    red, green, blue = picture.unbind(1)
    return (0.299 * red + 0.587 * green).add_(blue, alpha=0.114)[:, None]


def contrast(light: Tensor) -> Tensor:
    """Luminance [B, 1, h, w] less its local mean and over its local spread: pale print is as dark print."""
    # Local means and squares need no more than a quarter of the resolution.
    quarter = block_mean(torch.cat((light, light.square()), 1), (4, 4))
    side = CONTRAST_WINDOW // 4 | 1  # odd, so that a window has a middle
    near = window_mean(F.pad(quarter, (side // 2,) * 4, mode="replicate"), side)
    mean, square = near.split(1, 1)
    spread = (square - mean.square()).clamp_min(0).sqrt()
    blocks = light.unflatten(-1, (-1, 4)).unflatten(-3, (-1, 4))  # (B, 1, h/4, 4, w/4, 4)
    # 0.06 keeps the noise of blank paper small.
    mean, scale = (x[..., None, :, None] for x in (mean, 1 / (spread + 0.06)))
    return ((blocks - mean) * scale).flatten(-2).flatten(-3, -2)


def convolution(
    before: int, after: int, size: int | tuple[int, int] = 3, stride: int | tuple[int, int] = 1
) -> nn.Sequential:
    """Return a convolution with batch norm."""
    height, width = (size, size) if isinstance(size, int) else size
    conv = nn.Conv2d(before, after, (height, width), stride, (height // 2, width // 2), bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after))


class Residual(nn.Module):
    """Two convolutions with batch norm, added to their input."""

    def __init__(self, width: int, first: tuple[int, int] = (3, 3), second: tuple[int, int] = (3, 3)) -> None:
        super().__init__()
        self.first, self.second = convolution(width, width, first), convolution(width, width, second)
        nn.init.zeros_(cast(nn.BatchNorm2d, self.second[1]).weight)

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.second(self.first(x).relu_())).relu_()


class PrintEncoder(nn.Module):
    """A convolutional network that reads print in the contrast of a picture.

    Large print is read by the same weights in the picture at half and at a quarter of its size.
    """

    def __init__(self) -> None:
        super().__init__()
        first, second, third = STEM_WIDTHS
        self.stem = nn.Sequential(
            convolution(1, first, stride=2), nn.ReLU(inplace=True),
            convolution(first, second, stride=2), nn.ReLU(inplace=True),
            convolution(second, third, stride=2), nn.ReLU(inplace=True),
            Residual(third), Residual(third),
        )  # fmt: skip
        self.characters = nn.Conv2d(third, len(ALPHABET), 1)
        nn.init.constant_(cast(Tensor, self.characters.bias), -4.5)  # most slots hold none of most
        self.widen = nn.Sequential(convolution(third, FEATURE_WIDTH, stride=(1, 2)), nn.ReLU(inplace=True))
        sizes = ((3, 3), (1, 3), (1, 3))  # the stem covers enough height; words are wide
        self.blocks = nn.Sequential(*(Residual(FEATURE_WIDTH, size, (1, 7)) for size in sizes))
        self.print = convolution(FEATURE_WIDTH, DIM, 1)  # its batch norm takes out what all slots share

    def forward(self, light: Tensor, characters: bool = False) -> PrintFeatures:
        """Read the slots of pictures, luminance [B, 1, h, w] in [0, 1], h a multiple of 8 and w of 16."""
        x = contrast(light.float()).to(self.characters.weight.dtype, memory_format=torch.channels_last)
        x = self.stem(x)
        letters = self.characters(x) if characters else None
        x = self.blocks(self.widen(x))
        vectors = self.print(x)
        return PrintFeatures(F.normalize(vectors.float(), dim=1), x, letters)

    def character_evidence(self, light: Tensor) -> Tensor:
        """Return the probability of the likeliest character at each 8 x 8 px, [1, 1, h, w] -> [h / 8, w /
        8].
        """
        x = contrast(light).to(self.characters.weight.dtype, memory_format=torch.channels_last)
        return self.characters(self.stem(x)).amax(1)[0].float().sigmoid()  # the largest stays the largest


MEANING_SHARPNESS = 60.0  # what cosines are multiplied by where common words compete for a slot
MIN_INK = 0.06  # the least difference of luminance within a slot that print may stand in
MIN_CERTAINTY = 0.02  # the least probability of a word in a slot from which the slot means something
# Least probability and letters of a word that counts as read: strokes look like short words.
READ_CERTAINTY, READ_LETTERS = 0.85, 5
CHUNK = 256  # slots read at once on a CPU: their cosines with all words fit the cache


class Likeness(NamedTuple):
    """From the cosine of the vectors of a slot and a word to the logit that the slot shows the word."""

    factor: Tensor
    threshold: Tensor  # the cosine at which it is as likely as not

    def __call__(self, cosine: Tensor) -> Tensor:
        return self.factor * (cosine - self.threshold)


class MeaningEncoder(nn.Module):
    """What the print at each place means, mixed from the meanings of the common words that it resembles.

    So "Remuneration" lies near "pay" though no list names them together. Of a number or a name it is short.
    """

    vectors: Tensor  # (V, DIM), of `WordEncoder`
    meanings: Tensor  # (V, MEANING_WIDTH)
    long: Tensor  # bool (V,), which are words of READ_LETTERS and more

    def __init__(self) -> None:
        super().__init__()
        self.words = common_words()
        self.register_buffer("vectors", torch.zeros(len(self.words), DIM))
        self.register_buffer("meanings", meanings_of(self.words), persistent=False)
        long = torch.tensor([len(word) >= READ_LETTERS for word in self.words])
        self.register_buffer("long", long, persistent=False)
        # Whether every slot is read at once, also those without ink; None: off the CPU, where leaving some
        # out would have to wait for how many they are.
        self.dense: bool | None = None

    @torch.no_grad()
    def learn(self, words: WordEncoder) -> None:
        """Copy the vectors of the common words from a word encoder."""
        self.vectors.copy_(words(self.words))

    @torch.no_grad()
    def forward(self, prints: Sequence[Tensor], light: Tensor, likeness: Likeness) -> tuple[Tensor, Tensor]:
        """Return what every place of pictures means, [B, MEANING_WIDTH, h/16, w/32], and how many words are
        read, [B].

        A vector is as long as the probability that a word stands there. `prints` are vectors [B, DIM, h, w]
        of slots of the pictures, and of them at half and at a quarter of their size; `light` is their
        luminance [B, 1, h, w].
        """
        extremes = block_max(light, SLOT), block_max(-light, SLOT)
        slots, inks = [], []
        for scale, each in enumerate(prints):
            ink = _ink(extremes, scale, each.shape[-2:])
            if scale == 0:
                each, ink = _darker_rows(each, ink)
            slots.append(each)
            inks.append(ink)
        vectors = torch.cat([each.flatten(2) for each in slots], 2).mT  # (B, N, DIM)
        inked = torch.cat([ink.flatten(1) for ink in inks], 1) > MIN_INK
        rows, read = self._read_inked(vectors, inked, likeness)
        height, width = light.shape[-2] // PLACE[0], light.shape[-1] // PLACE[1]
        total = light.new_zeros(len(light), MEANING_WIDTH + 1, height, width, dtype=torch.float32)
        for scale, part in enumerate(rows.split([ink[0].numel() for ink in inks], 1)):
            meant = part.mT.unflatten(-1, inks[scale].shape[1:])
            if scale == 0:  # two slots lie side by side in a place
                meant = meant[..., ::2] + meant[..., 1::2]
            elif scale == 2:  # a slot at a quarter of the size covers 2 x 2 places
                meant = meant.repeat_interleave(2, -2).repeat_interleave(2, -1)
            total += meant[..., :height, :width]
        return total[:, :-1] / total[:, -1:].clamp_min(1), read

    def _read_inked(self, vectors: Tensor, inked: Tensor, likeness: Likeness) -> tuple[Tensor, Tensor]:
        """Meanings and, last, the probability of a word, [B, N, MEANING_WIDTH + 1], of slots [B, N, DIM]; and
        how many long words are read, [B].

        Both are of the slots with ink, `inked` bool [B, N], others have zeros.
        """
        if self.dense is None:
            dense = vectors.device.type != "cpu" or torch.compiler.is_compiling()
        else:
            dense = self.dense
        if dense:
            rows, words = self._read(vectors, likeness, dense)
            rows = rows * inked[..., None]
            words = words.masked_fill(~inked, len(self.words))
        else:
            # A CPU has time for the slots with ink alone, and for as many at once as fit its cache.
            rows = vectors.new_zeros(*inked.shape, MEANING_WIDTH + 1, dtype=torch.float32)
            words = torch.full(inked.shape, len(self.words))
            parts = [self._read(part, likeness, dense) for part in vectors[inked].split(CHUNK)]
            if parts:
                rows[inked], words[inked] = map(torch.cat, zip(*parts, strict=True))
        read = rows.new_zeros(len(rows), len(self.words) + 1).scatter_(1, words, 1.0)
        return rows, (read[:, :-1] * self.long).sum(1)

    def _read(self, prints: Tensor, likeness: Likeness, dense: bool) -> tuple[Tensor, Tensor]:
        """Meanings and, last, the probability of a word, [..., MEANING_WIDTH + 1], of slots [..., DIM].

        And the row of the word that is read in each, [...], the number of words where none is.
        """
        dtype = self.vectors.dtype
        meanings = F.pad(self.meanings, (0, 1), value=1.0).to(dtype)  # the last column adds up the weights
        # A softmax would subtract the largest score of each slot; subtracting the largest possible one needs
        # no pass through the scores.
        bias = prints.new_full((len(self.vectors),), -MEANING_SHARPNESS, dtype=dtype)
        lowered = F.linear((MEANING_SHARPNESS * prints).to(dtype), self.vectors, bias)
        sure = torch.sigmoid(likeness(lowered.amax(-1).float() / MEANING_SHARPNESS + 1))
        certain, legible = sure > MIN_CERTAINTY, sure > READ_CERTAINTY
        if dense:
            words = lowered.argmax(-1).masked_fill(~legible, len(self.words))
            return _weighed((lowered.exp_() @ meanings).float(), sure * certain), words
        # Few slots are legible and not all are certain, and a CPU takes longer than to find which.
        words = torch.full(legible.shape, len(self.words))
        words[legible] = lowered[legible].max(-1).indices  # of half precision a fifth of the time of argmax
        rows = prints.new_zeros(*legible.shape, meanings.shape[1], dtype=torch.float32)
        rows[certain] = _weighed((lowered[certain].exp_() @ meanings).float(), sure[certain])
        return rows, words


def _weighed(mixed: Tensor, sure: Tensor) -> Tensor:
    """Sums of meanings [..., MEANING_WIDTH + 1], the last that of their weights, as means times `sure`."""
    return mixed / mixed[..., -1:].clamp_min(1e-30) * sure[..., None]


def _ink(extremes: Sequence[Tensor], scale: int, size: Sequence[int]) -> Tensor:
    """Return the difference of luminance within each slot, [B, h, w], at 1/2**scale of the picture's size."""
    high, low = (F.max_pool2d(x, 1 << scale, ceil_mode=True)[:, 0] for x in extremes)
    return F.pad(high + low, (0, size[1] - high.shape[-1], 0, size[0] - high.shape[-2]))


def _darker_rows(prints: Tensor, ink: Tensor) -> tuple[Tensor, Tensor]:
    """Of each two slots above one another the one with more ink: a line of print is as high as both."""
    lower = ink[:, 1::2] > ink[:, ::2]
    rows = torch.where(lower[:, None], prints[:, :, 1::2], prints[:, :, ::2])
    return rows, torch.where(lower, ink[:, 1::2], ink[:, ::2])


COLUMN_PX = 4  # width in px of the columns that ink is looked for in
INK_STEP = 0.15  # luminance that ink differs by from the next pixel
MAX_GAP = 4  # columns without ink that a run may cross: over a space of small print, under one of a table
MAX_RUN = 128  # columns of the longest run: longer ones are rules and pictures
RUN_COLUMNS_OF_PLACE = 2  # columns of a run that make a place part of it


@torch.no_grad()
def print_runs(light: Tensor) -> Tensor:
    """Return the runs of print of a picture: ink in one row of places, such as a word, a value or a label.

    Luminance [B, 1, h, w] in [0, 1], sides multiples of 32 px -> long [B, h / 16, w / COLUMN_PX], the number
    of each column's run, from 1; 0 where there is none.
    """
    right = F.pad((light[..., 1:] - light[..., :-1]).abs(), (0, 1))
    below = F.pad((light[..., 1:, :] - light[..., :-1, :]).abs(), (0, 0, 0, 1))
    ink = (block_max(torch.maximum(right, below), (PLACE[0], COLUMN_PX)) > INK_STEP).float()[:, 0]
    wide = F.max_pool2d(F.pad(ink, (MAX_GAP, MAX_GAP)), (1, MAX_GAP + 1), 1)
    joined = -F.max_pool2d(-wide, (1, MAX_GAP + 1), 1) > 0.5  # gaps of up to MAX_GAP are closed
    first = joined & ~F.pad(joined, (1, 0))[..., :-1]
    numbers = (first.flatten(1).cumsum(1).view(joined.shape) * joined).flatten(1)
    short = _sums(numbers, torch.ones_like(numbers)) <= MAX_RUN
    return (numbers * short.gather(1, numbers)).view(joined.shape)


def _sums(numbers: Tensor, values: Tensor) -> Tensor:
    """Return the sums of values [B, ..., N] over those of one number, long [B, N] in 0..N -> [B, ..., N +
    1].
    """
    # As many sums as there can be: how many there are would have to be waited for.
    count = numbers.shape[-1] + 1
    index = numbers.view(len(numbers), *(1,) * (values.ndim - 2), -1).expand_as(values)
    return values.new_zeros(*values.shape[:-1], count).scatter_add_(-1, index, values)


def run_meanings(meanings: Tensor, runs: Tensor) -> Tensor:
    """Return the meaning of the run of print that each place belongs to, [B, C, h, w] of unit length or 0.

    `meanings` are [B, C, h, w], `runs` [B, h, w * n] of `print_runs`; a place with parts of several takes the
    last.
    """
    index = runs.unflatten(-1, (meanings.shape[-1], -1)).amax(-1).flatten(1)  # (B, N), up to n * N
    # Each run is summed up at its first place, so that there are as many sums as places.
    places = torch.arange(index.shape[1], device=index.device).expand_as(index)
    firsts = F.pad(torch.zeros_like(runs.flatten(1)), (0, 1))
    firsts = firsts.scatter_reduce_(1, index, places, "amin", include_self=False)
    first = firsts.gather(1, index)
    means = F.normalize(_sums(first, meanings.flatten(2).float()), dim=1)
    wanted = first[:, None].expand(-1, meanings.shape[1], -1)
    return (means.gather(2, wanted) * (index > 0)[:, None]).view(meanings.shape)


def complete_runs(places: Tensor, runs: Tensor) -> Tensor:
    """Raise every place of a run to the log of the run's mean odds, and lower none.

    The head often leaves out an end of the answer. Logits of places [Q, h, w] and `print_runs` [B, h, w * n]
    for n columns of a place, of one picture or one per question -> logits [Q, h, w].
    """
    per_place = runs.shape[-1] // places.shape[-1]
    top = places.amax((-2, -1), keepdim=True)
    odds = (places - top).exp().repeat_interleave(per_place, -1).flatten(1)
    index = runs.flatten(1)
    columns = _sums(index, torch.ones_like(index)).clamp_min(1)
    index = index.expand(len(places), -1)
    means = (_sums(index, odds) / columns).clamp_min(1e-30).log()
    means = means.gather(1, index).masked_fill(index == 0, -torch.inf)  # of the columns without a run
    lifted = means.view(*places.shape, per_place).topk(RUN_COLUMNS_OF_PLACE, -1).values[..., -1]
    return torch.maximum(places, lifted + top)
