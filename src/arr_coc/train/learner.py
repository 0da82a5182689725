"""The loss of a training step on one image and its questions, and which parameters learn.

    relevance   the map against the evidence (boxes, maps, or what the model itself used)
    answers     cross-entropy of the answer from the kept cells, through the frozen model
    compress    how many tokens the budget "auto" should keep

An image is encoded once for its Q questions; each question is a row of the batch.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from arr_coc.choose.basis import Basis, fit_basis
from arr_coc.choose.budget import auto_loss
from arr_coc.choose.layer import ARRCOCLayer, Relevance
from arr_coc.choose.stem import Stem
from arr_coc.files.plugins import plugin
from arr_coc.model import ARRCOCModel
from arr_coc.modes import PRUNE, SACCADE
from arr_coc.modes.route import SACCADE_TOKENS
from arr_coc.modes.scoring import question_embeddings
from arr_coc.relevance.deciding import LookedAt
from arr_coc.seam import VisualFeatures
from arr_coc.seam.batching import answer_costs
from arr_coc.seam.gestalt import CELLS, coarse_features
from arr_coc.seam.lora import OWN
from arr_coc.session import Session, VisualSource
from arr_coc.train.distill import Judge, attention_map, gradient_map, own_answers
from arr_coc.train.loop import TrainableModule
from arr_coc.train.losses import GatedCells, gated_cells, policy_loss, recall, relevance_loss, selection_iou
from arr_coc.train.processes import greatest
from arr_coc.train.recipe import MARKS, AnswerRecipe, LayerRecipe, Recipe, RelevanceRecipe
from arr_coc.train.rows import ImageRows, Row

EVIDENT = 0.5  # cells of a soft target above this count as evidence in IoU and recall
WITH_GESTALT = 0.5  # share of images for which the stem also reads a coarse view (gestalt)
PICTURES = 100  # images of a run on which the basis of the channels "components" is fitted
# row for a process whose image has no question: it must compute what the others do
IDLE = Row("?", ("?",), (), "", 1.0, "nowhere")


class ImageLoss(NamedTuple):
    """Loss of one image (a scalar), and figures to log: name -> values, to be averaged."""

    loss: Tensor
    figures: dict[str, list[float]]


class Learner(TrainableModule):
    """A model and its relevance layer as one trainable module; the recipe says which parameters learn.

    With `eyes="stem"` the layer reads cells made by a stem in place of encoded tokens, as in the modes that
    choose cells before encoding. A trained layer then stays unchanged; an untrained one learns with the stem.
    `divided`: the base model is split over processes (`sharding`), which must all compute the same layers.
    """

    def __init__(self, model: ARRCOCModel, recipe: Recipe) -> None:
        super().__init__()
        self.model, self.divided = model, False
        self.recipe: Any = recipe  # of the class that the stage has
        self.layer: Any = model.layer
        self.stem_learns = isinstance(recipe, RelevanceRecipe) and recipe.eyes == "stem"
        if isinstance(recipe, LayerRecipe) and recipe.allocator == "query-blind":
            self.layer = plugin("layers", recipe.allocator)(model.layer.config.dim).to(model.device)
            model.layer.requires_grad_(False)  # not used
        if isinstance(recipe, RelevanceRecipe) and self.stem_learns:
            prepare_stem(model, recipe)
        if isinstance(recipe, AnswerRecipe):
            unfreeze(model, recipe)

    @property
    def changes_base(self) -> bool:
        return isinstance(self.recipe, AnswerRecipe) and self.recipe.top_layers > 0

    def groups(self) -> list[dict[str, Any]]:
        """Parameter groups: what learns of the base model and its LoRA at `base_lr`, all else at `lr`."""
        recipe = self.recipe
        slow = (self.model.base, self.model.loras) if isinstance(recipe, AnswerRecipe) else ()
        own = {id(parameter) for part in slow for parameter in part.parameters()}
        learned = [parameter for parameter in self.parameters() if parameter.requires_grad]
        groups = [{"params": [p for p in learned if id(p) not in own], "lr": recipe.lr}]
        if own:
            groups.append({"params": [p for p in learned if id(p) in own], "lr": recipe.base_lr})
        return [group for group in groups if group["params"]]

    def too_large(self, items: Sequence[ImageRows]) -> str:
        largest = max(items, key=lambda item: item.image.width * item.image.height)
        size = f"{largest.image.width}x{largest.image.height} px, {len(largest.rows)} questions"
        return (
            f"out of memory at {largest.where} ({size}); lower max_pixels, questions or batch in the recipe, "
            "or use precision = 'bfloat16'"
        )

    def train(self, mode: bool = True) -> Learner:
        """Set training mode for what learns; a frozen base, with its dropout, stays in evaluation mode."""
        super().train(mode)
        self.model.train(mode)
        return self

    def forward(self, items: Sequence[ImageRows]) -> tuple[Tensor, dict[str, list[float]]]:
        losses = [self._loss(item) for item in items]
        figures: dict[str, list[float]] = {}
        for each in losses:
            for name, values in each.figures.items():
                figures.setdefault(name, []).extend(values)
        return torch.stack([each.loss for each in losses]).mean(), figures

    def _loss(self, item: ImageRows) -> ImageLoss:
        """Loss of one image; in a divided model an image without questions computes `IDLE`, times 0."""
        if not self.divided or any(row.weight for row in item.rows):
            return self.image_loss(item)
        return ImageLoss(0.0 * self.image_loss(replace(item, rows=(IDLE,))).loss, {})

    def most(self, number: int) -> int:
        """The maximum of `number` over all processes where they share the model; otherwise `number`."""
        return greatest(int(number), self.model.device) if self.divided else number

    def image_loss(self, item: ImageRows) -> ImageLoss:
        """Loss of one image; rows of weight 0 are left out.

        Random draws (budget, noise, coarse view) depend on the recipe's seed and the item's number alone, so
        one process with several images a step learns what several processes do.
        """
        item = replace(item, rows=tuple(row for row in item.rows if row.weight))
        recipe, model, rows = self.recipe, self.model, item.rows
        if not rows:
            return ImageLoss(self._zero(), {})
        session, questions = Session(model, item.image), [row.question for row in rows]
        encoded = self._encoded(session)
        answers = None if encoded is None else self._answers(session, encoded, rows)
        inputs = None if answers is None else session.batch(questions, answers)
        target, labelled = self._target(session, encoded, inputs, item)
        # Targets come first: what they need of the model must not move what this item draws.
        draws = draws_of(item, recipe.seed)
        relevance = self.relevance(session, encoded, questions, draws=draws)
        weight = torch.tensor([row.weight for row in rows], device=target.device)

        terms: dict[str, Tensor] = {}
        if recipe.relevance and labelled.any():
            terms["relevance"] = recipe.relevance * relevance_loss(
                relevance.logits[labelled], target[labelled], weight[labelled]
            )
        layer_learns = any(parameter.requires_grad for parameter in self.layer.parameters())
        if recipe.compress and labelled.any() and recipe.allocator == "arr-coc" and layer_learns:
            terms["compress"] = recipe.compress * auto_loss(
                relevance.logits[labelled], relevance.tensions[labelled, 0], target[labelled] > EVIDENT
            )
        if isinstance(recipe, AnswerRecipe) and inputs is not None and encoded is not None:
            features = encoded.repeat(len(rows))
            judge = None
            if recipe.reward != "likelihood" and answers is not None:
                truths = [row.answers or (answer,) for row, answer in zip(rows, answers, strict=True)]
                judge = Judge(session, encoded, rows, truths, recipe.reward, self.divided)
            coarse = None
            if recipe.mode == SACCADE.name:
                coarse = self.coarse_view(session, encoded.layout.sizes[0]).repeat(len(rows))
            loss = self.answer_loss(inputs, features, relevance, weight, draws, judge, coarse)
            terms["answer"] = recipe.answer * loss
        loss = sum(terms.values(), start=self._zero())
        figures = {"loss": [float(loss.detach())]} | {
            name: [float(term.detach())] for name, term in terms.items()
        }
        if labelled.any():
            logits, evidence = relevance.logits[labelled].detach(), target[labelled] > EVIDENT
            figures["iou"] = selection_iou(logits, evidence)
            for share in (16, 4):
                figures[f"recall 1/{share}"] = recall(logits, evidence, max(1, logits[0].numel() // share))
        return ImageLoss(loss, figures)

    def _zero(self) -> Tensor:
        """A loss of 0 with a gradient to every parameter, for images without a loss."""
        return torch.stack([p.sum() for p in self.parameters() if p.requires_grad]).sum() * 0.0

    def _encoded(self, session: Session) -> VisualFeatures | None:
        if self.stem_learns and self.recipe.target in MARKS:
            return None
        with torch.no_grad():
            return self.model.adapter.features(session.inputs("?"))

    def relevance(
        self,
        session: Session,
        encoded: VisualFeatures | None,
        questions: Sequence[str],
        *,
        from_stem: bool = True,
        draws: torch.Generator | None = None,
    ) -> Relevance:
        """Relevance maps [Q, H, W] of Q questions about one image, with gradient to what learns.

        `encoded` may be None where the stem alone reads the image. `from_stem=False` reads encoded tokens
        even if a stem learns; `draws` is the stem's random generator (None: torch's own).
        """
        adapter, layer = self.model.adapter, self.layer
        like = next(layer.parameters())
        with torch.no_grad():
            queries = question_embeddings(adapter, session.batch(questions), like)
            picture = adapter.images(session.inputs("?"), encoded)[0]
        if self.stem_learns and from_stem:
            grid, cells, gestalt = self.stem_cells(session, picture, draws)
        else:
            assert encoded is not None, "encoded eyes read an encoded image"
            grid, cells, gestalt = encoded.grids[0][1:], encoded.cell_tokens(0), None
        more: dict[str, Tensor] = {}
        if "coarse_features" in layer.wanted_inputs:
            (view,) = coarse_features(adapter, session.inputs("?"))
            more["coarse_features"] = view.to(like)
        cues = LookedAt().cues(
            layer, grid, lambda: picture.to(like), cells=cells, gestalt=gestalt, inputs=lambda: more
        )
        # Questions are the batch axis: one image's texture and cells are views, repeated for each of them.
        query = nn.utils.rnn.pad_sequence(queries, batch_first=True)  # (Q, L, D)
        lengths = torch.tensor([len(q) for q in queries], device=query.device)
        mask = torch.arange(query.shape[1], device=query.device) < lengths[:, None]
        parts = [part for part in (cues.texture, cues.vision, cues.gestalt) if part is not None]
        rows = (x.expand(len(questions), *x.shape[1:]) for x in parts)
        return layer.relevance(next(rows), query, mask, *rows)

    def stem_cells(
        self, session: Session, picture: Tensor, draws: torch.Generator | None = None
    ) -> tuple[tuple[int, int], Tensor, Tensor | None]:
        """Grid (H, W), stem cells [N, D] and mean token [D] of the coarse view for an image [3, h, w] in [0,
        1].

        Half of the images have a coarse view; the others have None as mean.
        """
        model, inputs = self.model, session.inputs("?")
        layout, stem = model.adapter.layout(inputs), model.stem
        assert stem is not None, "made at the start"
        coarse, mean = None, None
        wanted = bool(torch.rand((), generator=draws) < WITH_GESTALT)
        if self.most(wanted):  # where processes hold the model together, all encode if one does
            view = self.coarse_view(session, layout.sizes[0])
        if wanted:
            tokens = view.cell_tokens(0).float()
            # (h * w, D) -> (1, D, h, w), and the mean over cells, (D,)
            coarse, mean = tokens.T.unflatten(1, view.grids[0][1:])[None], tokens.mean(0)
        grid = layout.grids[0][1:]
        return grid, stem(picture[None], grid, coarse)[0], mean

    @torch.no_grad()
    def coarse_view(self, session: Session, count: int) -> VisualFeatures:
        """Encode the coarse view of an image of `count` cells, as mode `saccade` does.

        A view as fine as the image would leave nothing to choose: small images get a quarter of their cells.
        """
        cells = CELLS if count > SACCADE_TOKENS else max(1, count // 4)
        inputs = self.model.adapter.coarse(session.inputs("?"), cells)
        return self.model.adapter_for(SACCADE).features(inputs)

    def answer_loss(
        self,
        inputs: Mapping[str, Any],
        features: VisualFeatures,
        relevance: Relevance,
        weight: Tensor,
        draws: torch.Generator | None = None,
        judge: Judge | None = None,
        coarse: VisualFeatures | None = None,
    ) -> Tensor:
        """Weighted mean cross-entropy of the answers from the cells that the estimator keeps; a scalar.

        `inputs` are of `Session.batch` with answers, Q rows; `features` hold the image once per row, `coarse`
        its coarse view, likewise, read before the kept cells (None: there is none); `weight` is [Q].
        "reinforce" adds the policy-gradient term, with the cost of the deterministic choice as baseline. With
        a `judge` the cost of an answer is 1 - metric of a sampled one, and there is no cross-entropy.
        """
        recipe, logits = self.recipe, relevance.logits.flatten(1)
        drawn = int(torch.randint(len(recipe.budgets), (), generator=draws))  # one budget for all rows
        count = min(recipe.budgets[drawn], logits.shape[1])
        choice = gated_cells(logits, count, recipe.estimator, temperature=recipe.temperature, generator=draws)
        if judge is not None:
            assert choice.log_prob is not None, "the recipe's estimator is reinforce"
            usual = gated_cells(logits, count, recipe.estimator, training=False)
            costs, share = judge.costs(choice.keep, True, draws), weight / weight.mean()
            return policy_loss(share * costs, share * judge.costs(usual.keep, False, draws), choice.log_prob)
        costs = self._costs(inputs, features, choice, coarse)
        mean = (weight * costs).sum() / weight.sum()
        if choice.log_prob is None:
            return mean
        with torch.no_grad():
            usual = gated_cells(logits, count, recipe.estimator, training=False)
            baseline = self._costs(inputs, features, usual, coarse)
        share = weight / weight.mean()
        return mean + policy_loss(share * costs, share * baseline, choice.log_prob)

    def _costs(
        self,
        inputs: Mapping[str, Any],
        features: VisualFeatures,
        choice: GatedCells,
        coarse: VisualFeatures | None,
    ) -> Tensor:
        gated = features if choice.gates is None else features.scale(list(choice.gates))
        adapter = self.model.adapter_for(self.recipe.mode)
        with recomputed(adapter.model, self.recipe.checkpointing):
            return answer_costs(adapter, inputs, gated, list(choice.keep), coarse)

    def _answers(self, session: Session, encoded: VisualFeatures, rows: Sequence[Row]) -> list[str] | None:
        if isinstance(self.recipe, RelevanceRecipe) and self.recipe.target in (*MARKS, "layer"):
            return None
        return self.answers(session, encoded, rows)

    def answers(self, session: Session, encoded: VisualFeatures, rows: Sequence[Row]) -> list[str]:
        """The first right answer of each row, or the model's own from all tokens where there is none."""
        missing = [row.question for row in rows if not row.answers]
        own: Iterator[str] = iter(())
        if self.most(len(missing)):  # divided processes must all run the model if one does
            questions = missing or [rows[0].question]
            own = iter(own_answers(session, encoded, questions, together=self.divided))
        return [row.answers[0] if row.answers else next(own) for row in rows]

    def _target(
        self,
        session: Session,
        encoded: VisualFeatures | None,
        inputs: Mapping[str, Any] | None,
        item: ImageRows,
    ) -> tuple[Tensor, Tensor]:
        """Target maps [Q, H, W] of the relevance, and bool [Q]: which rows have one."""
        target, device, rows = self.recipe.target, self.model.device, item.rows
        layout = self.model.adapter.layout(session.inputs("?")) if encoded is None else encoded.layout
        grid = layout.grids[0][1:]
        if target in MARKS:
            labelled = torch.tensor([row.marked for row in rows], device=device)
            size, soft = item.image.size, target == "maps"
            cells = [row.soft_map(grid, size) if soft else row.evidence(grid, size) for row in rows]
            return torch.stack(cells).to(device), labelled
        assert encoded is not None, "what the model or its layer uses are encoded tokens"
        if target == "layer":
            questions = [row.question for row in rows]
            with torch.no_grad():
                maps = self.relevance(session, encoded, questions, from_stem=False).balanced
        else:
            assert inputs is not None, "answers are looked up first"
            used = gradient_map if target == "gradient" else attention_map
            root = self.model.adapter_for(PRUNE).model
            with recomputed(root, self.recipe.checkpointing and target == "gradient"):
                maps = used(self.model, inputs, encoded.repeat(len(rows))).unflatten(1, grid)
        return maps, torch.ones(len(maps), dtype=torch.bool, device=maps.device)


def draws_of(item: ImageRows, seed: int) -> torch.Generator | None:
    """A random generator of its own for an item of a run; None (torch's own) for other items."""
    if item.number is None:
        return None
    draws = torch.Generator()  # of the CPU, so that every device has the same noise
    return draws.manual_seed(random.Random(f"draws of item {item.number}, {seed}").getrandbits(63))


def prepare_stem(model: ARRCOCModel, recipe: RelevanceRecipe) -> None:
    """Make the stem (a small net on pixels) trainable, a new one if missing, and freeze a trained layer.

    Raises ValueError if no mode would use a stem, or the layer that is its target is untrained.
    """
    layer, config = model.layer, model.layer.config
    if model.adapter.encodes != "cells":
        raise ValueError(
            f"eyes is 'stem', but the vision tower of {model.config.model_type} can't encode some cells "
            "alone, so no mode would use it: use eyes=encoded"
        )
    if recipe.target == "layer" and not layer.trained:
        raise ValueError(
            f"target is 'layer', but the layer in {recipe.init!r} is untrained: train it first, or use "
            "target=gradient"
        )
    stem = Stem(config.dim) if model.stem is None else model.stem
    stem.familiarity = None  # fitted to the tokens that it made before
    model.stem = stem.to(model.device, torch.float32).requires_grad_(True)
    layer.requires_grad_(not layer.trained)


def unfreeze(model: ARRCOCModel, recipe: AnswerRecipe) -> None:
    """Make a LoRA or the top layers of the language model trainable, as the recipe says.

    Raises ValueError for more top layers than the model has.
    """
    if recipe.lora and OWN in model.loras:  # the LoRA of the allocator in `init` continues
        for parameter in model.loras.parameters_of(OWN):
            parameter.requires_grad_(True)
    elif recipe.lora:
        model.loras.add(OWN, recipe.lora)
    if recipe.top_layers:
        layers = model.base.get_decoder().layers
        if recipe.top_layers > len(layers):
            raise ValueError(
                f"top_layers {recipe.top_layers} is more than the {len(layers)} the model has; use fewer"
            )
        layers[-recipe.top_layers :].requires_grad_(True)


_SETTINGS = ("gradient_checkpointing", "_gradient_checkpointing_func", "training")


@contextmanager
def recomputed(root: nn.Module, wanted: bool = True) -> Generator[None]:
    """Gradient checkpointing inside the block (Chen et al. 2016, arXiv 1604.06174), if `wanted`.

    Layers keep only their inputs and are computed again in the backward pass: the same numbers from less
    memory, for about a third more time. Do not generate inside the block. ValueError if no layer supports it.
    """
    if not wanted:
        yield
        return
    layers = [layer for layer in root.modules() if isinstance(layer, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            f"checkpointing is true, but no layer of {type(root).__name__} can be computed again: set it to "
            "false"
        )
    # Layers checkpoint only in training mode; their children (dropout) stay in evaluation mode.
    again = functools.partial(checkpoint, use_reentrant=False)
    before = [{name: vars(layer)[name] for name in _SETTINGS if name in vars(layer)} for layer in layers]
    for layer in layers:
        vars(layer).update(zip(_SETTINGS, (True, again, True), strict=True))
    try:
        yield
    finally:
        for layer, marks in zip(layers, before, strict=True):
            for name in _SETTINGS:
                vars(layer).pop(name, None)
            vars(layer).update(marks)


def fit_coarse_basis(model: ARRCOCModel, pictures: Iterable[VisualSource]) -> Basis:
    """Basis of the channels "components": principal components of about a hundred encoded coarse views."""
    return fit_basis(_views(model, pictures), source=model.base_name)


def needs_basis(layer: ARRCOCLayer) -> bool:
    """Whether a layer's channels need a basis that it does not have."""
    return layer.basis is None and "basis" in layer.wanted_inputs


@torch.no_grad()
def _views(model: ARRCOCModel, pictures: Iterable[VisualSource]) -> Iterator[Tensor]:
    for picture in pictures:
        yield from coarse_features(model.adapter, Session(model, picture).inputs("?"))
