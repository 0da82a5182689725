"""The balance: a small network in which the three maps of a picture meet, learned on questions.

    net = load_balance()
    net(inputs_of(coupling, information, saliency, rare))     Weighed: logits [1, H, W], gates, tensions

A fact lies along a row and under a header, and no source of relevance carries that far. So each source's map
is read with its surroundings (neighbours, row, column, line of print, the whole), by one network for all
sources, and corrected; gates then weigh it against information and saliency, and three tensions say how many
cells are worth keeping, how many of them for coverage, and how sharply relevance separates cells. Gates and
tensions follow the question's vector and a gist of the picture.

A source that the network never met counts as one of calibrated log odds. `arr_coc_lab.teaching.balance`
trains it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from arr_coc.choose.balancing import steepness
from arr_coc.choose.filters import unit
from arr_coc.choose.knowing import same_start
from arr_coc.choose.rarity import standing_out
from arr_coc.files.saved import BUNDLED, check_finite, reading, write_tensors
from arr_coc.guide import GUIDE
from arr_coc.guide.coupling import Coupling, SourcePart
from arr_coc.guide.question import WIDTH as QUESTION_WIDTH
from arr_coc.guide.trust import dense_things
from arr_coc.relevance.source import PRIOR

WIDTH, BLOCKS, LED, HIDDEN = 32, 2, 16, 32  # vectors of cells; blocks; of the question; of the policy
KINDS = {GUIDE: 0, "ocr": 1}  # sources with weights of their own
OTHER = 2  # all further ones
FEATURES = 14  # numbers of a cell by one source, see `_features`
PLACE = 6  # numbers that tell where a cell lies, see `_places`
FACTS = 10  # numbers of a question and its picture, see `_facts`
PHOTOGRAPH, NAMED = 5, -2  # the place among them of `Coupling.photograph`, and of the sources with a name
REACH, AROUND = 7, 5  # cells along a row or a column that count as near, and of a square's side
LOW = -1e4  # below any logit
LEAST = 1e-4  # the least confidence of a source that counts
# Gates and tensions of the untrained net, before the sigmoid.
START = (-2.0, -2.0, 2.0, 0.0, 3.0, 0.0)
FILE = "balance.safetensors"
FORMAT = "arr-coc balance 1"
FOLDER = BUNDLED / "balance"


class BalanceInputs(NamedTuple):
    """What the balance reads of B pictures with a question each."""

    kinds: tuple[int, ...]  # of the S sources: KINDS or OTHER
    logits: Tensor  # [S, B, H, W], log odds that a cell is needed, by each source
    confidences: Tensor  # [S, B]; at 0 a source has nothing to judge by and is left out
    units: Tensor  # long [B, H * W], which line of print a cell belongs to; a number of its own where none is
    information: Tensor  # [B, H, W], logits
    saliency: Tensor  # [B, H, W], logits
    question: Tensor  # [B, QUESTION_WIDTH], the guide's vector of each question; 0 where it is not known
    facts: Tensor  # [B, FACTS]


class Weighed(NamedTuple):
    """The balanced map of B pictures with a question each, and how it was balanced."""

    logits: Tensor  # [B, H, W], the balanced map before the sigmoid
    participatory: Tensor  # [B, H, W], logits of the sources' maps in their context
    gates: Tensor  # [B, 3] in [0, 1], of information, saliency and coupling
    tensions: Tensor  # [B, 3] in [0, 1], as in `choose.allocation.TENSIONS`


class ContextBlock(nn.Module):
    """A residual block that mixes each cell with its surroundings, led by the question."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(7 * WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.lead = nn.Linear(LED + FACTS, 4 * WIDTH)
        for layer in (self.down, self.lead):  # it starts as the identity, for every question alike
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, led: Tensor, units: Tensor) -> Tensor:
        """[B, H, W, WIDTH] -> the same; `led` [B, LED + FACTS], `units` as in `BalanceInputs`."""
        y = self.norm(x).movedim(-1, 1)
        near = F.avg_pool2d(y, 3, 1, 1, count_include_pad=False)
        parts = (y, *_along(y), near, *_ends(y), unit_best(y, units))
        scale, shift = self.lead(led)[:, None, None].chunk(2, -1)
        hidden = self.up(torch.cat(parts, 1).movedim(1, -1))
        return x + self.down(F.gelu(hidden * (1 + scale) + shift))


class BalanceNet(nn.Module):
    """The network of the balance, some 45,000 parameters.

    **Laws.** Untrained, the participatory map is the sum of the sources' log odds less the prior that each
    counts. Sources come in any order, and one of confidence 0 changes nothing. No picture influences another
    of its batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        # By kind of source: what scales and shifts its features, what is added to its vectors, and the log of
        # the factor on its log odds.
        self.scale, self.shift = (nn.Parameter(torch.zeros(OTHER + 1, FEATURES)) for _ in range(2))
        self.kind, self.weight = (
            nn.Parameter(torch.zeros(OTHER + 1, WIDTH)),
            nn.Parameter(torch.zeros(OTHER + 1)),
        )
        self.place = nn.Linear(PLACE, WIDTH)
        self.question = nn.Linear(QUESTION_WIDTH, LED)
        self.blocks = nn.ModuleList(ContextBlock() for _ in range(BLOCKS))
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1)
        decide = nn.Linear(HIDDEN, 6)
        self.policy = nn.Sequential(nn.Linear(LED + FACTS + 9, HIDDEN), nn.Tanh(), decide)
        for layer in (self.last, decide):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():
            decide.bias.copy_(torch.tensor(START))

    def forward(self, inputs: BalanceInputs) -> Weighed:
        """Return the balanced maps, with gradient; the tensions' steepness is part of their logits."""
        led = torch.cat((self.question(unit(inputs.question)), inputs.facts), -1)
        coupled = self.in_context(inputs, led)
        maps = torch.stack((inputs.information, inputs.saliency, coupled), 1)  # (B, 3, H, W)
        gates, tensions = self.policy(torch.cat((led, _gist(maps)), -1)).sigmoid().split(3, -1)
        mixed = torch.einsum("bkhw,bk->bhw", maps, gates)
        return Weighed(mixed * steepness(tensions[:, 2])[:, None, None], coupled, gates, tensions)

    def in_context(self, inputs: BalanceInputs, led: Tensor) -> Tensor:
        """Return the participatory map [B, H, W]: the sources' sum, corrected by what surrounds each cell."""
        there = (inputs.confidences > 0).to(inputs.logits)[..., None, None]  # (S, B, 1, 1)
        kinds = list(inputs.kinds)
        odds = (inputs.logits - PRIOR) * self.weight[kinds].exp()[:, None, None, None]
        total = (odds * there).sum(0) + PRIOR
        features = torch.stack(
            [
                _features(one, sure, inputs.units)
                for one, sure in zip(inputs.logits, inputs.confidences, strict=True)
            ]
        )
        vectors = self.source(features * _rows(1 + self.scale[kinds]) + _rows(self.shift[kinds]))
        x = ((vectors + _rows(self.kind[kinds])) * there[..., None]).sum(0)
        # Information and saliency aren't read here: what they are worth is for the gates to say.
        x = x + self.place(_places(inputs.information))
        for block in self.blocks:
            x = block(x, led, inputs.units)
        # On photographs by the guide alone surroundings mislead: of the validation split's evidence 0.59 is
        # kept at 273 cells with them, 0.61 without.
        # Sources that the net never met alone may be boxes that somebody drew, which mean what they say.
        trust = inputs.facts[:, NAMED:].amax(1) * (1 - inputs.facts[:, PHOTOGRAPH])
        return total + self.last(self.norm(x))[..., 0] * trust[:, None, None]


def _rows(of_kinds: Tensor) -> Tensor:
    """Return vectors [S, D] of sources so that they fit features [S, B, H, W, D]."""
    return of_kinds[:, None, None, None]


def _along(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best within REACH cells along the row and along the column, of [B, C, H, W] each."""
    half = REACH // 2
    return F.max_pool2d(x, (1, REACH), 1, (0, half)), F.max_pool2d(x, (REACH, 1), 1, (half, 0))


def _ends(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best of the whole row and of the whole column, of [B, C, H, W] each."""
    return x.amax(3, keepdim=True).expand_as(x), x.amax(2, keepdim=True).expand_as(x)


def unit_best(x: Tensor, units: Tensor) -> Tensor:
    """Return the best of each cell's unit, of [B, C, H, W]; `units` as in `BalanceInputs`."""
    flat = x.flatten(2)
    index = units[:, None].expand_as(flat)
    best = flat.new_full((*flat.shape[:2], int(units.max()) + 1), LOW)
    return best.scatter_reduce(2, index, flat, "amax").gather(2, index).view_as(x)


def _features(logits: Tensor, confidence: Tensor, units: Tensor) -> Tensor:
    """Return what one source says of each cell and its surroundings, [B, H, W, FEATURES].

    Its logit, z-score, probability, distance to the picture's best and rank; the best of its unit; the
    picture's best, spread and confidence; the best along the row, along the column, around, of the whole row
    and of the whole column.
    """
    flat = logits.flatten(1)
    top, mean = flat.amax(1)[:, None, None], flat.mean(1)[:, None, None]
    spread = flat.std(1, correction=0).clamp_min(0.05)[:, None, None]
    rank = flat.argsort(1).argsort(1).view_as(logits).to(logits) / flat.shape[1]
    below = ((logits - top) / 4)[:, None]
    around = F.max_pool2d(below, AROUND, 1, AROUND // 2)
    own = (logits / 4, (logits - mean) / spread / 2, logits.sigmoid(), below[:, 0], rank)
    whole = (top / 4, spread.log(), confidence[:, None, None])
    maps = [*own, unit_best(below, units)[:, 0], *(one.expand_as(logits) for one in whole)]
    return torch.cat((torch.stack(maps, 1), *_along(below), around, *_ends(below)), 1).movedim(1, -1)


def _places(like: Tensor) -> Tensor:
    """Return where each cell of [B, H, W] lies, how many there are and the grid's shape, [B, H, W, PLACE]."""
    _, height, width = like.shape
    down, right = (torch.linspace(0, 1, n, device=like.device, dtype=like.dtype) for n in (height, width))
    y, x = torch.meshgrid(down, right, indexing="ij")
    size = torch.full_like(y, math.log(height * width / 1024))
    shape = torch.full_like(y, math.log(width / height))
    return torch.stack((y, x, (y - 0.5).abs(), (x - 0.5).abs(), size, shape), -1).expand(*like.shape, -1)


def _gist(maps: Tensor) -> Tensor:
    """Return mean, maximum and spread of the three maps [B, 3, H, W] in logits: [B, 9], without gradient."""
    chances = maps.detach().sigmoid().flatten(2)
    return torch.stack((chances.mean(-1), chances.amax(-1), chances.std(-1, correction=0)), -1).flatten(1)


def auto_map(weighed: Weighed) -> Tensor:
    """Return the map [B, H, W] by which "auto" counts cells: where the coupling leads its log odds, else the
    balance.
    """
    leads = weighed.gates.argmax(1) == 2
    return torch.where(leads[:, None, None], weighed.participatory, weighed.logits)


def inputs_of(coupling: Coupling, information: Tensor, saliency: Tensor, rare: bool) -> BalanceInputs:
    """Return what the balance reads of one picture and question.

    Both maps are logits [1, H, W]; `rare`: saliency is that of `choose.rarity`.
    """
    like, shape = information, tuple(information.shape[-2:])
    parts = _parts(coupling)
    vector = information.new_zeros(QUESTION_WIDTH) if coupling.question is None else coupling.question
    kinds = sources(coupling)
    logits = torch.stack([part.logits for part in parts])[:, None].to(like)
    # A guide without confidence still orders the cells.
    sure = torch.tensor([[max(part.confidence, LEAST)] for part in parts]).to(like)
    apart = math.tanh(float(standing_out(saliency.sigmoid()))) if rare else 0.0
    facts = torch.tensor([_facts(coupling, kinds, apart)]).to(like)
    units = unit_numbers(coupling.units, shape)[None].to(like.device)
    return BalanceInputs(kinds, logits, sure, units, like, saliency, vector[None].to(like), facts)


def sources(coupling: Coupling) -> tuple[int, ...]:
    """Return the kinds of the sources that a coupling is of: KINDS or OTHER."""
    return tuple(KINDS.get(part.source, OTHER) for part in _parts(coupling))


def _parts(coupling: Coupling) -> tuple[SourcePart, ...]:
    """Return what each source says; of one alone it is known only whether the guide read the question."""
    name = "" if coupling.question is None else GUIDE
    return coupling.parts or (SourcePart(name, coupling.logits, coupling.confidence),)


def _facts(coupling: Coupling, kinds: Sequence[int], apart: float) -> tuple[float, ...]:
    """Return a question's scope, whether the picture may answer it, and a gist of the picture: FACTS
    numbers.

    `apart`: how far few cells are rare in it, in [0, 1].
    """
    units = coupling.units
    return (
        coupling.confidence,
        coupling.overview,
        coupling.unusual,
        float(bool(dense_things(coupling.words))),
        float(coupling.printed),
        float(coupling.photograph),
        apart,
        0.0 if units is None else float((units >= 0).float().mean()),
        float(KINDS[GUIDE] in kinds),
        float(KINDS["ocr"] in kinds),
    )


def unit_numbers(units: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """Return the units of a grid's cells, long [H * W]; a cell without one (below 0) is a unit of its own."""
    count = math.prod(shape)
    alone = torch.arange(count)
    if units is None:
        return alone
    flat = units.flatten().long()
    return torch.where(flat < 0, alone + int(flat.max()) + 1, flat)


def join_inputs(inputs: Sequence[BalanceInputs]) -> BalanceInputs:
    """Return the inputs of several pictures of one grid and the same sources as those of a batch."""
    first = inputs[0]
    axes = {"logits": 1, "confidences": 1}
    parts: dict[str, Any] = {
        name: torch.cat([getattr(one, name) for one in inputs], axes.get(name, 0))
        for name in BalanceInputs._fields[1:]
    }
    return first._replace(**parts)


def save_balance(net: BalanceNet, folder: Path, trained_on: Sequence[dict[str, Any]]) -> None:
    """Write a balance in float32, with a record of how it was made."""
    about = {"format": FORMAT, "trained_on": json.dumps(list(trained_on))}
    write_tensors(net.state_dict(), folder / FILE, about)
    load_balance.cache_clear()


@lru_cache(maxsize=4)
def load_balance(folder: Path = FOLDER, device: torch.device | str = "cpu") -> BalanceNet:
    """Load a balance, ready to run; the bundled one if no folder is named. The same one is returned again.

    Raises:
        ValueError: the folder has none of this version.
    """
    path = folder / FILE
    with reading(f"{str(path)!r} is not a saved balance", "install arr-coc again"):
        with safe_open(path, framework="pt") as file:
            stated = (file.metadata() or {}).get("format")
            if stated != FORMAT:
                raise ValueError(f"format {stated!r}, need {FORMAT!r}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        check_finite(tensors)
        with same_start():  # in float32, whatever the default
            net = BalanceNet()
        net.load_state_dict(tensors)
    return net.eval().requires_grad_(False).to(device)
