"""The allocation: the record of which visual tokens of one image were kept, and why.

T, H, W are the merged token grid, N = T*H*W its visual tokens, K the kept ones.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL.Image import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

from arr_coc.files.atomic import write_atomic
from arr_coc.files.drawing import figure, relevance_picture
from arr_coc.files.images import orientation_of

Grid = tuple[int, int, int]  # (T, H, W): frames (1 for an image), rows and columns of cells
TENSIONS: tuple[str, str, str] = ("compress", "exploit", "focus")
SCORERS = {
    "information": ("information", "what is inside a cell"),
    "perspectival": ("saliency", "what stands out"),
    "participatory": ("coupling", "what the question asks for"),
}
"""The three maps of a record in the order of its weights: name in files -> (name for people, meaning)."""
MAX_CELLS = 2**20  # of a grid: a picture of a gigapixel in cells of 32 px
MAX_EVIDENCE = 8  # boxes of evidence of one allocation
MIN_EVIDENCE = 0.05  # relevance of the best cell of such a box
MAX_ROUNDING = 0.25  # share by which the cells of a grid may be other than square for its size to say much
MAX_NOTE = 1000  # the most characters of the note of a record from a file
_FORMAT = "arr-coc allocation 1"


class Reason(IntEnum):
    """Why a token was kept. Saved records hold these values; 3, which older ones used, isn't given again."""

    RELEVANT = 0  # its rank is within the budget
    EXPLORED = 1  # it belongs to the share of the budget for coverage
    VOID = 2  # the image had no structure, so the cells of an even grid were kept
    ALL = 4  # every token was kept


def grid_positions(keep: Tensor, grid: tuple[int, int, int]) -> Tensor:
    """Return the grid coordinates (t, y, x) [K, 3] of flat indices [K] on a (T, H, W) grid."""
    _, h, w = grid
    return torch.stack((keep // (h * w), keep // w % h, keep % w), dim=-1)


class EvidenceBox(NamedTuple):
    """A group of kept cells that matter, as a box on the picture."""

    box: tuple[int, int, int, int]  # (x0, y0, x1, y1) in px
    score: float  # the highest relevance of its cells, in [0, 1]
    cells: int  # kept cells in the group
    step: int = 0  # of a clip, where that relevance is

    @property
    def text(self) -> str:
        """In words: "120,40-260,60 px (0.97)"."""
        x0, y0, x1, y1 = self.box
        return f"{x0},{y0}-{x1},{y1} px ({self.score:.2f})" + f" in step {self.step}" * (self.step > 0)


def evidence_text(boxes: Sequence[EvidenceBox]) -> str:
    """Boxes of evidence in words: "4 boxes, best first: 120,40-260,60 px (0.97), ..."; or "none"."""
    if not boxes:
        return "none"
    best = ", ".join(one.text for one in boxes[:3])
    return f"{len(boxes)} box{'es, best first' * (len(boxes) > 1)}: {best}{', ...' * (len(boxes) > 3)}"


@dataclass(frozen=True, eq=False)
class Allocation:
    """The record of which cells of one image were kept, and why; a ValueError if its tensors don't fit.

    `keep` long [K] has the kept flat indices, rising, `order` the same, most relevant first; `positions`
    [K, 3] and `reasons` [K] go with `keep`. `information`, `perspectival` (saliency), `participatory`
    (coupling) and `balanced` (relevance) are float [T, H, W] in [0, 1], `weights` [3] the gates of the first
    three, `tensions` in [0, 1] with 0.5 neutral. `note` is a sentence shown beside the result, or None if
    there is nothing to add.
    """

    grid: tuple[int, int, int]
    keep: Tensor
    order: Tensor
    positions: Tensor  # (K, 3), (t, y, x)
    information: Tensor
    perspectival: Tensor
    participatory: Tensor
    balanced: Tensor
    weights: Tensor
    tensions: dict[str, float]
    budget: int | float | str  # as requested: a count, a fraction or "auto"
    reasons: Tensor
    void: bool  # whether the image had no structure, so that an even grid was kept
    note: str | None = None

    def __post_init__(self) -> None:
        keep = self.keep
        if keep.ndim != 1 or not 0 < len(keep) <= self.total:
            raise ValueError(f"keep must hold 1..{self.total} indices, got shape {tuple(keep.shape)}")
        if bool((keep[1:] <= keep[:-1]).any()) or int(keep[0]) < 0 or int(keep[-1]) >= self.total:
            raise ValueError(f"keep must be rising and within 0..{self.total - 1}, got {keep.tolist()}")
        if not torch.equal(self.order.sort().values, keep):
            raise ValueError("order must hold the indices of keep, each once")
        if not torch.equal(self.positions, grid_positions(keep, self.grid)):
            raise ValueError(f"positions are not those of keep on a grid of {self.grid}")
        complete = self.reasons.shape == keep.shape and set(self.tensions) == set(TENSIONS)
        if not complete or self.weights.shape != (3,):
            raise ValueError(f"need a reason per kept token, 3 weights and the tensions {TENSIONS}")
        for name in (*SCORERS, "balanced"):
            shape = tuple(getattr(self, name).shape)
            if shape != tuple(self.grid):
                raise ValueError(f"{name} has shape {shape}, the grid is {self.grid}")

    def __repr__(self) -> str:
        size = "x".join(str(side) for side in self.grid)
        facts = f"{self.kept:,} of {self.total:,} cells, grid {size}, budget {self.budget}"
        return f"Allocation({facts}{', void' * self.void})"

    def _repr_html_(self) -> str:
        return figure([relevance_picture(self.balanced, self.mask())], [("cells", str(self))])

    @property
    def gates(self) -> dict[str, float] | None:
        """`weights` by name; None if all cells are kept or a caller's scores chose them."""
        # `weights` are placeholders then, all 1 or all 0.
        maps = torch.stack([getattr(self, name) for name in SCORERS])
        if bool((self.weights == 0).all()) or bool((self.weights == 1).all() and (maps == 1).all()):
            return None
        return dict(zip(SCORERS, self.weights.tolist(), strict=True))

    @property
    def gates_text(self) -> str:
        """The gates in words: "information 0.50, saliency 0.20, coupling 0.80"; "" if `gates` is None."""
        return ", ".join(f"{SCORERS[name][0]} {gate:.2f}" for name, gate in (self.gates or {}).items())

    @property
    def kept(self) -> int:
        return len(self.keep)

    @property
    def total(self) -> int:
        t, h, w = self.grid
        return t * h * w

    @property
    def selective(self) -> bool:
        """Whether cells were preferred to others: neither are all kept nor an even grid of them."""
        return not self.void and self.kept < self.total

    def mask(self) -> Tensor:
        """Return which tokens are kept, bool [T, H, W]."""
        flat = torch.zeros(self.total, dtype=torch.bool, device=self.keep.device)
        flat[self.keep] = True
        return flat.view(self.grid)

    def boxes(self, size: tuple[int, int] | Image) -> Tensor:
        """Return the kept cells as boxes in px, long [K, 4] of (x0, y0, x1, y1), on a picture of `size`.

        `size` is (width, height) of the upright picture, as `open_image` gives it, at any resolution; or the
        picture itself, as it was opened, which its EXIF data may turn: then the boxes are in its own px. With
        every cell kept the boxes cover the picture without gap or overlap. `positions[:, 0]` names the frame
        of each box. A ValueError for a size that is none, or that of the picture before it was turned.
        """
        if isinstance(size, Image):
            turn, stored = orientation_of(size), size.size
            return _as_stored(self.boxes(stored if turn < 5 else stored[::-1]), turn, stored)
        if (
            not isinstance(size, Sequence)
            or len(size) != 2
            or not all(isinstance(side, int) and side > 0 for side in size)
        ):
            raise ValueError(f"size {size!r} is not the width and height of a picture: give picture.size")
        if is_transposed(self.grid, size):
            raise ValueError(
                f"size {size[0]}x{size[1]} is not that of the upright picture, of {self.grid[2]} columns and "
                f"{self.grid[1]} rows of cells: give open_image(picture).size, or the picture itself"
            )
        _, rows, columns = self.grid
        width, height = size
        y, x = self.positions[:, 1], self.positions[:, 2]
        # Rounded up: pixel i lies in the cell i * cells // pixels, as in every picture that is drawn.
        corners = ((x, width, columns), (y, height, rows), (x + 1, width, columns), (y + 1, height, rows))
        return torch.stack([-(-at * pixels // cells) for at, pixels, cells in corners], dim=-1)

    def evidence(self, size: tuple[int, int] | Image) -> tuple[EvidenceBox, ...]:
        """Return the kept cells that matter, grouped into boxes in px of a picture of `size`, best first.

        `size` as in `boxes`. A cell matters if it was kept for its relevance, not for coverage, and is nearer
        to the highest relevance than to the usual one of the picture, the median. Cells that touch are a
        group, in a clip also those of neighbouring steps; MAX_EVIDENCE groups at most, none where nothing
        stands out or has a relevance of MIN_EVIDENCE. A ValueError for a size that is none.
        """
        boxes, relevance = self.boxes(size), self.relevance_of_kept()
        # Relevance is a probability where the coupling leads and none where saliency does, of which an even
        # background may have 0.5: so it is compared with the picture's own.
        highest, usual = float(relevance.max()), float(self.balanced.float().median())
        counted = (self.reasons == Reason.RELEVANT) | (self.reasons == Reason.ALL)
        matter = counted & (relevance >= (highest + usual) / 2)
        if highest <= usual:
            return ()
        groups = []
        for group in touching(self.positions[matter].tolist()):
            index = matter.nonzero().flatten()[group]
            best = index[relevance[index].argmax()]
            (x0, y0), (x1, y1) = boxes[index, :2].amin(0).tolist(), boxes[index, 2:].amax(0).tolist()
            score, step = float(relevance[best]), int(self.positions[best, 0])
            groups.append(EvidenceBox((x0, y0, x1, y1), score, len(group), step))
        groups = [one for one in groups if one.score >= MIN_EVIDENCE]
        return tuple(sorted(groups, key=lambda one: -one.score)[:MAX_EVIDENCE])

    def relevance_of_kept(self) -> Tensor:
        """Return the balanced relevance of each of `keep`, float [K]."""
        return self.balanced.flatten()[self.keep]

    def ranks(self) -> Tensor:
        """Return the rank of each of `keep` among all N by balanced relevance, from 1: long [K]."""
        # The inverse of the sorting permutation: cell -> its place in the order.
        by_rank = self.balanced.flatten().argsort(descending=True, stable=True)
        ranks = torch.empty_like(by_rank)
        ranks[by_rank] = torch.arange(1, self.total + 1, device=by_rank.device)
        return ranks[self.keep]

    def reason_text(self, i: int) -> str:
        """Return the reason why `keep[i]` was kept, in words, for example "rank 41 <= K 64"."""
        reason = Reason(int(self.reasons[i]))
        # Relevant tokens are the first of `order`, even if rounding has made ties of their relevance.
        relevant = reason == Reason.RELEVANT
        rank = int((self.order == self.keep[i]).nonzero() + 1 if relevant else self.ranks()[i])
        return {
            Reason.RELEVANT: f"rank {rank} <= K {self.kept}",
            Reason.EXPLORED: f"coverage, rank {rank} of {self.total}",
            Reason.VOID: f"even grid of {self.kept}: nothing in the image to prefer",
            Reason.ALL: f"all {self.total} tokens kept",
        }[reason]

    def iou(self, other: Allocation) -> float:
        """Intersection over union of the two kept sets, in [0, 1]; a ValueError if the grids differ."""
        if self.grid != other.grid:
            raise ValueError(f"cannot compare allocations on grids {self.grid} and {other.grid}")
        a, b = self.mask(), other.mask().to(self.keep.device)
        return float((a & b).sum() / (a | b).sum())

    def cpu(self) -> Allocation:
        """Return the same record with every tensor on the CPU."""
        moved = {k: v.cpu() for k, v in self._tensors().items()}
        return dataclasses.replace(self, **moved)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as a JSON-safe dictionary, tensors as nested lists; `save` is the exact form."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain |= {k: v.tolist() for k, v in self._tensors().items()}
        return plain | {"grid": list(self.grid)}

    def save(self, path: str | Path) -> None:
        """Write the record as one safetensors file (floats in float32), whole or not at all."""
        plain = {k: getattr(self, k) for k in ("grid", "tensions", "budget", "void")}
        plain |= {} if self.note is None else {"note": self.note}
        # Maps may be views of one tensor, which safetensors refuses: each is copied.
        whole = torch.contiguous_format
        tensors = {k: v.cpu().clone(memory_format=whole) for k, v in self._tensors().items()}
        about = {"format": _FORMAT, "plain": json.dumps(plain)}
        write_atomic(to_safetensors(tensors, about), Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Allocation:
        """Read a record written by `save`; raise ValueError for a file that is missing or no such record."""
        try:
            with safe_open(str(path), framework="pt") as file:
                meta = file.metadata() or {}
                tensors = {k: file.get_tensor(k) for k in file.keys()}
            if meta.get("format") != _FORMAT:
                raise ValueError(f"format {meta.get('format')!r}, need {_FORMAT!r}")
            return cls(**_checked(tensors, json.loads(meta.get("plain", "null"))))
        except (OSError, ValueError, RecursionError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(
                f"{path} is not a saved allocation ({reason}); write one with Allocation.save"
            ) from error

    def _tensors(self) -> dict[str, Tensor]:
        longs = {k: getattr(self, k) for k in _LONGS}
        return longs | {k: getattr(self, k).float() for k in _FLOATS}


def is_transposed(grid: Grid, size: tuple[int, int]) -> bool:
    """Return whether the cells of a grid are square on a picture of height x width px, and not on width x
    height.

    Grids of square cells are rounded, by up to a cell each way; nothing is known of small ones, and of those
    of a model that stretches pictures to a square.
    """
    _, rows, columns = grid
    across, down = (math.log(side * rows / (other * columns)) for side, other in (size, size[::-1]))
    rounding = 1 / rows + 1 / columns
    return rounding <= MAX_ROUNDING and abs(down) <= rounding < abs(across)


def _as_stored(boxes: Tensor, orientation: int, size: tuple[int, int]) -> Tensor:
    """Boxes of an upright picture on the one as its file has it, of `size`, with an EXIF orientation."""
    x, y = boxes[:, 0::2], boxes[:, 1::2]  # low and high of each
    if orientation >= 5:
        x, y = y, x
    if orientation in (2, 3, 7, 8):
        x = (size[0] - x).flip(1)
    if orientation in (3, 4, 6, 7):
        y = (size[1] - y).flip(1)
    return torch.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], dim=-1)


def touching(positions: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the connected groups of cells (t, y, x), as indices into `positions`; diagonal neighbours
    touch.
    """
    left = {tuple(cell): i for i, cell in enumerate(positions)}
    while left:
        (cell, index), *_ = left.items()
        del left[cell]
        group, waiting = [index], [cell]
        while waiting:
            around = product(*(range(at - 1, at + 2) for at in waiting.pop()))
            for near in [one for one in around if one in left]:
                group.append(left.pop(near))
                waiting.append(near)
        yield group


_LONGS = ("keep", "order", "positions", "reasons")
_FLOATS = (*SCORERS, "balanced", "weights")


def _checked(tensors: dict[str, Tensor], plain: Any) -> dict[str, Any]:
    kinds = dict.fromkeys(_LONGS, torch.int64) | dict.fromkeys(_FLOATS, torch.float32)
    if {name: tensor.dtype for name, tensor in tensors.items()} != kinds:
        raise ValueError(f"its tensors are not {', '.join(kinds)}")
    if not isinstance(plain, dict) or set(plain) - {"note"} != {"grid", "tensions", "budget", "void"}:
        raise ValueError("it does not have the fields grid, tensions, budget and void")
    grid, tensions, budget = plain["grid"], plain["tensions"], plain["budget"]
    if not isinstance(grid, list) or len(grid) != 3 or any(type(side) is not int for side in grid):
        raise ValueError("its grid is not three whole numbers")
    if tuple(tensors["information"].shape) != tuple(grid):  # before anything is computed with the sides
        raise ValueError(f"information has shape {tuple(tensors['information'].shape)}, not that of the grid")
    shares = list(tensions.values()) if isinstance(tensions, dict) else [None]
    if not all(type(share) in (int, float) and 0 <= share <= 1 for share in shares):
        raise ValueError("its tensions are not numbers from 0 to 1")
    if type(budget) not in (int, float, str) or type(plain["void"]) is not bool:
        raise ValueError("its budget is no count, fraction or text, or its void is no truth value")
    note = plain.get("note")
    if not (note is None or (isinstance(note, str) and len(note) <= MAX_NOTE and note.isprintable())):
        raise ValueError(f"its note is no line of at most {MAX_NOTE} characters")
    if wrong := [name for name in _FLOATS if not ((tensors[name] >= 0) & (tensors[name] <= 1)).all()]:
        raise ValueError(f"{wrong[0]} is not within 0 and 1")
    if not set(tensors["reasons"].flatten().tolist()) <= set(Reason):
        raise ValueError("it gives an unknown reason")
    return tensors | plain | {"grid": tuple(grid)}


def joined_notes(allocations: Iterable[Allocation]) -> str | None:
    """Return the notes of several allocations as one, each of their sentences once; None if there is none."""
    notes = [note for one in allocations if one.note for note in one.note.split("; ")]
    return "; ".join(dict.fromkeys(notes)) or None
