"""What a method may read of one image and its questions, each computed at first use and cached.

    features, tower = watch_tower(model, inputs)          one encoding, with the vision tower's attention
    view = View(model, source, prompts, features, tower)  tokens, question(i), received(-2), keys(-2), ...

N cells in raster order, P patches a cell (4 in Qwen, 1 in LLaVA), D width of the language model, d of a
vision head, L tokens of a question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.data import Box
from arr_coc.data.evidence import all_evidence
from arr_coc.data.maps import read_map
from arr_coc.families import known_families
from arr_coc.model import ARRCOCModel
from arr_coc.modes import PRUNE
from arr_coc.modes.call import EncodedImages
from arr_coc.modes.request import new_call
from arr_coc.modes.route import prepare
from arr_coc.modes.scoring import deciding_layer, question_embeddings
from arr_coc.seam import FamilyAdapter, Grid, VisualFeatures
from arr_coc.seam.attention import attention_modules, attention_received, attention_rows, watch_attention
from arr_coc_lab.evaluate.questions import ImageQueries
from arr_coc_lab.rivals import QueryBlindScorer
from arr_coc_lab.rivals.method import Count

LAYERS = (-2, -1)
"""Tower layers that methods read; of a windowed one the next global layer (as in ports to Qwen2.5-VL)."""


@dataclass(frozen=True)
class Tower:
    """What the vision tower computed for one image."""

    # by layer (of `LAYERS`) queries and keys [H, S, d] after rotary positions, and the scaling
    attention: Mapping[int, tuple[Tensor, Tensor, float]]
    states: Tensor  # [N, P * d_v], the input of the merger or projector for each cell
    class_token: bool  # whether S begins with a class token, which is no cell
    places: Tensor | None = None  # long [N], where in S (in cells) each cell stands; None for raster order


def check_tower(adapter: FamilyAdapter) -> None:
    """Raise ValueError unless the tower's attention can be read cell by cell."""
    if not adapter.by_cells:
        others = "; ".join(family.title for family in known_families() if family.trait("by_cells"))
        raise ValueError(
            f"the vision attention of {adapter.model.config.model_type!r} can't be read cell by cell: its "
            f"tower works on tiles, or isn't known here; it can of {others}"
        )


@torch.no_grad()
def watch_tower(model: ARRCOCModel, inputs: Mapping[str, Any]) -> tuple[VisualFeatures, Tower]:
    """Encode the one image of a prompt as the model does, under sdpa, and record the tower's attention."""
    check_tower(model.adapter)
    depth = len(attention_modules(model.base, "vision"))
    order = model.adapter.tower_order(inputs)
    attention: dict[int, tuple[Tensor, Tensor, float]] = {}  # of LAYERS
    late: dict[int, int] = {}
    inside: list[Tensor] = []

    def observe(layer: int, query: Tensor, key: Tensor, scaling: float, mask: Tensor | None) -> None:
        layer -= depth
        if order is None:  # a tower without windows: take the layer itself
            if layer in LAYERS:
                attention[layer] = (query[0], key[0], scaling)
        elif key.shape[2] == len(inputs["pixel_values"]):  # no window, or one that holds everything
            for wanted in LAYERS:  # the first that is late enough, else the last of all
                if wanted not in attention or late[wanted] < wanted:
                    attention[wanted], late[wanted] = (query[0], key[0], scaling), layer

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        inside.append(args[0])

    with watch_attention(model.base, "vision", observe) as watched:
        adapter = model.adapter.on(watched)
        hook = adapter.merger.register_forward_pre_hook(note)
        try:
            features = adapter.features(inputs)
        finally:
            hook.remove()
    count = len(features.cells[0])
    merged = inside[0].flatten(0, -2)  # (S or N * P, d_v)
    merged = merged[int(len(merged) == count + 1) :].reshape(count, -1)  # a class token may stand before
    places = None if order is None else order.to(merged.device).argsort()
    key = next(iter(attention.values()))[1]
    states = merged if places is None else merged[places]
    return features, Tower(attention, states, class_token=key.shape[1] == count + 1, places=places)


def encode(
    model: ARRCOCModel, inputs: Mapping[str, Any], watched: bool
) -> tuple[VisualFeatures, Tower | None]:
    """Return the encoded image of a prompt, and its tower if `watched`."""
    return watch_tower(model, inputs) if watched else (model.adapter.features(inputs), None)


@dataclass(frozen=True, eq=False)
class View:
    """One image and its questions as methods see them: an `arr_coc_lab.rivals.ImageView`.

    A fresh view (`dataclasses.replace`) has an empty cache: a choice timed on one pays for all it computes.
    """

    model: ARRCOCModel  # whose layer and adapter decide
    source: ImageQueries  # the image's key and questions
    prompts: Sequence[Mapping[str, Any]]  # per question processor inputs, with the pixels
    features: VisualFeatures  # the image, encoded
    tower: Tower | None = None  # of its encoding, None where it was not recorded
    size: tuple[int, int] = (0, 0)  # (width, height) of the image, px
    seed: int = 0  # of the run
    # per question the prompt with another image's question, None where there is none
    others: Sequence[Mapping[str, Any] | None] = ()
    scorer: QueryBlindScorer | None = None  # a trained query-blind scorer, if there is one
    image: Image.Image | None = None  # as opened, which sources of relevance read at its own resolution
    _cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    # ---- the image ------------------------------------------------------------------------------------

    @property
    def grid(self) -> Grid:
        """(T, H, W) cells."""
        return self.features.grids[0]

    @property
    def total(self) -> int:
        """N, the number of cells."""
        return len(self.features.cells[0])

    @cached_property
    def picture(self) -> Tensor:
        """[3, h, w] in [0, 1], the image as the vision tower gets it."""
        return self.model.adapter.images(self.prompts[0], self.features)[0]

    @cached_property
    def tokens(self) -> Tensor:
        """[N, D], the encoded cells as they enter the language model."""
        return self.features.cell_tokens(0)

    def received(self, layer: int, joined: bool = False) -> Tensor:
        """Attention that each cell receives in the vision tower, float32 [N], the mean over its patches.

        From the class token if there is one, else the mean over all queries; `joined`: one softmax over the
        concatenated heads. ValueError if the tower was not recorded, as in all that read it.
        """
        return self.once(("received", layer, joined), lambda: self._received(layer, joined))

    def _received(self, layer: int, joined: bool) -> Tensor:
        tower = self._watched()
        query, key, scaling = tower.attention[layer]  # (H, S, d) each
        if joined:
            query, key = (x.transpose(0, 1).flatten(1)[None] for x in (query, key))  # (1, S, H * d)
            scaling = query.shape[-1] ** -0.5
        if tower.class_token:
            rows = attention_rows(query[None, :, :1], key[None], scaling)[0, :, 0, 1:].mean(0)
        else:
            rows = attention_received(query, key, scaling)
        return self._in_raster_order(rows.view(self.total, -1).mean(1))  # mean over patches

    def keys(self, layer: int, joined: bool = False) -> Tensor:
        """Keys of each cell in the vision tower, mean over patches and heads: [N, d]; joined: [N, H * d]."""
        tower = self._watched()
        key = tower.attention[layer][1][:, int(tower.class_token) :]  # (H, N * P, d)
        heads = key.transpose(0, 1).flatten(1) if joined else key.mean(0)  # (N * P, ...)
        return self._in_raster_order(heads.view(self.total, -1, heads.shape[-1]).mean(1))

    def _in_raster_order(self, values: Tensor) -> Tensor:
        places = self._watched().places
        return values if places is None else values[places]

    @property
    def states(self) -> Tensor:
        """[N, P * d_v], the input of the merger or projector for each cell."""
        return self._watched().states

    @property
    def patches(self) -> int:
        """P, patches a cell."""
        tower = self._watched()
        rows = next(iter(tower.attention.values()))[1].shape[1] - int(tower.class_token)
        return rows // self.total

    def _watched(self) -> Tower:
        if self.tower is None:
            raise ValueError("the vision tower was not watched: encode the image with watch_tower")
        return self.tower

    def blind_scores(self) -> Tensor:
        """Scores [N] of the trained query-blind scorer; ValueError if there is none."""
        scorer = self.scorer
        if scorer is None:
            raise ValueError("there is no trained query-blind scorer: give its .safetensors file")
        return self.once("blind", lambda: scorer(self.tokens.to(scorer.query.weight)))

    # ---- a question -----------------------------------------------------------------------------------

    def question(self, i: int) -> Tensor:
        """[L, D], embeddings of the content tokens of question i."""
        return self.once(
            ("question", i),
            lambda: question_embeddings(self.model.adapter, self.prompts[i], self.tokens)[0],
        )

    def chosen(self, layer: ARRCOCLayer | None, i: int, budget: Count, other: bool = False) -> Allocation:
        """Return the allocation of mode "prune" for question i (or another image's: `other`).

        The model chooses as in any call, by its source of relevance; `layer` takes the place of its own.
        """
        prompt = self.others[i] if other else self.prompts[i]
        assert prompt is not None, "run only on questions that have another image's"
        chooser = replace(self.model.chooser, strict=True)
        if layer is not None:
            chooser = replace(chooser, layer=deciding_layer(layer, self.model.relevance))
        encoded = self.encoded(chooser.layer.config.channels, self.features)
        watch = Stopwatch(self.model.device)
        call = new_call(chooser, prompt, PRUNE, budget, gestalt="resize", watch=watch, encoded=encoded)
        return prepare(chooser, call).allocations[0]

    def encoded(self, kind: Any, features: VisualFeatures | None = None) -> EncodedImages:
        """Return what choices of one kind, such as a method, compute of the image whatever the question,
        once.

        All kinds share what the source of relevance makes of the image, for an OCR reads it for seconds.
        """
        every: dict[Any, EncodedImages] = self.once("encoded", dict)
        if kind not in every:
            every[kind] = EncodedImages(features, sources=None if self.image is None else [self.image])
        own = every[kind]
        views = [
            looked.view for one in every.values() for looked in one.looked[:1] if looked.view is not None
        ]
        for looked in own.looked_at(1):
            looked.view = next(iter(views), None)
        return own

    def evidence(self, i: int) -> Tensor | None:
        """Bool [H, W], the evidence cells of question i; None where there are none or they are unknown."""
        query = self.source.queries[i]
        return self.once(("evidence", i), lambda: self._cells_of(query.boxes, query.map))

    def possible_evidence(self) -> list[Tensor]:
        """Bool [H, W] each, the known evidence of every question that the image could be asked."""
        return self.once("possible", lambda: self._all_evidence())

    def _all_evidence(self) -> list[Tensor]:
        queries = range(len(self.source.queries))
        masks = [self._cells_of(boxes) for boxes in self.source.possible] or [
            self.evidence(i) for i in queries
        ]
        return [mask for mask in masks if mask is not None]

    def _cells_of(self, boxes: Sequence[Box] | None, marked: Path | None = None) -> Tensor | None:
        """Return the cells of boxes and a relevance map; None where there are none or they are unknown."""
        # such a tower's cells don't cover the image
        cropped = self.model.adapter.middle_square and self.size[0] != self.size[1]
        if not (boxes or marked) or cropped:
            return None
        relevance = None if marked is None else torch.from_numpy(read_map(marked, marked.name))
        mask = all_evidence(boxes or (), relevance, self.grid[1:], self.size)
        return mask if bool(mask.any()) else None

    def generator(self, method: str, i: int) -> torch.Generator:
        """Return a generator seeded by the run's seed, the image, the question and the method."""
        text = f"{self.seed}/{self.source.key}/{self.source.queries[i].id}/{method}"
        # 63 bits, as torch's seeds are signed
        number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
        return torch.Generator().manual_seed(number)
