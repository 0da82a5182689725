"""The layer: texture, three scorers, balancing and the choice of cells in one module; its settings and files.

image -> texture [B, C, H, W] -> three maps [B, H, W] -> balanced map -> kept cells      `forward`
                                 `relevance` (differentiable)         `allocate`
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from arr_coc.choose.allocation import TENSIONS, Allocation, grid_positions
from arr_coc.choose.attending import TokenAllocator, gate, has_structure
from arr_coc.choose.balancing import AdaptiveTensionBalancer
from arr_coc.choose.basis import Basis
from arr_coc.choose.budget import AUTO, DEFAULT_BUDGET, Budget, parse_budget
from arr_coc.choose.channels import CHANNEL_GROUPS
from arr_coc.choose.knowing import (
    POOLINGS,
    PRESETS,
    InformationScorer,
    ParticipatoryScorer,
    PerspectivalScorer,
    pool_query,
    same_start,
)
from arr_coc.choose.texture import CELL, channel_groups, generate_texture_array
from arr_coc.files.atomic import make_folder, write_atomic
from arr_coc.files.paths import CONFIG_NAME, shorten
from arr_coc.files.saved import PICKLES, check_finite, read_settings, reading, write_tensors
from arr_coc.files.validation import check_records


@dataclass(frozen=True)
class ARRCOCConfig:
    """The settings of an `ARRCOCLayer`, saved beside its weights; a ValueError names a field out of range.

    `channels` is a texture preset (mvp13, fast13, full20, full40) or a list of channel groups, `preset` "net"
    or "linear" (weighted sums, about a hundred parameters), `pooling` "mean", "last" or "learned".
    """

    dim: int  # D, width of the language model's word embeddings and of its visual tokens
    channels: str | tuple[str, ...] = "mvp13"
    preset: str = "net"
    rank: int | None = None  # of the coupling, over all heads; None: `automatic_rank`
    heads: int = 4  # of the coupling
    explore: float = 0.0  # share of the budget spent on coverage, 0 to 0.5
    budget: Budget = DEFAULT_BUDGET  # cells kept unless a call says otherwise
    pooling: str = "mean"  # how the balancer reads the question
    void: bool = True  # whether images without structure are sampled by an even grid

    def __post_init__(self) -> None:
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
        """Return the fields as a JSON-safe dictionary."""
        data = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ARRCOCConfig:
        """Return the configuration that `to_dict` wrote."""
        names = [f.name for f in dataclasses.fields(cls)]
        if "dim" not in data:
            raise ValueError(f"not an ARRCOCConfig: it has no dim, but {sorted(data)}")
        if others := sorted(set(data) - set(names)):
            raise ValueError(
                f"a layer has no {', '.join(others)}, but only {', '.join(names)}: take {', '.join(others)} "
                f"out of {CONFIG_NAME}, or train this allocator again"
            )
        return cls(**data)


# An allocator folder holds the layer's configuration with the base model it was trained for (CONFIG_NAME),
# its weights and, for layers that read the channels "components", their basis. Only safetensors are ever
# read, and every file is written whole or not at all.

WEIGHTS_NAME = "arr_coc.safetensors"
BASIS_NAME = "basis.safetensors"
DIGEST = "weights_sha256"  # digest of the weights that the settings were saved with; older folders lack it


def read_layer(folder: Path) -> ARRCOCLayer:
    """Read the layer of an allocator folder, on the CPU; a ValueError for anything missing or damaged."""
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
        # Sizes from a file are held against its weights before a layer of that size is built.
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
    names = layer.get("channels") if isinstance(layer, dict) else None
    listed = names if isinstance(names, list) else []
    return [name for name in listed if isinstance(name, str) and name not in CHANNEL_GROUPS]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_layer(layer: ARRCOCLayer, folder: Path, base: dict[str, Any]) -> None:
    """Write a layer and its settings into a folder; `base` holds base_model, its revision, type and dim."""
    # The settings are written last: a folder whose weights are of another save is then recognised.
    make_folder(folder)
    write_tensors(layer.state_dict(), folder / WEIGHTS_NAME)
    digest = _digest(folder / WEIGHTS_NAME)
    settings = {"layer": layer.config.to_dict(), "trained": layer.trained, **base, DIGEST: digest}
    if layer.trained_on:
        settings = {"trained_on": layer.trained_on, **settings}
    if layer.basis is not None:
        layer.basis.save(folder / BASIS_NAME)
    write_atomic((json.dumps(settings, indent=2) + "\n").encode(), folder / CONFIG_NAME)


class Relevance(NamedTuple):
    """The relevance of every cell: three maps and their balance, each [B, H, W] in [0, 1]."""

    information: Tensor
    perspectival: Tensor
    participatory: Tensor
    balanced: Tensor
    weights: Tensor  # (B, 3), gates of the three maps
    tensions: Tensor  # (B, 3), see `TENSIONS`
    logits: Tensor  # (B, H, W), the balanced map before the sigmoid
    structured: Tensor | None = None  # bool (B,), whether the image has structure; None: not measured
    explore: Tensor | None = None  # (B,), share for coverage at neutral exploit; None: the config's
    needed: Tensor | None = None  # (B,), cells that "auto" keeps at neutral compress, see `count_cells`


class ARRCOCOutput(NamedTuple):
    """The decisions of a batch, padded with zeros to the largest K."""

    tokens: Tensor | None  # (B, K, D); None without vision tokens
    positions: Tensor  # (B, K, 2) of (y, x)
    budgets: Tensor  # (B, K), relevance of each kept token
    mask: Tensor  # bool (B, K), True at real entries
    allocations: list[Allocation]  # one per image

    @property
    def allocation(self) -> Allocation:
        return self.allocations[0]


class ARRCOCLayer(nn.Module):
    """The learned part of ARR-COC, 20 to 100 thousand parameters: three scorers, the balancer, the allocator.

    Construction is deterministic; untrained, it is the fixed mixture of `balancing`. Parameters stay in
    float32 whatever `half()` or `to(dtype)` asks for; inputs may have any floating dtype. No image influences
    another of its batch.

    Attributes:
        needed_inputs: names of `OPTIONAL_INPUTS` without which the texture of its channels is refused.
        wanted_inputs: these and those that its channels read where they are supplied.
    """

    def __init__(self, config: ARRCOCConfig | None = None, **others: Any) -> None:
        if not isinstance(config, ARRCOCConfig) or others:
            wrong = ", ".join(f"{name}={value!r:.40}" for name, value in others.items())
            raise TypeError(
                f"ARRCOCLayer({wrong or repr(config)[:40]}): a layer takes its settings as one ARRCOCConfig, "
                "as in ARRCOCLayer(ARRCOCConfig(dim=2048)), dim being the width of the language model"
            )
        super().__init__()
        self.config = c = config
        groups = channel_groups(c.channels)
        self.needed_inputs = frozenset(name for group in groups for name in group.needs)
        self.wanted_inputs = self.needed_inputs.union(*(group.reads for group in groups))
        names = [name for group in groups for name in group.channels]
        # of the colour channels, those that the layer has
        self._colour = [names.index(name) for name in ("red", "green", "blue") if name in names]
        with same_start():
            self.information = InformationScorer(c.channels)
            self.perspectival = PerspectivalScorer(c.channels, c.preset)
            self.participatory = ParticipatoryScorer(c.channels, c.dim, c.rank, c.heads, c.preset)
            self.balancer = AdaptiveTensionBalancer(c.dim, preset=c.preset)
        self.allocator = TokenAllocator(c.explore)
        self.trained = False  # whether weights were loaded
        self.trained_on: tuple[dict[str, Any], ...] = ()  # how they were made, see `files.saved`
        self.basis: Basis | None = None  # of its model's encoder, for layers that read components
        self._plain: dict[torch.device, ARRCOCLayer] = {}  # torch finds no module in a dict

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ARRCOCLayer:
        # Moved as in torch, but cast to no other dtype: scores in half precision have ties.
        def move(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

        return super()._apply(move, recurse)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        result = super().load_state_dict(state_dict, strict=strict, assign=assign)
        self.trained = True
        return result

    def untrained(self) -> ARRCOCLayer:
        """Return an untrained layer of the same settings, in evaluation mode; built once for each device."""
        # Building seeds the generator that all threads share, so it is not done for every question.
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
    ) -> Relevance:
        """Return the relevance of every cell, with gradient to all parameters but those of `compress` and
        `exploit`.

        Args:
            texture: [B, C, H, W] from `generate_texture_array` with the config's channels.
            query: [B, L, D], word embeddings of the question.
            query_mask: Bool [B, L], True at content tokens (no padding, template or special tokens).
            vision: [B, H*W, D] in raster order, encoded tokens or a stem's vectors; None before encoding.
            gestalt: [B, D], mean token of a coarse view, for the balancer; None: that of `vision`.
            coupling: [B, H, W] logits of the guide or a model's attention; None: the participatory scorer's.
        """
        scores = self.scores(texture, query, query_mask, vision, coupling)
        return self.balance(scores, texture, query, query_mask, vision, gestalt)

    def balance(
        self,
        scores: Sequence[Tensor],
        texture: Tensor,
        query: Tensor,
        query_mask: Tensor,
        vision: Tensor | None = None,
        gestalt: Tensor | None = None,
    ) -> Relevance:
        """Return the relevance of every cell from `scores`, logits [B, H, W] of each scorer; else as
        `relevance`.
        """
        logit_maps = torch.stack(tuple(scores), dim=1)  # (B, 3, H, W)
        weight = self.participatory.importances(query) if self.config.pooling == "learned" else None
        pooled = pool_query(query, query_mask, self.config.pooling, importance=weight)
        # Without a coarse view the mean of the vision tokens stands for the whole image.
        if gestalt is None and vision is not None:
            gestalt = vision.float().mean(1)
        logits, weights, tensions = self.balancer.mix(logit_maps, pooled, gestalt)
        maps = logit_maps.sigmoid().unbind(1)
        return Relevance(*maps, logits.sigmoid(), weights, tensions, logits, self.structured(texture))

    def scores(
        self,
        texture: Tensor,
        query: Tensor,
        query_mask: Tensor,
        vision: Tensor | None = None,
        coupling: Tensor | None = None,
        salient: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits of the three scorers, [B, H, W] each.

        Arguments are those of `relevance`; `salient` [B, H, W] in [0, 1] stands for the texture's saliency.
        """
        if coupling is None:
            coupling = self.participatory.logits(texture, query, query_mask, vision)
        return self.information.logits(texture), self.perspectival.logits(texture, salient), coupling

    def structured(self, texture: Tensor) -> Tensor:
        """Return whether images have structure, by their texture [B, C, H, W]: bool [B]."""
        return has_structure(self.information.information(texture), texture[:, self._colour].float())

    def voids(self, relevance: Relevance) -> Tensor | None:
        """Return which images lack structure and are sampled by an even grid, bool [B], or None for no
        image.
        """
        # A peak of the participatory map saves none: on noise, a question about shapes finds some.
        if not self.config.void or relevance.structured is None:
            return None
        return ~relevance.structured

    def allocate(
        self,
        relevance: Relevance,
        budget: Budget | None = None,
        grid: tuple[int, int] | tuple[int, int, int] | None = None,
    ) -> list[Allocation]:
        """Return the cells kept of each image as one frozen record per image.

        `grid` is (H, W), or (T, H, W) if frames lie under each other in the maps; None: that of the maps. A
        `budget` of None is the config's, cut to N if it is DEFAULT_BUDGET. `NonFiniteScores` if a map is NaN
        or infinite; a ValueError if the budget is invalid or exceeds N, or the grid does not fit the maps.
        """
        full = _whole_grid(grid, relevance.balanced)
        requested = parse_budget(self.config.budget if budget is None else budget)
        clamped = budget is None and requested == DEFAULT_BUDGET
        tensions, weights = relevance.tensions.detach(), relevance.weights.detach().float()
        # Logits rank cells whose relevance saturates; "auto" without `needed` reads a map in [0, 1].
        by_relevance = requested == AUTO and relevance.needed is None
        chosen = self.allocator(
            relevance.balanced if by_relevance else relevance.logits,
            None if clamped else requested,
            compress=tensions[:, 0],
            exploit=tensions[:, 1],
            void=self.voids(relevance),
            explore=relevance.explore,
            needed=relevance.needed,
        )
        # The frames of a clip lie under each other in the maps, (T*H, W): they get an axis of their own.
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
        """Scores, choice and gathered tokens of a batch; kept tokens are unchanged, with gradient by `gate`.

        `vision_embeds` [B, H*W, D] in raster order, `query_embeds` [B, L, D], `image` [B, 3, h, w] in [0, 1],
        `query_mask` bool [B, L] (None: every token). A `grid` of None has one cell per 32 px.
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

        # Images keep different numbers of cells: rows are padded with cell 0, whose token the mask makes 0.
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
    rows, columns = maps.shape[-2:]
    t, h, w = (1, rows, columns) if grid is None else (1, *grid)[-3:]
    if (t * h, w) != (rows, columns):
        raise ValueError(f"grid {grid} does not fit maps of {rows}x{columns} cells")
    return t, h, w
