"""Print on a picture: a convolutional network from pixels to a vector for every slot of 8 x 16 px.

PrintEncoder()(luminance(picture))    print [B, DIM, h/8, w/16], features [B, FEATURE_WIDTH, h/8, w/16]
MeaningEncoder()(prints, light, ...)  [MEANING_WIDTH, h/16, w/32], what the print means
print_runs(light)                     [h/16, w/4], which columns of pixels belong to one run of print
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from arr_coc.guide.lexicon import MEANING_WIDTH, common_words, meaning
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
    """The mean of each block of size = (rows, columns): [..., h, w] -> [..., h / rows, w / columns]."""
    rows, columns = size
    x = x.unflatten(-2, (-1, rows)).mean(-2)
    if columns > MAX_SLICED_COLUMNS:
        return x.unflatten(-1, (-1, columns)).mean(-1)
    return reduce(torch.add, (x[..., i::columns] for i in range(columns))) / columns


def block_max(x: Tensor, size: tuple[int, int]) -> Tensor:
    """The largest value of each block, as `block_mean`."""
    rows, columns = size
    x = x.unflatten(-2, (-1, rows)).amax(-2)
    if columns > MAX_SLICED_COLUMNS:
        return x.unflatten(-1, (-1, columns)).amax(-1)
    return reduce(torch.maximum, (x[..., i::columns] for i in range(columns)))


def window_mean(x: Tensor, side: int) -> Tensor:
    """The mean of every window of side x side px, [..., h, w] -> [..., h - side + 1, w - side + 1]."""
    height, width = x.shape[-2] - side + 1, x.shape[-1] - side + 1
    x = reduce(torch.add, (x[..., i : i + height, :] for i in range(side)))
    return reduce(torch.add, (x[..., i : i + width] for i in range(side))) / side**2


def luminance(picture: Tensor) -> Tensor:
    """The luminance of pictures, [B, 3, h, w] -> [B, 1, h, w]."""
    red, green, blue = picture.unbind(1)
    return (0.299 * red + 0.587 * green).add_(blue, alpha=0.114)[:, None]


def contrast(light: Tensor) -> Tensor:
    """Luminance [B, 1, h, w] less its local mean and over its local spread: pale print is as dark print."""
    # Local means and squares need no more than a quarter of the resolution.
    quarter = torch.cat([block_mean(x, (4, 4)) for x in (light, light.square())], 1)
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
    """A convolution with batch norm."""
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
        """The probability of the likeliest character at each 8 x 8 px, [1, 1, h, w] -> [h / 8, w / 8]."""
        x = contrast(light).to(self.characters.weight.dtype, memory_format=torch.channels_last)
        return self.characters(self.stem(x)).amax(1)[0].float().sigmoid()  # the largest stays the largest


MEANING_SHARPNESS = 60.0  # what cosines are multiplied by where common words compete for a slot
MIN_INK = 0.06  # the least difference of luminance within a slot that print may stand in
MIN_CERTAINTY = 0.02  # the least probability of a word in a slot from which the slot means something
# Least probability and letters of a word that counts as read: strokes look like short words.
READ_CERTAINTY, READ_LETTERS = 0.85, 5
CHUNK = 256  # slots read at once: their cosines with all words fit the cache


class MeaningEncoder(nn.Module):
    """What the print at each place means, mixed from the meanings of the common words that it resembles.

    So "Remuneration" lies near "pay" though no list names them together. Of a number or a name it is short.
    """

    vectors: Tensor  # (V, DIM), of `WordEncoder`
    meanings: Tensor  # (V, MEANING_WIDTH)

    def __init__(self) -> None:
        super().__init__()
        self.words = common_words()
        self.register_buffer("vectors", torch.zeros(len(self.words), DIM))
        self.register_buffer("meanings", torch.stack([meaning(w) for w in self.words]), persistent=False)

    @torch.no_grad()
    def learn(self, words: WordEncoder) -> None:
        """Copy the vectors of the common words from a word encoder."""
        self.vectors.copy_(words(self.words))

    @torch.no_grad()
    def forward(
        self, prints: Sequence[Tensor], light: Tensor, likeness: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, int]:
        """What every place of a picture means, [MEANING_WIDTH, h/16, w/32], and how many words are read.

        A vector is as long as the probability that a word stands there. `prints` are vectors [DIM, h, w] of
        slots of the picture, and of it at half and at a quarter of its size; `light` is its luminance [1, 1,
        h, w]; `likeness` maps a cosine to the logit that a slot shows a word.
        """
        extremes = block_max(light, SLOT), block_max(-light, SLOT)
        masks, slots = [], []
        for scale, each in enumerate(prints):
            ink = _ink(extremes, scale, each.shape[-2:])
            if scale == 0:
                each, ink = _darker_rows(each, ink)
            masks.append(ink > MIN_INK)
            slots.append(each[:, masks[-1]].T)
        rows, legible = self._read(torch.cat(slots), likeness)
        parts = rows.split([len(each) for each in slots])
        height, width = light.shape[-2] // PLACE[0], light.shape[-1] // PLACE[1]
        total = light.new_zeros(MEANING_WIDTH + 1, height, width, dtype=torch.float32)
        for scale, (mask, part) in enumerate(zip(masks, parts, strict=True)):
            meant = total.new_zeros(MEANING_WIDTH + 1, *mask.shape)
            meant[:, mask] = part.T
            if scale == 0:  # two slots lie side by side in a place
                meant = meant[..., ::2] + meant[..., 1::2]
            elif scale == 2:  # a slot at a quarter of the size covers 2 x 2 places
                meant = meant.repeat_interleave(2, -2).repeat_interleave(2, -1)
            total += meant[:, :height, :width]
        return total[:-1] / total[-1].clamp_min(1), sum(len(self.words[i]) >= READ_LETTERS for i in legible)

    def _read(self, prints: Tensor, likeness: Callable[[Tensor], Tensor]) -> tuple[Tensor, set[int]]:
        """Meanings and, last, the probability of a word, [N, MEANING_WIDTH + 1]; the rows of words read."""
        dtype, count = self.vectors.dtype, len(prints)
        read = F.pad((MEANING_SHARPNESS * prints).to(dtype), (0, 0, 0, -count % CHUNK))
        meanings = F.pad(self.meanings, (0, 1), value=1.0).to(dtype)  # the last column adds up the weights
        bias = read.new_full((len(self.vectors),), -MEANING_SHARPNESS)
        rows, legible = [], set[int]()
        for chunk in read.split(CHUNK):
            # A softmax would subtract the largest score of each slot; subtracting the largest possible one
            # needs no pass through the scores.
            lowered = F.linear(chunk, self.vectors, bias)
            sure = torch.sigmoid(likeness(lowered.amax(1).float() / MEANING_SHARPNESS + 1))
            legible.update(lowered[sure > READ_CERTAINTY].argmax(1).tolist())
            mixed = (lowered.exp_() @ meanings).float()
            rows.append(mixed / mixed[:, -1:].clamp_min(1e-30) * (sure * (sure > MIN_CERTAINTY))[:, None])
        return torch.cat(rows)[:count], legible


def _ink(extremes: Sequence[Tensor], scale: int, size: Sequence[int]) -> Tensor:
    """The difference of luminance within each slot, [h, w], at 1/2**scale of the picture's size."""
    high, low = (F.max_pool2d(x, 1 << scale, ceil_mode=True)[0, 0] for x in extremes)
    return F.pad(high + low, (0, size[1] - high.shape[1], 0, size[0] - high.shape[0]))


def _darker_rows(prints: Tensor, ink: Tensor) -> tuple[Tensor, Tensor]:
    """Of each two slots above one another the one with more ink: a line of print is as high as both."""
    lower = ink[1::2] > ink[::2]
    return torch.where(lower, prints[:, 1::2], prints[:, ::2]), torch.where(lower, ink[1::2], ink[::2])


COLUMN_PX = 4  # width in px of the columns that ink is looked for in
INK_STEP = 0.15  # luminance that ink differs by from the next pixel
MAX_GAP = 4  # columns without ink that a run may cross: over a space of small print, under one of a table
MAX_RUN = 128  # columns of the longest run: longer ones are rules and pictures
RUN_COLUMNS_OF_PLACE = 2  # columns of a run that make a place part of it


@torch.no_grad()
def print_runs(light: Tensor) -> Tensor:
    """The runs of print of a picture: ink in one row of places, such as a word, a value or a label.

    Luminance [1, 1, h, w] in [0, 1], sides multiples of 32 px -> long [h / 16, w / COLUMN_PX], the number of
    each column's run, from 1; 0 where there is none.
    """
    right = F.pad((light[..., 1:] - light[..., :-1]).abs(), (0, 1))
    below = F.pad((light[..., 1:, :] - light[..., :-1, :]).abs(), (0, 0, 0, 1))
    ink = (block_max(torch.maximum(right, below), (PLACE[0], COLUMN_PX)) > INK_STEP).float()[0]
    wide = F.max_pool2d(F.pad(ink, (MAX_GAP, MAX_GAP)), (1, MAX_GAP + 1), 1)
    joined = -F.max_pool2d(-wide, (1, MAX_GAP + 1), 1)[0] > 0.5  # gaps of up to MAX_GAP are closed
    first = joined & ~F.pad(joined, (1, 0))[:, :-1]
    numbers = first.flatten().cumsum(0).view(joined.shape) * joined
    return numbers * (torch.bincount(numbers.flatten()) <= MAX_RUN)[numbers]


def run_meanings(meanings: Tensor, runs: Tensor) -> Tensor:
    """The meaning of the run of print that each place belongs to, [C, h, w] -> [C, h, w] of unit length or 0.

    `runs` [h, w * n] are of `print_runs`; a place with parts of several takes the last.
    """
    index = runs.unflatten(-1, (meanings.shape[-1], -1)).amax(-1).flatten()
    sums = meanings.new_zeros(len(meanings), int(index.max()) + 1).index_add_(1, index, meanings.flatten(1))
    sums[:, 0] = 0  # of the places without a run
    return F.normalize(sums.float(), dim=0)[:, index].view(meanings.shape)


def complete_runs(places: Tensor, runs: Tensor) -> Tensor:
    """Raise every place of a run to the log of the run's mean odds, and lower none.

    The head often leaves out an end of the answer. Logits of places [Q, h, w] and `print_runs` [h, w * n] for
    n columns of a place -> logits [Q, h, w].
    """
    per_place = runs.shape[-1] // places.shape[-1]
    top = places.amax((-2, -1), keepdim=True)
    odds = (places - top).exp().repeat_interleave(per_place, -1).flatten(1)
    index = runs.flatten()
    columns = torch.bincount(index).clamp_min(1)
    sums = odds.new_zeros(len(places), len(columns)).index_add_(1, index, odds)  # (Q, runs)
    means = (sums / columns).clamp_min(1e-30).log()
    means[:, 0] = -torch.inf  # of the columns without a run
    lifted = means[:, index].view(*places.shape, per_place).topk(RUN_COLUMNS_OF_PLACE, -1).values[..., -1]
    return torch.maximum(places, lifted + top)
