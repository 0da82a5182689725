"""The layer: texture, knowing, balancing and attending joined in one module.

    image -> texture -> three maps -> balanced map -> kept cells          `forward`
                        `relevance` (differentiable)   `allocate`

It has 20 to 100 thousand learnable parameters at any language-model width (`preset="linear"`: about a
hundred). Construction is deterministic and leaves the global random state alone; untrained, the layer is the
documented fixed mixture of `balancing` over the untrained scorers of `knowing`. No image ever influences
another of its batch.

The layer is small and stays in float32: `half()`, `bfloat16()` and `to(dtype)`, of it or of a module that
holds it, change no dtype in it. Its inputs may have any floating dtype. It depends on no model: `seam`
carries its decision into one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from arr_coc.choose.allocation import TENSIONS, Allocation, grid_positions
from arr_coc.choose.attending import (
    AUTO_RANGE,
    DEFAULT_BUDGET,
    Budget,
    TokenAllocator,
    enough_cells,
    gate,
    has_structure,
    parse_budget,
    spent_tokens,
)
from arr_coc.choose.balancing import AdaptiveTensionBalancer
from arr_coc.choose.knowing import (
    POOLINGS,
    PRESETS,
    InformationScorer,
    ParticipatoryScorer,
    PerspectivalScorer,
    pool_query,
    same_start,
)
from arr_coc.choose.texture import CHANNEL_GROUPS, Basis, channel_groups, generate_texture_array
from arr_coc.files.atomic import write_atomic
from arr_coc.files.paths import CONFIG_NAME, shorten
from arr_coc.files.saved import (
    PICKLES,
    check_finite,
    check_records,
    make_folder,
    read_settings,
    reading,
    write_tensors,
)

# The configuration of an `ARRCOCLayer`, as a frozen record that is saved beside the weights.

_RETIRED: dict[str, Any] = {
    "candidates": None,
    "scorers": ["information", "perspectival", "participatory"],
    "balancer": "policy",
    "tokens": True,
}
"""Fields of earlier versions, with the one value of each that is what every layer does now."""


CELL = 32
"""Pixels per side of a cell where nobody says otherwise: Qwen3-VL's 16-px patches, merged 2x2."""


@dataclass(frozen=True)
class ARRCOCConfig:
    """The shape and the defaults of an `ARRCOCLayer`; JSON-safe by `to_dict` and `from_dict`.

    Attributes:
        dim: D, width of the language model's word embeddings and of its visual tokens.
        channels: Texture preset (mvp13, fast13, full20, full40) or a list of channel groups.
        preset: "net", or "linear": weighted sums, about a hundred parameters.
        rank: Rank of the coupling over all heads; None is what the parameters allow.
        heads: Heads of the coupling.
        explore: Share of the budget spent on coverage, 0 to 0.5.
        budget: Tokens kept unless a call says otherwise: a count, a fraction or "auto".
        pooling: How the balancer reads the question: "mean", "last" or "learned".
        void: Whether images without structure are sampled by an even grid.

    Raises:
        ValueError: a field is out of range; the message names it and its value.
    """

    dim: int
    channels: str | tuple[str, ...] = "mvp13"
    preset: str = "net"
    rank: int | None = None
    heads: int = 4
    explore: float = 0.0
    budget: Budget = DEFAULT_BUDGET
    pooling: str = "mean"
    void: bool = True

    def __post_init__(self) -> None:
        """Check every field; lists become tuples."""
        if not isinstance(self.channels, str):
            object.__setattr__(self, "channels", tuple(self.channels))
        channel_groups(self.channels)
        parse_budget(self.budget)
        TokenAllocator(self.explore)
        for name in ("dim", "heads", "rank"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} must be a positive whole number, got {value!r}")
        if not isinstance(self.void, bool):
            raise ValueError(f"void must be True or False, got {self.void!r}")
        if self.preset not in PRESETS:
            raise ValueError(f"unknown preset {self.preset!r}; choose one of {PRESETS}")
        if self.pooling not in POOLINGS:
            raise ValueError(f"unknown pooling {self.pooling!r}; choose one of {POOLINGS}")
        if self.rank is not None and self.rank % self.heads:
            raise ValueError(f"rank {self.rank} must be a multiple of heads {self.heads}")

    def to_dict(self) -> dict[str, Any]:
        """The fields as a JSON-safe dictionary."""
        data = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ARRCOCConfig:
        """The configuration that `to_dict` wrote, of this version or an earlier one.

        Raises:
            ValueError: a field is unknown, `dim` is missing, or a field that is no longer one differs from
                what every layer does now.
        """
        for name, default in _RETIRED.items():
            if data.get(name, default) != default:
                raise ValueError(
                    f"{name} is {data[name]!r}, but this setting is retired and every layer does as with "
                    f"{default!r}: train this allocator again (an ablation: with runs/ablation.py), or take "
                    f"{name} out of its settings to read its weights as those of a whole layer"
                )
        data = {name: value for name, value in data.items() if name not in _RETIRED}
        names = {f.name for f in dataclasses.fields(cls)}
        if "dim" not in data or not set(data) <= names:
            raise ValueError(f"not an ARRCOCConfig: need dim, and only {sorted(names)}; got {sorted(data)}")
        return cls(**data)


# Files of the layer: its weights and settings in an allocator folder, read and written without any model.
#
#     arr_coc_config.json    the layer's configuration, and the base model that it was trained for
#     arr_coc.safetensors    its weights
#     basis.safetensors      the basis of its channels "components", if it reads them
#
# Only safetensors are ever read. Whatever can't be read is a ValueError of one line that names the file and
# the
# remedy. Every file is written whole or not at all (`write_atomic`, `write_tensors`).

WEIGHTS_NAME = "arr_coc.safetensors"
BASIS_NAME = "basis.safetensors"
DIGEST = "weights_sha256"
"""The setting that says which weights an allocator's settings were saved with; older ones lack it."""


def read_layer(folder: Path) -> ARRCOCLayer:
    """Read the layer of an allocator folder, on the CPU; strict.

    Raises:
        ValueError: no settings; weights missing, pickled or of other shapes; a damaged basis; channel groups
            that no imported module registers.
    """
    settings, path = read_settings(folder), folder / WEIGHTS_NAME
    if not path.is_file():
        pickles = [file.name for pattern in PICKLES for file in folder.glob(pattern)]
        hint = f" (it has {pickles[0]}, but pickles are never loaded: convert them)" if pickles else ""
        raise ValueError(
            f"the allocator {str(folder)!r} has no {WEIGHTS_NAME}{hint}; save it again with save_pretrained"
        )
    if own := _own_groups(settings["layer"]):
        raise ValueError(
            f"the allocator {str(folder)!r} reads channel groups of a module that isn't imported: "
            f"{', '.join(map(shorten, own))}; import it first (arr-coc --import MODULE ...)"
        )
    with reading(
        f"the weights in {str(path)!r} don't fit {CONFIG_NAME}",
        "save the allocator again with save_pretrained",
    ):
        config, weights = ARRCOCConfig.from_dict(settings["layer"]), load_file(path)
        most = max((max(value.shape, default=0) for value in weights.values()), default=0)
        for name in ("dim", "heads", "rank"):
            if (getattr(config, name) or 0) > most:
                raise ValueError(f"{name} is {getattr(config, name)}, and no weight is that large")
        check_finite(weights)
        layer = ARRCOCLayer(config)
        layer.load_state_dict(weights, strict=True)
        if settings.get(DIGEST, digest := _digest(path)) != digest:
            raise ValueError("they are of another save, or somebody is saving there now")
    layer.trained = bool(settings.get("trained", True))
    layer.trained_on = check_records(settings.get("trained_on", ()))
    if (folder / BASIS_NAME).is_file():
        layer.basis = Basis.load(folder / BASIS_NAME)
    return layer


def _own_groups(layer: Any) -> list[str]:
    """The channel groups of a layer's settings that nothing has registered."""
    names = layer.get("channels") if isinstance(layer, dict) else None
    listed = names if isinstance(names, list) else []
    return [name for name in listed if isinstance(name, str) and name not in CHANNEL_GROUPS]


def _digest(path: Path) -> str:
    """A digest of a file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_layer(layer: ARRCOCLayer, folder: Path, base: dict[str, Any]) -> None:
    """Write a layer and its settings.

    Args:
        layer: the learned part.
        folder: made if it is missing.
        base: base_model, base_revision, base_model_type, base_dim.

    Raises:
        ValueError: the folder can't be made.
    """
    make_folder(folder)
    write_tensors(layer.state_dict(), folder / WEIGHTS_NAME)
    digest = _digest(folder / WEIGHTS_NAME)
    settings = {"layer": layer.config.to_dict(), "trained": layer.trained, **base, DIGEST: digest}
    if layer.trained_on:
        settings = {"trained_on": layer.trained_on, **settings}
    if layer.basis is not None:
        layer.basis.save(folder / BASIS_NAME)
    write_atomic((json.dumps(settings, indent=2) + "\n").encode(), folder / CONFIG_NAME)


Watch = Callable[[str], AbstractContextManager[Any]]
"""What takes the time of a block: from the name of a stage to a context."""


def unwatched(stage: str) -> AbstractContextManager[None]:
    """The `Watch` of nobody."""
    return nullcontext()


ENOUGH = 0.98
"""Share of the evidence cells that a learned budget must hold; all of them where there are under fifty."""


class Relevance(NamedTuple):
    """The relevance of every cell: three maps and their balance, each [B, H, W] in [0, 1].

    `logits` is the balanced map before the sigmoid, for losses; `weights` and `tensions` are [B, 3];
    `structured` (bool [B]) says whether the image has structure, None where that was not measured; `explore`
    [B] is the neutral share of coverage where the config's does not hold, `needed` [B] the cells that "auto"
    spends at the neutral tension where they are not those that the balanced map is worth.
    """

    information: Tensor
    perspectival: Tensor
    participatory: Tensor
    balanced: Tensor
    weights: Tensor
    tensions: Tensor
    logits: Tensor
    structured: Tensor | None = None
    explore: Tensor | None = None
    needed: Tensor | None = None


class ARRCOCOutput(NamedTuple):
    """The decisions of a batch, padded with zeros to the largest K.

    tokens [B, K, D] (None without vision tokens), positions [B, K, 2] (y, x), budgets [B, K] (the relevance
    of each kept token), mask [B, K] (True at real entries), and the allocation record of each image.
    """

    tokens: Tensor | None
    positions: Tensor
    budgets: Tensor
    mask: Tensor
    allocations: list[Allocation]

    @property
    def allocation(self) -> Allocation:
        """The record of the first image."""
        return self.allocations[0]


class Prior(NamedTuple):
    """What another source of relevance knows of one image and its question, from which the balancer starts.

    Attributes:
        start: [6], gates and tensions before the sigmoid, see `AdaptiveTensionBalancer.mix`.
        explore: share of the budget for coverage at the neutral exploit tension, in [0, 1].
        structured: whether the image surely holds something to prefer, whatever its texture says.
    """

    start: Tensor
    explore: float
    structured: bool


class ARRCOCLayer(nn.Module):
    """The learned part of ARR-COC: three scorers, the balancer and the allocator as one module."""

    def __init__(self, config: ARRCOCConfig) -> None:
        """Build the untrained layer; `trained` tells whether weights were loaded since.

        `trained_on` has what is on record of how they were made, see `arr_coc.files.saved`; `basis` the
        components of its model's encoder, for layers that read them.
        """
        super().__init__()
        self.config = config
        c = config
        with same_start():
            self.information = InformationScorer(c.channels)
            self.perspectival = PerspectivalScorer(c.channels, c.preset)
            self.participatory = ParticipatoryScorer(c.channels, c.dim, c.rank, c.heads, c.preset)
            self.balancer = AdaptiveTensionBalancer(c.dim, preset=c.preset)
        self.allocator = TokenAllocator(c.explore)
        self.trained = False
        self.trained_on: tuple[dict[str, Any], ...] = ()
        self.basis: Basis | None = None
        self._plain: dict[torch.device, ARRCOCLayer] = {}  # in a dict, so that torch takes it for no part

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ARRCOCLayer:
        """Move parameters and buffers as in torch, but cast none: scores in half precision have ties."""

        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move, recurse)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load weights as in torch, and mark the layer as trained."""
        result = super().load_state_dict(state_dict, strict=strict, assign=assign)
        self.trained = True
        return result

    def untrained(self) -> ARRCOCLayer:
        """A layer like this one to which nothing was taught, for evaluation: the same one each time.

        Building it draws from a generator that all threads share, which is no work for every question.
        """
        device = next(self.parameters()).device
        if (plain := self._plain.get(device)) is None:
            plain = self._plain.setdefault(device, ARRCOCLayer(self.config).to(device).eval())
        plain.basis = self.basis
        return plain

    def relevance(
        self,
        texture: Tensor,
        query: Tensor,
        query_mask: Tensor,
        vision: Tensor | None = None,
        gestalt: Tensor | None = None,
        coupling: Tensor | None = None,
        prior: Prior | None = None,
        watch: Watch = unwatched,
    ) -> Relevance:
        """The relevance of every cell, with gradient to all parameters but those of `compress` and `exploit`.

        Args:
            texture: [B, C, H, W] from `generate_texture_array` with the config's channels.
            query: [B, L, D], word embeddings of the question.
            query_mask: Bool [B, L], True at content tokens (no padding, template or special tokens).
            vision: [B, H*W, D] in raster order, encoded tokens or a stem's vectors in their place, or None
                before encoding.
            gestalt: [B, D], the mean token of a coarse view, for the balancer; None: that of `vision`.
            coupling: [B, H, W], logits of a coupling with the question from elsewhere (a model's own
                attention, the guide); None: the participatory scorer's.
            prior: where the balancer starts for the one picture of the batch and the question; None: its own
                start. Where it is given nothing that the layer has learned counts.
            watch: what takes the time of the stages "scoring" and "balancing"; nobody does by default.
        """
        if prior is not None and self.trained:
            plain = self.untrained()
            return plain.relevance(texture, query, query_mask, vision, gestalt, coupling, prior, watch)
        with watch("scoring"):
            scores = self.scores(texture, query, query_mask, vision, coupling)
        with watch("balancing"):
            return self.balance(scores, texture, query, query_mask, vision, gestalt, prior)

    def balance(
        self,
        scores: Sequence[Tensor],
        texture: Tensor,
        query: Tensor,
        query_mask: Tensor,
        vision: Tensor | None = None,
        gestalt: Tensor | None = None,
        prior: Prior | None = None,
    ) -> Relevance:
        """The relevance of every cell from the logits of the three scorers, [B, H, W] each.

        The other arguments are those of `relevance`.
        """
        logit_maps = torch.stack(tuple(scores), dim=1)  # (B, 3, H, W)
        weight = self.participatory.importances(query) if self.config.pooling == "learned" else None
        pooled = pool_query(query, query_mask, self.config.pooling, importance=weight)
        if gestalt is None and vision is not None:
            gestalt = vision.float().mean(1)
        start = None if prior is None else prior.start
        logits, weights, tensions = self.balancer.mix(logit_maps, pooled, gestalt, start)
        explore = needed = None
        if prior is not None:
            explore = logit_maps.new_full((len(logit_maps),), prior.explore)
            needed = enough_cells(logits)  # of the balanced map: the prior's own does not always lead
        maps = logit_maps.sigmoid().unbind(1)
        structured = has_structure(texture, self.config.channels)
        if prior is not None and prior.structured:
            # Words scattered all over a picture are as noise to the texture.
            structured = torch.ones_like(structured)
        return Relevance(*maps, logits.sigmoid(), weights, tensions, logits, structured, explore, needed)

    def scores(
        self,
        texture: Tensor,
        query: Tensor,
        query_mask: Tensor,
        vision: Tensor | None = None,
        coupling: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The logits of the information, perspectival and participatory scorers, [B, H, W] each.

        Arguments are those of `relevance`.
        """
        if coupling is None:
            coupling = self.participatory.logits(texture, query, query_mask, vision)
        return self.information.logits(texture), self.perspectival.logits(texture), coupling

    def voids(self, relevance: Relevance) -> Tensor | None:
        """Which images are sampled by an even grid, bool [B]: those without structure.

        A peak of the participatory map does not save them: where there is nothing to find, a question about
        shapes finds some. Print that the guide can read does. None where the config says `void=False`, or
        structure was not measured.
        """
        if not self.config.void or relevance.structured is None:
            return None
        return ~relevance.structured

    def allocate(
        self,
        relevance: Relevance,
        budget: Budget | None = None,
        grid: tuple[int, int] | tuple[int, int, int] | None = None,
    ) -> list[Allocation]:
        """The cells that are kept of each image; one frozen record per image.

        Args:
            relevance: The result of `relevance`.
            budget: A count, a fraction or "auto"; None is the config's, clamped to N if that is the default
                count.
            grid: (H, W), or (T, H, W) where frames lie under each other in the maps; None is that of the
                maps.

        Raises:
            NonFiniteScores: a map is NaN or infinite.
            ValueError: the budget is invalid or exceeds N, or the grid does not fit the maps.
        """
        full = _whole_grid(grid, relevance.balanced)
        requested = parse_budget(self.config.budget if budget is None else budget)
        clamped = budget is None and requested == DEFAULT_BUDGET
        tensions, weights = relevance.tensions.detach(), relevance.weights.detach().float()
        counted = requested == "auto" and relevance.needed is None  # of a map in [0, 1] alone
        chosen = self.allocator(
            relevance.balanced if counted else relevance.logits,  # logits rank what saturates
            None if clamped else requested,
            compress=tensions[:, 0],
            exploit=tensions[:, 1],
            void=self.voids(relevance),
            explore=relevance.explore,
            needed=relevance.needed,
        )
        maps = torch.stack(relevance[:4]).detach().float().unflatten(2, full[:2])  # (4, B, T, H, W)
        return [
            Allocation(
                grid=full,
                keep=s.keep,
                order=s.order,
                positions=grid_positions(s.keep, full),
                information=maps[0, i],
                perspectival=maps[1, i],
                participatory=maps[2, i],
                balanced=maps[3, i],
                weights=weights[i],
                tensions=dict(zip(TENSIONS, tensions[i].tolist(), strict=True)),
                budget=requested,
                reasons=s.reasons,
                void=s.void,
            )
            for i, s in enumerate(chosen)
        ]

    @staticmethod
    def budget_loss(relevance: Relevance, evidence: Tensor, margin: float = 1.5) -> Tensor:
        """The loss of the "auto" budget: squared doublings between tokens spent and needed, mean over rows.

        It teaches the compress tension alone: the policy net gets a gradient, the scorers get none. The
        target of a row is `margin` times the number of best cells that hold ENOUGH of its evidence, within
        AUTO_RANGE; without evidence it is the least of that range. Where "auto" meets the target because its
        range ends there, nothing is to be learned: five effective cells that get 64 tokens need not claim 64.

        Args:
            relevance: The result of `relevance`, with its graph.
            evidence: Bool [B, H, W], cells that hold what the answer needs.
            margin: Target over the tokens needed, above 0.

        Raises:
            ValueError: the evidence does not fit the maps, or the margin is not above 0.
        """
        if evidence.shape != relevance.balanced.shape:
            shape = tuple(relevance.balanced.shape)
            raise ValueError(f"evidence {tuple(evidence.shape)} must have the shape of the maps, {shape}")
        if not margin > 0:
            raise ValueError(f"margin {margin} must be above 0; 1.0 asks for just what is needed")
        ranked = relevance.logits.detach().flatten(1).argsort(dim=1, descending=True, stable=True)
        reached = evidence.flatten(1).gather(1, ranked).cumsum(1)  # (B, N), evidence in the best 1 to N cells
        needed = (reached < ENOUGH * reached[:, -1:]).sum(1) + 1
        low, high = (min(bound, ranked.shape[1]) for bound in AUTO_RANGE)
        target = (margin * needed).clamp(low, high)
        # Not `expected_tokens`: its clamp would stop the gradient.
        spent = spent_tokens(relevance.balanced.detach().float().flatten(1), relevance.tensions[:, 0])
        settled = spent.clamp(low, high) == target
        return (spent / target).log2().masked_fill(settled, 0.0).square().mean()

    def forward(
        self,
        vision_embeds: Tensor | None,
        query_embeds: Tensor,
        image: Tensor,
        grid: tuple[int, int] | None = None,
        query_mask: Tensor | None = None,
        budget: Budget | None = None,
        texture_inputs: Mapping[str, Any] | None = None,
    ) -> ARRCOCOutput:
        """Scores, choice and gathered tokens of a batch of images.

        Args:
            vision_embeds: [B, H*W, D] in raster order, or None before encoding.
            query_embeds: [B, L, D], word embeddings of the question.
            image: [B, 3, h, w] in [0, 1].
            grid: (H, W); None is one cell per 32 px.
            query_mask: Bool [B, L]; None takes every token.
            budget: As in `allocate`.
            texture_inputs: What the channels need or read beside the image, by the names of
                `generate_texture_array`'s optional arguments.

        Returns:
            `ARRCOCOutput`. Kept tokens are unchanged in value and carry gradient to the scores through
            `gate`.

        Raises:
            ValueError: as in `allocate`, or the grid does not hold the vision tokens.
        """
        h, w = grid or (max(1, round(image.shape[-2] / CELL)), max(1, round(image.shape[-1] / CELL)))
        if vision_embeds is not None and vision_embeds.shape[1] != h * w:
            raise ValueError(
                f"{vision_embeds.shape[1]} vision tokens do not fill a grid of {(h, w)}; pass `grid`"
            )
        if query_mask is None:
            query_mask = torch.ones(query_embeds.shape[:2], dtype=torch.bool, device=query_embeds.device)
        texture = generate_texture_array(image, (h, w), self.config.channels, **(texture_inputs or {}))
        relevance = self.relevance(texture, query_embeds, query_mask, vision_embeds)
        allocations = self.allocate(relevance, budget)

        lengths = torch.tensor([a.kept for a in allocations], device=image.device)
        mask = torch.arange(int(lengths.max()), device=image.device) < lengths[:, None]  # (B, K)
        keep = torch.nn.utils.rnn.pad_sequence([a.keep for a in allocations], batch_first=True)
        budgets = relevance.balanced.flatten(1).gather(1, keep) * mask
        positions = torch.stack((keep // w, keep % w), dim=-1) * mask[..., None]
        tokens = None
        if vision_embeds is not None:
            tokens = vision_embeds.gather(1, keep[..., None].expand(-1, -1, vision_embeds.shape[-1]))
            tokens = tokens * (gate(budgets) * mask)[..., None].to(tokens.dtype)
        return ARRCOCOutput(tokens, positions, budgets, mask, allocations)


def _whole_grid(grid: tuple[int, ...] | None, maps: Tensor) -> tuple[int, int, int]:
    """The grid (T, H, W) of maps [B, T*H, W]; raises ValueError where `grid` does not fit them."""
    rows, columns = maps.shape[-2:]
    t, h, w = (1, rows, columns) if grid is None else (1, *grid)[-3:]
    if (t * h, w) != (rows, columns):
        raise ValueError(f"grid {grid} does not fit maps of {rows}x{columns} cells")
    return t, h, w
