"""Losses for partly encoded images, by stage: LoRAs for kept cells or coarse views, and compressors.

partial      LoRA of the vision tower: cells encoded alone should match the whole tower's tokens
coarse       LoRA of the language model: answers from a coarse view and the kept cells behind it
tower        tower4 and tower16: patches merged half-way in the tower, with a LoRA each
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.choose.attending import compute_retention_mask
from arr_coc.model import ARRCOCModel
from arr_coc.modes import COMPRESS, SACCADE, SPARSE, Mode
from arr_coc.seam import Layout, VisualFeatures
from arr_coc.seam.assembly import Compacted
from arr_coc.seam.batching import compacted_costs, hinted_costs
from arr_coc.seam.gestalt import CELLS, COMPRESSORS, cells_alone, compress, pooled
from arr_coc.seam.lora import COARSE, PARTIAL
from arr_coc.seam.tower_compressor import TOWERS, TowerCompressor
from arr_coc.session import Session
from arr_coc.train.learner import ImageLoss, Learner, draws_of, recomputed
from arr_coc.train.recipe import LoraRecipe, TowerRecipe
from arr_coc.train.rows import ImageRows, Row

QUESTIONS_PER_CELL = 14 / 273  # how many questions share a kept set, for each of its cells
MAX_CELLS = 420  # cells in all kept sets of an image together


class TaughtImage(NamedTuple):
    """An image in a training step: its rows, session and cells, and its tokens if the whole tower ran."""

    item: ImageRows
    session: Session
    layout: Layout
    whole: VisualFeatures | None

    @property
    def grid(self) -> tuple[int, int]:
        _, height, width = self.layout.grids[0]
        return height, width


class PartsLearner(Learner):
    """A model and its parts for partly encoded images as one trainable module; see `Learner`.

    Labels are optional: targets are the whole tower's tokens (self-distillation on features; Hinton et al.
    2015, arXiv 1503.02531) and answers, the right ones or the model's own from all tokens. Kept sets hold
    the evidence boxes, or the best cells of a trained layer, beside unrelated cells. The base model and
    everything learned before are frozen.
    """

    def __init__(self, model: ARRCOCModel, recipe: LoraRecipe | TowerRecipe) -> None:
        super().__init__(model, recipe)
        model.layer.requires_grad_(False)
        if isinstance(recipe, TowerRecipe):
            prepare_towers(model, recipe)
        else:
            for kind in (PARTIAL, COARSE) if recipe.together else (recipe.stage,):
                prepare_mode_lora(model, kind, recipe.lora)
            for name in recipe.gestalts:
                if COMPRESSORS[name].inside and name not in model.compressors:
                    raise ValueError(
                        f"gestalts has {name!r}, which this allocator has not learned: teach it first by "
                        "recipe tower"
                    )

    def image_loss(self, item: ImageRows) -> ImageLoss:
        """Loss of one image; random draws depend on the seed and the item's number alone."""
        rows = [row for row in item.rows if row.weight]
        if not rows:
            return ImageLoss(self._zero(), {})
        session = Session(self.model, item.image)
        if self.recipe.stage == "tower":
            return self._tower_loss(session, rows)
        return self._lora_loss(item, session, rows)

    def _lora_loss(self, item: ImageRows, session: Session, rows: Sequence[Row]) -> ImageLoss:
        """Loss of the LoRAs, over several kept sets, each with the questions that share it."""
        inputs, whole = session.inputs("?"), None
        if self.most(int(self._needs_whole(item, rows))):  # divided processes must all run it if one does
            with torch.no_grad():
                whole = self.model.adapter.features(inputs)
        layout = self.model.adapter.layout(inputs) if whole is None else whole.layout
        image = TaughtImage(item, session, layout, whole)
        answers = self._own_or_right(image, rows)
        draws = random.Random(int(torch.randint(2**31, (), generator=draws_of(item, self.recipe.seed))))
        gestalt = self._gestalt(image, draws) if self.recipe.stage == "coarse" else None
        sets = list(self._kept_sets(image, rows, draws))
        terms: dict[str, list[Tensor]] = {}
        idle: list[Tensor] = []
        for number in range(self.most(len(sets))):  # as many passes as in the other processes
            some, keep = sets[min(number, len(sets) - 1)]
            batch = session.batch([rows[i].question for i in some], [answers[i] for i in some])
            for name, term in self._part(image, batch, keep, gestalt).items():
                (terms.setdefault(name, []) if number < len(sets) else idle).append(term)
        return self._sum({name: torch.stack(parts).mean() for name, parts in terms.items()}, idle)

    def _sum(self, terms: Mapping[str, Tensor], idle: Sequence[Tensor] = ()) -> ImageLoss:
        """Sum of the terms, each also as a figure; `idle` terms count 0 but need the backward pass."""
        total = torch.stack(list(terms.values())).sum() + self._zero()
        total = total + 0.0 * torch.stack(list(idle)).sum() if idle else total
        figures = {"loss": total, **terms}
        return ImageLoss(total, {name: [float(term.detach())] for name, term in figures.items()})

    def _needs_whole(self, item: ImageRows, rows: Sequence[Row]) -> bool:
        """Return whether the whole tower has to run: as target, for a compressor, or for missing labels."""
        recipe = self.recipe
        return (
            self._echoes(item)
            or (self.layer.trained and not all(row.marked for row in rows))
            or (recipe.answer > 0 and not all(row.answers for row in rows))
            or (recipe.stage == "coarse" and any(COMPRESSORS[name].reads_tokens for name in recipe.gestalts))
        )

    def _echoes(self, item: ImageRows) -> bool:
        recipe, (width, height) = self.recipe, item.image.size
        teaches = recipe.echo > 0 and (recipe.stage == "partial" or recipe.together)
        return teaches and (recipe.echo_pixels is None or width * height <= recipe.echo_pixels)

    def _gestalt(self, image: TaughtImage, draws: random.Random) -> VisualFeatures:
        """Coarse view by one of the recipe's compressors; "resize" has at most a quarter of the cells."""
        model, names, inputs = self.model, self.recipe.gestalts, image.session.inputs("?")
        name = names[0] if len(names) == 1 else draws.choice(names)
        adapter = model.adapter_for(SACCADE)
        with torch.set_grad_enabled(self.recipe.together and torch.is_grad_enabled()):
            if COMPRESSORS[name].factor is None:
                few = min(CELLS, max(1, image.layout.sizes[0] // 4))
                with recomputed(adapter.model, self.recipe.checkpointing):
                    return cells_alone(adapter.features(model.adapter.coarse(inputs, few)))
            if COMPRESSORS[name].inside:
                adapter = model.chooser.adapter_with(name)
            return compress(name, adapter, inputs, image.whole, model.compressors)

    def _part(
        self,
        image: TaughtImage,
        batch: Mapping[str, Any],
        keep: Tensor,
        gestalt: VisualFeatures | None,
    ) -> dict[str, Tensor]:
        model, recipe, inputs = self.model, self.recipe, image.session.inputs("?")
        mode = SPARSE if recipe.stage == "partial" else SACCADE
        adapter = model.adapter_for(mode)
        if recipe.stage == "coarse" and not recipe.together:
            with torch.no_grad():
                fine = adapter.encode_cells(inputs, [keep])
            return self._answers_of(mode, image, batch, keep, fine, gestalt)
        with recomputed(adapter.model, recipe.checkpointing):
            fine = adapter.encode_cells(inputs, [keep])
        terms = {}
        if image.whole is not None and self._echoes(image.item):
            terms["echo"] = recipe.echo * echo_loss(*same_cells(fine, image.whole, keep))
        terms |= self._answers_of(mode, image, batch, keep, fine, gestalt)
        if recipe.together:  # the tower's LoRA serves both modes: trained in one alone, it unlearns the other
            alone = self._answers_of(SPARSE, image, batch, keep, fine, None)
            terms |= {f"{SPARSE.name} {name}": term for name, term in alone.items()}
        return terms

    def _answers_of(
        self, mode: Mode, image: TaughtImage, batch: Mapping[str, Any], *parts: Any
    ) -> dict[str, Tensor]:
        """Loss terms of answers from a partly encoded image; `parts` as in `assembled`, from `keep` on."""
        recipe, adapter = self.recipe, self.model.adapter_for(mode)
        if not recipe.answer:
            return {}
        compacted = assembled(self.model, mode, batch, image.layout, *parts)
        with recomputed(adapter.model, recipe.checkpointing):
            if not recipe.hint:
                return {"answer": recipe.answer * compacted_costs(adapter, compacted).mean()}
            costs, hints = hinted_costs(adapter, compacted, max(1, prompt_tail(image.session)))
        return {"answer": recipe.answer * costs.mean(), "hint": recipe.hint * hints.mean()}

    def _tower_loss(self, session: Session, rows: Sequence[Row]) -> ImageLoss:
        """Loss of compressors inside the tower; the whole tower runs only where a target needs it."""
        model, recipe, inputs = self.model, self.recipe, session.inputs("?")
        whole = None
        if recipe.echo or (recipe.answer and self.most(sum(not row.answers for row in rows))):
            with torch.no_grad():
                whole = model.adapter.features(inputs)
        batch = None
        if recipe.answer:
            right = [row.answers[0] if row.answers else "" for row in rows]
            answers = right if whole is None else self.answers(session, whole, rows)
            batch = session.batch([row.question for row in rows], answers)
        terms: dict[str, Tensor] = {}
        for name in recipe.compressors:
            gestalt = tower_gestalt(model, name, inputs)
            if recipe.echo and whole is not None:
                taught = pooled(whole, TOWERS[name])
                terms[f"{name} echo"] = recipe.echo * feature_loss(gestalt, taught, whole)
            if batch is not None:
                costs = gestalt_costs(model, batch, model.adapter.layout(inputs), gestalt)
                terms[f"{name} answer"] = recipe.answer * costs.mean()
        return self._sum(terms)

    def _kept_sets(
        self, image: TaughtImage, rows: Sequence[Row], draws: random.Random
    ) -> Iterator[tuple[list[int], Tensor]]:
        """Row numbers, and the cells [K] kept for them: fewer than half of the image's, as in the modes."""
        cells = math.prod(image.grid)
        count = min(cells, max(2, min(draws.choice(self.recipe.budgets), (cells - 1) // 2)))
        evidence = self._evidence(image, rows, count)
        share, every = max(1, round(count * QUESTIONS_PER_CELL)), evidence.any(0)
        for start in range(0, len(rows), share):
            if start and (start // share + 1) * count > MAX_CELLS:
                return
            some = list(range(start, min(start + share, len(rows))))
            yield (
                some,
                kept_cells(draws, evidence[some].any(0).cpu(), every.cpu(), count).to(self.model.device),
            )

    @torch.no_grad()
    def _evidence(self, image: TaughtImage, rows: Sequence[Row], count: int) -> Tensor:
        """Evidence bool [Q, H, W] of each question: its boxes, else the best cells of a trained layer."""
        masks = torch.stack([row.evidence(image.grid, image.item.image.size) for row in rows])
        blind = [i for i, row in enumerate(rows) if not row.marked]
        if image.whole is not None and self.layer.trained and self.most(len(blind)):
            questions = [rows[i].question for i in blind or [0]]
            relevance = self.relevance(image.session, image.whole, questions)
            for i, scores in zip(blind, relevance.logits[: len(blind)].flatten(1), strict=True):
                kept = compute_retention_mask(scores, max(1, count // 4))
                masks[i] = kept.view(image.grid).cpu()
        return masks

    def _own_or_right(self, image: TaughtImage, rows: Sequence[Row]) -> list[str]:
        if not self.recipe.answer:
            return [""] * len(rows)
        if image.whole is None:
            return [row.answers[0] for row in rows]
        return self.answers(image.session, image.whole, rows)


def prepare_lora(model: ARRCOCModel, kind: str, rank: int) -> None:
    """Make a LoRA trainable in float32, a new one of rank `rank` if the allocator has none."""
    if kind not in model.loras:
        model.loras.add(kind, rank)
    for parameter in model.loras.parameters_of(kind):
        parameter.data = parameter.data.float().to(model.device)
        parameter.requires_grad_(True)


def prepare_mode_lora(model: ARRCOCModel, kind: str, rank: int) -> None:
    """Make the LoRA of "partial" or "coarse" trainable; ValueError if no mode would use it."""
    if model.adapter.encodes != "cells":
        raise ValueError(
            f"stage is {kind!r}, but the vision tower of {model.config.model_type} can't encode some cells "
            "alone, so no mode would use it: use relevance or distill"
        )
    prepare_lora(model, kind, rank)


def same_cells(
    fine: VisualFeatures, whole: VisualFeatures, keep: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """Tokens [K, D] per level of kept cells: encoded alone, and encoded with the whole image."""
    at = whole.cells[0][keep]
    cells = torch.isin(whole.tokens_to_keep([keep])[0], at)  # not newlines and the like
    alone = [images[0][cells] for images in (fine.tokens, *fine.levels)]
    return alone, [images[0][at] for images in (whole.tokens, *whole.levels)]


def echo_loss(levels: Sequence[Tensor], whole: Sequence[Tensor]) -> Tensor:
    """Share of the variance of whole-image tokens [K, D] that cells encoded alone miss, mean over levels."""
    return missed_share(levels, whole, whole)


def kept_cells(draws: random.Random, evidence: Tensor, others: Tensor, count: int) -> Tensor:
    """Return a random kept set, long [K] in ascending order, with all evidence (bool [H, W]) first.

    Then neighbours of the evidence, `others` that other questions need, and unrelated cells.
    """
    noise = torch.rand(evidence.shape, generator=torch.Generator().manual_seed(draws.randrange(2**31)))
    reach = 2 * draws.choice((1, 1, 2, 3)) + 1
    near = F.max_pool2d(evidence[None].float(), reach, 1, reach // 2)[0]  # dilation, stride 1: still (H, W)
    weights = [draws.random() for _ in range(3)]
    score = 10 * evidence + weights[0] * near + weights[1] * others + (weights[2] + 1e-3) * noise
    return score.flatten().argsort(descending=True, stable=True)[:count].sort().values


def assembled(
    model: ARRCOCModel,
    mode: str | Mode,
    batch: Mapping[str, Any],
    layout: Layout,
    keep: Tensor | None,
    fine: VisualFeatures | None,
    gestalt: VisualFeatures | None,
) -> Compacted:
    """Prompts of a partly encoded image, as the language model of a mode with its LoRAs reads them.

    `keep` long [K] are the kept cells, `fine` their tokens, `gestalt` a coarse view before them.
    """
    adapter, rows = model.adapter_for(mode), len(batch["input_ids"])
    kept = torch.zeros(0, dtype=torch.long, device=model.device) if keep is None else keep
    parts = [None if part is None else part.repeat(rows) for part in (fine, gestalt)]
    return adapter.assemble(batch, layout.repeat(rows), [kept] * rows, parts[0], parts[1], use_cache=False)


def prompt_tail(session: Session) -> int:
    """Number of prompt tokens after the question: the common ending of two questions' prompts."""
    first, second = (session.inputs(question)["input_ids"][0].flip(0) for question in ("?", "who"))
    shorter = min(len(first), len(second))
    return int((first[:shorter] == second[:shorter]).long().cumprod(0).sum())


def prepare_towers(model: ARRCOCModel, recipe: TowerRecipe) -> None:
    """Make a recipe's compressors inside the tower trainable, each with a LoRA; new ones if missing.

    Raises ValueError if the vision tower can't be run in two halves.
    """
    if not model.adapter.halves:
        raise ValueError(
            f"stage is 'tower', but the vision tower of {model.config.model_type} can't be run in two "
            "halves: use gestalt 'pool4' or 'pool16', which need no training"
        )
    adapter: Any = model.adapter
    for name in recipe.compressors:
        if name not in model.compressors:
            model.compressors[name] = TowerCompressor.of(adapter.tower, TOWERS[name])
        model.compressors[name].to(model.device, torch.float32).requires_grad_(True)
        prepare_lora(model, name, recipe.lora)


def tower_gestalt(model: ARRCOCModel, name: str, inputs: Mapping[str, Any]) -> VisualFeatures:
    """Image compressed inside the tower by one compressor and its LoRA, with gradient to both."""
    return model.compressors[name](model.adapter.on(model.loras.model_for((name,))), inputs)


def gestalt_costs(
    model: ARRCOCModel, batch: Mapping[str, Any], layout: Layout, gestalt: VisualFeatures
) -> Tensor:
    """Mean cross-entropy of each answer [Q] from a compressed image alone, as in mode "compress"."""
    adapter, rows = model.adapter_for(COMPRESS), len(batch["input_ids"])
    none = [torch.zeros(0, dtype=torch.long, device=model.device)] * rows
    compacted = adapter.assemble(
        batch, layout.repeat(rows), none, None, gestalt.repeat(rows), use_cache=False
    )
    return compacted_costs(adapter, compacted)


def feature_loss(gestalt: VisualFeatures, taught: VisualFeatures, whole: VisualFeatures) -> Tensor:
    """Share of the image's token variance by which `gestalt` misses its target; mean over levels."""
    stacks = [(part.tokens, *part.levels) for part in (gestalt, taught, whole)]
    return torch.stack([missed_share(*level) for level in zip(*stacks, strict=True)]).mean()


def missed_share(ours: Sequence[Tensor], theirs: Sequence[Tensor], scale: Sequence[Tensor]) -> Tensor:
    """Mean squared difference of tokens [K, D] over the variance of `scale`: 0 equal, about 1 unrelated."""
    parts = [
        # variance over tokens, mean over channels; float32, since bfloat16 squares vanish
        (a.float() - b.float()).square().mean() / c.float().var(0).mean().clamp_min(1e-6)
        for a, b, c in zip(ours, theirs, scale, strict=True)
    ]
    return torch.stack(parts).mean()
