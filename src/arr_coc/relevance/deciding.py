"""Deciding which cells are kept: from cues to relevance per cell, and from relevance to an `Allocation`.

    LookedAt().cues(layer, grid, picture)      Cues of one picture and question; what it made is kept
    score_cells(layer, cues)                   Relevance per image, differentiable
    decide(layer, cues, grids, budgets)  Decision: an Allocation per image or clip
    best_kept(grid, scores, budget)      Allocation, by any scores

The images of a call stand in one list. Frames of a clip are scored one by one and decided together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from arr_coc.choose.allocation import TENSIONS, Allocation, Grid, Reason, grid_positions
from arr_coc.choose.attending import Budget, NonFiniteScores, compute_retention_mask, gate
from arr_coc.choose.budget import DEFAULT_BUDGET, count_cells, needed_cells
from arr_coc.choose.filters import Grid2D
from arr_coc.choose.layer import ARRCOCLayer, Relevance
from arr_coc.choose.rarity import rarity
from arr_coc.choose.texture import Channels, TextureCache, generate_texture_array
from arr_coc.guide.coupling import Coupling
from arr_coc.guide.guide import PICTURE_INPUTS, picture_inputs
from arr_coc.guide.trust import EXPLORE, SURE, doubt, guide_remark, wants_rarity
from arr_coc.relevance.balance import auto_map, inputs_of, join_inputs, load_balance, sources
from arr_coc.relevance.coverage import NO_STRUCTURE, CoverageRule
from arr_coc.relevance.source import PictureView
from arr_coc.video.temporal import Changes, relevance_over_time

T = TypeVar("T")

# Cells that "auto" keeps, as a multiple of those that the balance counts: without, 0.84 of the evidence of
# real pictures is kept with 38 % of their cells, where the guide decides alone.
SPARE = 1.6

OF_PICTURE = frozenset({"image", "text_evidence", "previous_frames"})
"""Inputs of channels that don't depend on the question, for an image of a session or step of a clip."""


class Cues(NamedTuple):
    """What the layer reads to score one image for its question: texture, words, and cells; a batch of one."""

    texture: Tensor  # [1, C, H, W]
    query: Tensor  # [1, L, D], word embeddings of the question
    query_mask: Tensor  # bool [1, L]
    # [1, N, D], the cells as encoded tokens or as a stem's features; None: neither is at hand
    vision: Tensor | None = None
    gestalt: Tensor | None = None  # [1, D], the mean token of a coarse view; None: that of `vision`
    # [1, H, W], logits of a coupling found elsewhere; None: the participatory scorer finds it
    coupling: Tensor | None = None
    guided: Coupling | None = None  # the guide's result, if the guide was run
    # [1, H, W] in [0, 1], how rare each cell's surroundings are; None where no question asks for that
    rarity: Tensor | None = None

    def relevance(self, layer: ARRCOCLayer) -> Relevance:
        """Return the relevance of the image's cells, a batch of one."""
        if self.guided is not None:
            return balanced(layer, [self])
        return layer.relevance(
            self.texture, self.query, self.query_mask, self.vision, self.gestalt, self.coupling
        )

    @property
    def shapes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The names and shapes of its tensors."""
        parts = self._asdict().items()
        return tuple((name, tuple(part.shape)) for name, part in parts if isinstance(part, Tensor))


@dataclass
class LookedAt:
    """What was made of one picture, for any question about it; each part is made when it is first needed.

    A record holds no pixels: methods take the `picture`, a function that returns it, float [3, h, w] in
    [0, 1], and call it only if something has to be made of it; without one, all that is needed was made.
    """

    view: PictureView | None = None  # as the source of relevance encodes it
    # what that source found, by question and grid
    couplings: dict[tuple[str, Grid2D], Coupling] = field(default_factory=dict, repr=False)
    # [1, C, H, W] of the last question, by channels and grid
    textures: dict[tuple[Channels, Grid2D], Tensor] = field(default_factory=dict, repr=False)
    # of channels, where some of them depend on the question
    cache: TextureCache = field(default_factory=partial(TextureCache, OF_PICTURE), repr=False)
    inputs: dict[str, Tensor] = field(default_factory=dict, repr=False)  # of channels: `picture_inputs`
    rarities: dict[Grid2D, Tensor] = field(default_factory=dict, repr=False)  # [1, H, W]; see `rarity`
    coarse: Tensor | None = field(default=None, repr=False)  # encoder features of a coarse view, [1, F, h, w]
    stems: dict[str | None, Tensor] = field(default_factory=dict, repr=False)  # [N, D], by coarse view
    maps: dict[str, Tensor] = field(default_factory=dict, repr=False)  # relevance [H, W], by question

    def cues(
        self,
        layer: ARRCOCLayer,
        grid: Grid2D,
        picture: Callable[[], Tensor] | None = None,
        query: Tensor | None = None,
        *,
        cells: Tensor | None = None,
        gestalt: Tensor | None = None,
        coupling: Tensor | None = None,
        guided: Coupling | None = None,
        rare: bool | None = None,
        inputs: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Cues:
        """Return what a layer reads about the picture and a question, in its dtype and on its device.

        Args:
            layer: That will score.
            grid: (H, W), the picture's cells.
            picture: See the class.
            query: Word embeddings [L, D] of the question; None: the guide alone has read it.
            cells: [N, D], encoded cells or a stem's.
            gestalt: [D], the mean token of a coarse view.
            coupling: Logits [H, W]; None: those of `guided`, the guide's findings, or the layer's own.
            guided: These findings, if the guide was used.
            rare: Add how rare each cell is; None: if `guided` says that the question asks for it.
            inputs: As in `texture`.
        """
        like = next(layer.parameters())
        words = like.new_zeros(1, layer.config.dim) if query is None else query
        mask = torch.ones(1, len(words), dtype=torch.bool, device=words.device)
        if coupling is None and guided is not None:
            coupling = guided.logits
        parts = [None if part is None else part[None].to(like) for part in (cells, gestalt, coupling)]
        rare = guided is not None and wants_rarity(guided) if rare is None else rare
        rarest = self.rarity(grid, picture).to(like) if rare else None
        texture = self.texture(layer, grid, picture, inputs)
        return Cues(texture, words[None], mask, *parts, guided, rarest)

    def texture(
        self,
        layer: ARRCOCLayer,
        grid: Grid2D,
        picture: Callable[[], Tensor] | None = None,
        inputs: Callable[[], Mapping[str, Any]] | None = None,
    ) -> Tensor:
        """Return the texture [1, C, H, W] of a layer's channels; what no question changes is made once.

        `inputs` returns what channels need or read beside the picture, print and basis; None: nothing.
        """
        key, like, wanted = (layer.config.channels, grid), next(layer.parameters()), layer.wanted_inputs
        if key not in self.textures or not wanted <= OF_PICTURE:
            assert picture is not None, "nothing is made of a picture that is gone"
            pixels = picture()
            if not PICTURE_INPUTS & wanted <= self.inputs.keys():
                self.inputs |= picture_inputs(layer.config.channels, pixels)
            own: dict[str, Any] = {**self.inputs, **({} if inputs is None else inputs())}
            if "basis" in wanted:
                own["basis"] = layer.basis
            used = {name: value for name, value in own.items() if name in wanted}
            cache = None if wanted <= OF_PICTURE else self.cache
            made = generate_texture_array(pixels[None], grid, layer.config.channels, **used, cache=cache)
            self.textures[key] = made.to(like)
        return self.textures[key].to(like)

    def rarity(self, grid: Grid2D, picture: Callable[[], Tensor] | None = None) -> Tensor:
        """Return how rare each cell's surroundings are in the picture, [1, H, W] in [0, 1); made once."""
        if grid not in self.rarities:
            assert picture is not None, "nothing is made of a picture that is gone"
            self.rarities[grid] = rarity(picture()[None], grid)
        return self.rarities[grid]

    @property
    def seen(self) -> PictureView:
        """The source's view, once it is made."""
        assert self.view is not None, "a source has to encode the picture first"
        return self.view

    def without_tokens(self) -> LookedAt:
        """Return a record for a model with other LoRAs; both keep what doesn't depend on its tokens."""
        return replace(self, textures={}, coarse=None, stems={})


def relevance_of(layer: ARRCOCLayer, cues: Sequence[Cues]) -> list[Relevance]:
    """Return the relevance of the cells of each image, as `Cues.relevance` does.

    Images scored by the guide alone are computed in one batch if their tensors have one shape.
    """
    scored: dict[int, Relevance] = {}
    together: dict[Hashable, list[int]] = {}
    for i, one in enumerate(cues):
        alone = one.vision is not None or one.gestalt is not None
        key = i if alone or one.guided is None else (one.shapes, one.guided.by_cell, sources(one.guided))
        together.setdefault(key, []).append(i)
    for group in together.values():
        own = [cues[i] for i in group]
        if len(own) == 1:
            scored[group[0]] = own[0].relevance(layer)
            continue
        maps = balanced(layer, own)
        for place, i in enumerate(group):
            one = {k: v[place : place + 1] for k, v in maps._asdict().items() if v is not None}
            scored[i] = Relevance(**one)
    return [scored[i] for i in range(len(cues))]


def balanced(layer: ARRCOCLayer, cues: Sequence[Cues]) -> Relevance:
    """Return the relevance of images of one grid that the same sources judged, as a batch.

    The maps of information and saliency are those of an untrained layer, the balance is the bundled one.
    """
    plain = layer.untrained() if layer.trained else layer
    texture, query, mask = (
        torch.cat([getattr(one, name) for one in cues]) for name in ("texture", "query", "query_mask")
    )
    rare = [one.rarity for one in cues if one.rarity is not None]
    couplings = torch.stack([_coupled(one) for one in cues]).to(texture)
    scores = plain.scores(texture, query, mask, None, couplings, torch.cat(rare) if rare else None)
    information, saliency, coupling = (one.float() for one in scores)
    guided = [_as_coupled(one, own) for one, own in zip(cues, coupling, strict=True)]
    each = [
        inputs_of(one, information[i : i + 1], saliency[i : i + 1], bool(rare))
        for i, one in enumerate(guided)
    ]
    weighed = load_balance(device=texture.device)(join_inputs(each))
    maps = torch.stack((information, saliency, weighed.participatory)).sigmoid()
    sure = [one.by_cell and one.confidence >= SURE for one in guided]
    gaps = torch.tensor(sure, device=texture.device)
    needed = SPARE * needed_cells(auto_map(weighed), weighed.gates, gaps)
    # A question about a place spends nothing on coverage, but where its source is in doubt.
    spread = torch.tensor([1.0 if one.general else doubt(one) for one in guided], device=texture.device)
    # Words scattered over a picture look like noise to the texture.
    printed = torch.tensor([one.printed for one in guided], device=texture.device)
    return Relevance(
        *maps,
        balanced=weighed.logits.sigmoid(),
        weights=weighed.gates,
        tensions=weighed.tensions,
        logits=weighed.logits,
        structured=plain.structured(texture) | printed,
        explore=EXPLORE * spread,
        needed=needed,
    )


def _coupled(cues: Cues) -> Tensor:
    """Return the logits [H, W] of what was found about an image."""
    assert cues.guided is not None
    return cues.guided.logits if cues.coupling is None else cues.coupling[0]


def _as_coupled(cues: Cues, logits: Tensor) -> Coupling:
    """Return what was found about an image, with the logits [H, W] that its cells are scored by.

    Those of a sum of sources are its parts'; others may have come since, such as a model's attention.
    """
    guided = cues.guided
    assert guided is not None
    own = guided.logits.to(logits)
    return guided if torch.equal(own, logits) else replace(guided, logits=logits, parts=())


@dataclass(frozen=True)
class Decision:
    """Which cells of each image and clip of one call are kept.

    Attributes:
        allocations: One per image or clip, tensors on the CPU.
        gates: The factor [N] of each cell, per image and frame; None: 1. In training it is 1 in the forward
            pass, and carries the gradient back to the scores.
        fallback: Whether deciding failed, so that all tokens are kept.
        couplings: What the guide found per image or clip; empty unless it judged each of them.
    """

    allocations: list[Allocation]
    gates: list[Tensor] | None = None
    fallback: bool = False
    couplings: tuple[Coupling, ...] = ()

    @property
    def coupling(self) -> Coupling | None:
        """What the guide found about the first image or clip; None if a trained layer decided."""
        return next(iter(self.couplings), None)

    @property
    def keep(self) -> list[Tensor]:
        """The kept cells, long [K_i], of each image and of each frame of the clips."""
        return [part for allocation in self.allocations for part in kept_of_frames(allocation)]


def score_cells(layer: ARRCOCLayer, cues: Sequence[Cues]) -> list[Relevance]:
    """Score how much each image's question needs each cell; raise NonFiniteScores for NaN or infinity."""
    maps = relevance_of(layer, cues)
    # One transfer from the device for all images.
    finite = torch.stack([relevance.balanced.isfinite().all() for relevance in maps]).tolist()
    if not all(finite):
        raise NonFiniteScores(f"the relevance of image {finite.index(False)} is not finite")
    return maps


def decide(
    layer: ARRCOCLayer,
    cues: Sequence[Cues],
    grids: Sequence[Grid],
    budgets: Sequence[Budget | None],
    changes: Sequence[Changes | None] = (),
    rule: CoverageRule | None = None,
    most: Sequence[int | None] = (),
) -> Decision:
    """Decide which cells of each image or clip are kept.

    `cues` and `grids` (1, H, W) have one entry per image and per frame of a clip; `budgets` (None: all
    cells), `changes` (None for an image) and `most` (None: no limit) one per image or clip. `rule` counts the
    cells for budgets that are a coverage. A budget that keeps more than `most` becomes `most`. Relevance that
    isn't finite raises `NonFiniteScores`, a budget above the number of cells ValueError.
    """
    frames = frame_counts(changes, len(cues))
    cues = share_most_confident_frame(cues, frames)
    maps = score_cells(layer, cues)
    visuals, spaces = over_time(maps, changes), whole_grids(grids, frames)
    surest = most_confident_frames(cues, frames)
    allocations = []
    rows = zip(_on_cpu(visuals), budgets, spaces, surest, most or [None] * len(spaces), strict=True)
    for relevance, budget, grid, one, limit in rows:
        if budget is None:
            allocations.append(_noted(everything_kept(grid, relevance), one))
            continue
        if rule is None:
            kept = _noted(layer.allocate(relevance, budget, grid)[0], one)
        else:
            kept = _promised(layer, relevance, budget, grid, one, rule)
        if limit is not None and kept.kept > limit:
            kept = _noted(layer.allocate(relevance, limit, grid)[0], one)
        allocations.append(kept)
    couplings = _couplings(surest)
    relevances = [relevance.balanced.flatten() for relevance in visuals]  # (N,) each
    if not any(relevance.requires_grad for relevance in relevances):
        return Decision(allocations, couplings=couplings)
    gates = [gate(relevance) for relevance in relevances]
    parts = [part for one, count in zip(gates, frames, strict=True) for part in one.view(count, -1).unbind(0)]
    return Decision(allocations, parts, couplings=couplings)


def weigh(
    layer: ARRCOCLayer,
    cues: Sequence[Cues],
    grids: Sequence[Grid],
    changes: Sequence[Changes | None] = (),
) -> Decision:
    """Decide by which factor to multiply each cell, with all of them kept; arguments as of `decide`."""
    frames = frame_counts(changes, len(cues))
    cues = share_most_confident_frame(cues, frames)
    maps = score_cells(layer, cues)
    visuals, spaces = stacked(maps, frames), whole_grids(grids, frames)
    kept = [everything_kept(grid, relevance) for grid, relevance in zip(spaces, visuals, strict=True)]
    gates = [relevance.balanced.flatten() for relevance in maps]
    return Decision(kept, gates, couplings=_couplings(most_confident_frames(cues, frames)))


def frame_counts(changes: Sequence[Changes | None], images: int) -> tuple[int, ...]:
    """Return how many pictures each image or clip consists of, 1 for a still; `changes` as of `decide`."""
    return tuple(1 if one is None else len(one.cuts) for one in changes) or (1,) * images


def groups(values: Sequence[T], frames: Sequence[int]) -> list[Sequence[T]]:
    """Split a list with one value per picture into a list per image or clip."""
    ends = list(accumulate(frames))
    return [values[end - count : end] for end, count in zip(ends, frames, strict=True)]


def whole_grids(grids: Sequence[Grid], frames: Sequence[int]) -> list[Grid]:
    """Return the grids (T, H, W) of images and clips, from the grids (1, H, W) of images and frames."""
    spaces = []
    for group in groups(grids, frames):
        if len(set(group)) > 1:
            raise ValueError(f"the frames of a clip have grids {sorted(set(group))}: scale them to one size")
        spaces.append((sum(t for t, _, _ in group), *group[0][1:]))
    return spaces


def kept_of_frames(allocation: Allocation) -> list[Tensor]:
    """Return the kept cells of each frame, long [K_t], ascending, numbered within the frame."""
    frames, height, width = allocation.grid
    frame = allocation.keep // (height * width)
    return [allocation.keep[frame == t] - t * height * width for t in range(frames)]


def stacked(maps: Sequence[Relevance], frames: Sequence[int]) -> list[Relevance]:
    """Return the relevance of images and clips; a clip's maps are those of its frames, stacked."""
    return [_under(group) if len(group) > 1 else group[0] for group in groups(maps, frames)]


def _under(group: Sequence[Relevance]) -> Relevance:
    """Return the relevance of a clip: the maps of its frames, stacked."""
    parts: dict[str, Tensor] = {}
    for name in ("information", "perspectival", "participatory", "balanced", "logits"):
        parts[name] = torch.cat([getattr(one, name) for one in group], dim=1)
    for name in ("weights", "tensions", "explore", "needed"):
        values = [getattr(one, name) for one in group]
        if values[0] is not None:
            parts[name] = torch.stack(values).mean(0)
    if group[0].structured is not None:
        parts["structured"] = torch.stack(
            [one.structured for one in group if one.structured is not None]
        ).any(0)
    return Relevance(**parts)


def over_time(maps: Sequence[Relevance], changes: Sequence[Changes | None]) -> list[Relevance]:
    """Return the relevance of images unchanged, that of clips adjusted for time (`relevance_over_time`)."""
    frames = frame_counts(changes, len(maps))
    visuals = stacked(maps, frames)
    for i, (one, count) in enumerate(zip(changes, frames, strict=bool(changes))):
        if one is None or count == 1:
            continue
        relevance = visuals[i]
        logits = relevance_over_time(relevance.logits[0].unflatten(0, (count, -1)), one)
        flat = logits.flatten(0, 1)[None].to(relevance.logits)
        needed = None if relevance.needed is None else needed_cells(flat, relevance.weights)
        structured = relevance.structured
        if structured is not None and not bool(one.new.all()):
            # Repeated cells would be kept evenly if the clip counted as void.
            structured = torch.ones_like(structured)
        visuals[i] = relevance._replace(
            logits=flat, balanced=flat.sigmoid(), needed=needed, structured=structured
        )
    return visuals


def share_most_confident_frame(cues: Sequence[Cues], frames: Sequence[int]) -> Sequence[Cues]:
    """Return the frames' `Cues`; all frames of a clip get the guide's findings from its most confident frame.

    Each frame keeps its own logits.
    """
    if max(frames, default=1) == 1:
        return cues
    together: list[Cues] = []
    for group, surest in zip(groups(cues, frames), most_confident_frames(cues, frames), strict=True):
        if surest.guided is None:
            together += group
            continue
        couplings = [one.guided for one in group if one.guided is not None]
        same = [
            replace(surest.guided, logits=one.logits, printed=one.printed, parts=one.parts, units=one.units)
            for one in couplings
        ]
        together += [one._replace(guided=guided) for one, guided in zip(group, same, strict=True)]
    return together


def most_confident_frames(cues: Sequence[Cues], frames: Sequence[int]) -> list[Cues]:
    """Return the cues of each clip's frame in which the guide is most confident; the first without guide."""
    return [
        max(group, key=lambda one: 0.0 if one.guided is None else one.guided.confidence)
        for group in groups(cues, frames)
    ]


def _couplings(cues: Sequence[Cues]) -> tuple[Coupling, ...]:
    couplings = tuple(one.guided for one in cues if one.guided is not None)
    return couplings if len(couplings) == len(cues) else ()


def _noted(allocation: Allocation, cues: Cues) -> Allocation:
    if cues.guided is None or not allocation.selective:
        return allocation
    return replace(allocation, note=guide_remark(cues.guided, cues.rarity))


def _promised(
    layer: ARRCOCLayer, relevance: Relevance, budget: Budget, grid: Grid, cues: Cues, rule: CoverageRule
) -> Allocation:
    """Return the allocation for a coverage, with a note if nothing can be promised."""
    doubt = rule.doubt(cues.guided)
    if doubt is None:  # the sets that were calibrated are those of the best cells alone
        relevance = relevance._replace(explore=torch.zeros(1))
    allocation = layer.allocate(relevance, rule.cells(relevance.logits, cues.guided), grid)[0]
    if allocation.void:
        doubt = NO_STRUCTURE
    noted = _noted(replace(allocation, budget=budget), cues)
    if doubt is None or noted.kept == noted.total:
        return noted
    return replace(noted, note="; ".join(filter(None, (noted.note, rule.note(doubt)))))


def _on_cpu(maps: Sequence[Relevance]) -> list[Relevance]:
    """Move relevance to the CPU, without gradient, in one transfer."""
    named = [{k: v for k, v in relevance._asdict().items() if v is not None} for relevance in maps]
    parts = [part for one in named for part in one.values()]
    flat = torch.cat([part.detach().flatten().float() for part in parts]).cpu()
    fetched = iter(flat.split([part.numel() for part in parts]))
    # The dtypes return: `structured` is bool.
    return [
        Relevance(**{k: next(fetched).view(v.shape).to(v.dtype) for k, v in one.items()}) for one in named
    ]


def everything_kept(grid: Grid, relevance: Relevance | None = None) -> Allocation:
    """Return an allocation that keeps all cells of an image, with the maps of `relevance` (None: 1)."""
    keep = torch.arange(grid[0] * grid[1] * grid[2])
    ones = torch.ones(grid)
    maps = {name: ones for name in ("information", "perspectival", "participatory", "balanced")}
    weights, tensions, order = torch.ones(3), torch.full((3,), 0.5), keep
    if relevance is not None:
        maps = {name: getattr(relevance, name).detach().float().cpu().view(grid) for name in maps}
        weights = relevance.weights[0].detach().float().cpu()
        tensions = relevance.tensions[0].detach().cpu()
        order = maps["balanced"].flatten().argsort(descending=True, stable=True)
    return Allocation(
        grid=grid,
        keep=keep,
        order=order,
        positions=grid_positions(keep, grid),
        weights=weights,
        tensions=dict(zip(TENSIONS, tensions.tolist(), strict=True)),
        budget=1.0,
        reasons=torch.full_like(keep, int(Reason.ALL)),
        void=False,
        information=maps["information"],
        perspectival=maps["perspectival"],
        participatory=maps["participatory"],
        balanced=maps["balanced"],
    )


def best_kept(grid: Grid, scores: Tensor, budget: Budget | None = None) -> Allocation:
    """Return the allocation that keeps the cells with the highest scores, [T, H, W] or [N]; of ties the
    first.

    `budget` is a count, a fraction, "auto" or None for at most 273. The allocation's `balanced` map is the
    scores scaled to [0, 1]; its other three maps are 0. Scores that are NaN or infinite raise
    `NonFiniteScores`; a wrong number of them, or a bad budget, ValueError.
    """
    total = grid[0] * grid[1] * grid[2]
    if scores.numel() != total:
        raise ValueError(f"{scores.numel()} scores don't fit a grid of {grid}: give one for each cell")
    flat = scores.detach().float().cpu().flatten()
    low, high = flat.min(), flat.max()
    balanced = (flat - low) / (high - low).clamp_min(torch.finfo(flat.dtype).tiny)
    count = count_cells(budget, balanced[None])[0]
    keep = compute_retention_mask(flat, count).nonzero().flatten()
    nothing = torch.zeros(grid)
    return Allocation(
        grid=grid,
        keep=keep,
        order=flat.argsort(descending=True, stable=True)[:count],
        positions=grid_positions(keep, grid),
        information=nothing,
        perspectival=nothing,
        participatory=nothing,
        balanced=balanced.view(grid),
        weights=torch.zeros(3),
        tensions=dict.fromkeys(TENSIONS, 0.5),
        budget=DEFAULT_BUDGET if budget is None else budget,
        reasons=torch.full_like(keep, int(Reason.RELEVANT)),
        void=False,
    )
