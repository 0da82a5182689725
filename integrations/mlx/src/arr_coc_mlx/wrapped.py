"""A model of MLX-VLM that keeps only the visual tokens a question needs; nothing in the model is changed.

MLX-VLM asks a model for the embeddings of a prompt with its pictures and goes on with what it is given. Here
that is the whole prompt, embedded by the model itself, without the columns of dropped cells: what stays has
the positions that it has in the whole prompt, and decoding goes on behind the whole of it.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from PIL import Image

from arr_coc.answer import Answer
from arr_coc.choose.allocation import joined_notes
from arr_coc.choose.budget import DEFAULT_BUDGET, Budget, parse_budget
from arr_coc.files.images import ImageSource, open_image
from arr_coc.files.question import check_question
from arr_coc.modes.mode import FULL, PRUNE, SPARSE, Mode
from arr_coc.modes.notes import budget_exceeds_image, joined, unused
from arr_coc.relevance.deciding import everything_kept
from arr_coc.relevance.source import RelevanceSource
from arr_coc.seam.decoding import check_length
from arr_coc.seam.prompt import chat_prompt, refuse_placeholders
from arr_coc.selector import Selector
from arr_coc_mlx.choosing import Choice, Chooser
from arr_coc_mlx.columns import Keep, expanded, images_of_rows, kept_columns
from arr_coc_mlx.families import Family, find_family
from arr_coc_mlx.language import Language, spread
from arr_coc_mlx.processing import ENCODED_ALONE, PRUNED, Processor, shortened, unmarked
from arr_coc_mlx.towers import KeptCells, numbered

MODES = {mode.name: mode for mode in (FULL, PRUNE, SPARSE)}
"""Modes that run with MLX, by name."""
STAGES = ("prompt", "texture", "scoring", "balancing", "allocating", "gestalt", "encode", "prefill", "decode")
KNOWN = {
    *("inputs_embeds", "position_ids", "rope_deltas", "attention_mask"),
    *("visual_pos_masks", "deepstack_visual_embeds"),
}
"""What MLX-VLM may say of a prompt's embeddings so that its columns can be dropped."""
VIDEO = "arr-coc can't choose in videos with MLX yet: send images, or use mode 'full'"


def wrap(
    model: nn.Module,
    processor: Any,
    *,
    allocator: str | Path | None = None,
    budget: Budget | None = None,
    mode: str | None = None,
    strict: bool = False,
    relevance: str | RelevanceSource = "auto",
    device: str | None = "cpu",
) -> WrappedModel:
    """Put ARR-COC around a loaded model of MLX-VLM, which isn't changed.

    Args:
        model: as `mlx_vlm.load` returns it, quantised or not.
        processor: loaded with it.
        allocator: folder of a guide or of an allocator with a stem; None: the bundled guide.
        budget: cells of each image that are kept: a count, a fraction or "auto"; None: 273.
        mode: "prune", "sparse" or "full"; None: "prune".
        strict: raise where choosing fails, in place of keeping all cells.
        relevance: what says which cells a question needs, as of `arr_coc.Selector`.
        device: where pictures are looked at, in torch's words: "cpu", "mps"; None: the accelerator, if any.

    Raises:
        ValueError: no model or processor, a family that isn't served, or a bad budget, mode, allocator or
            relevance.
    """
    if isinstance(model, WrappedModel):
        model = model.unwrap()
    if isinstance(processor, Processor):
        processor = processor.stock
    if not (hasattr(model, "get_input_embeddings") and hasattr(processor, "image_processor")):
        raise ValueError(
            f"a {type(model).__name__} and a {type(processor).__name__} can't be wrapped: pass the model and "
            "the processor that mlx_vlm.load returns, in this order"
        )
    find_family(model.config.model_type)
    find_mode(mode)
    if budget is not None:
        parse_budget(budget)
    if relevance == "gaze":
        raise ValueError("relevance 'gaze' is of a model wrapped with transformers: use 'auto'")
    selector = Selector.from_pretrained(allocator, relevance=relevance, device=device)
    return WrappedModel(model, processor, selector, budget, mode, strict)


def find_mode(name: str | None) -> Mode:
    """Return a mode that runs with MLX; None: "prune".

    Raises:
        ValueError: no mode that runs with MLX has that name.
    """
    if name is None:
        return PRUNE
    if name not in MODES:
        raise ValueError(f"mode {name!r} doesn't run with MLX: use one of {', '.join(MODES)}")
    return MODES[name]


class WrappedModel(nn.Module):
    """A model of MLX-VLM with a choice of visual tokens; see `wrap`.

    It goes into `mlx_vlm.generate` and `stream_generate` in the place of the model. `batch_generate` and
    servers take `processor` in the place of the model's own, too.

    Attributes:
        base: the model.
        language_model: the model's own, told where a shortened prompt's columns are.
        processor: writes prompts that are short from the start.
        stock_processor: the model's own.
    """

    def __init__(
        self,
        base: nn.Module,
        processor: Any,
        selector: Selector,
        budget: Budget | None = None,
        mode: str | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__()
        self["base"] = base  # as modules are kept; setting it as an attribute would ask the base first
        self.family: Family = find_family(base.config.model_type)
        self.reader_config = getattr(base, "thinker", base).config  # of the part that reads pictures
        self.image_token = int(self.reader_config.image_token_id)
        own = Language(base.language_model, self.image_token, self.family.remembers, self.family.dense)
        object.__setattr__(self, "language_model", own)  # no module of its own: its weights are the base's
        self.stock_processor = processor
        self.chooser = Chooser(selector, processor, self.reader_config, strict)
        self.budget = budget
        self.mode = mode
        self.processor = Processor(self)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self["base"], name)

    def __repr__(self) -> str:
        return f"WrappedModel({self.config.model_type}, budget {self.budget}, mode {self.mode!r})"

    def unwrap(self) -> nn.Module:
        """Return the model as it came."""
        return self.base

    @property
    def budget(self) -> Budget:
        """Cells to keep of each image, for calls that name no budget."""
        return DEFAULT_BUDGET if self._budget is None else self._budget

    @budget.setter
    def budget(self, value: Budget | None) -> None:
        self._budget = None if value is None else parse_budget(value)

    @property
    def mode(self) -> str:
        """The mode of calls that name none; None restores "prune"."""
        return self._mode.name

    @mode.setter
    def mode(self, name: str | None) -> None:
        self._mode = find_mode(name)

    @property
    def chooses(self) -> bool:
        """Whether the mode drops cells."""
        return self._mode.chooses

    # ---- what MLX-VLM calls

    def get_input_embeddings(
        self, input_ids: mx.array | None = None, pixel_values: Any = None, **more: Any
    ) -> Any:
        """Return the embeddings of prompts, as the model's own, without the columns of dropped cells.

        Args:
            input_ids: int [B, L], by the model's own processor (one prompt), or shortened by `processor`.
            pixel_values: patches [P, values] of all images, with a mark each if `processor` made them.
            **more: `mask`, `image_grid_thw` and what else MLX-VLM hands on.

        Raises:
            ValueError: a video, several prompts by the model's own processor, or pixels that don't fit.
        """
        if more.get("pixel_values_videos") is not None and self.chooses:
            raise ValueError(VIDEO)
        if pixel_values is None or input_ids is None:
            return self.base.get_input_embeddings(input_ids, pixel_values, **more)
        grids = more.pop("image_grid_thw", None)
        vision = self.reader_config.vision_config
        values = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        has_marks = pixel_values.shape[-1] == values + 1
        if grids is None or not (has_marks or self.chooses):
            return self.base.get_input_embeddings(input_ids, pixel_values, image_grid_thw=grids, **more)
        mask = more.pop("mask", None)
        own = np.ones(input_ids.shape, dtype=bool) if mask is None else np.array(mask).astype(bool)
        rows = [row[columns] for row, columns in zip(np.array(input_ids), own, strict=True)]
        unit = vision.spatial_merge_size**2
        sizes = [t * h * w // unit for t, h, w in grids.tolist()]
        if len(rows) > 1 and not self.family.batches:
            raise ValueError(
                f"MLX-VLM answers several prompts of {self.config.model_type} at once in another way than "
                "each alone: ask one at a time"
            )
        if len(rows) > 1 and more.get("input_features") is not None:
            raise ValueError("several prompts at once, one with sound, aren't read: ask one at a time")
        if has_marks:
            pixel_values, keep, mark = unmarked(pixel_values, sizes, unit)
            owned = images_of_rows(rows, self.image_token, [len(cells) for cells in keep])
            rows = [
                expanded(row, self.image_token, [sizes[i] for i in mine], [keep[i] for i in mine])
                for row, mine in zip(rows, owned, strict=True)
            ]
        else:
            choices, mark = self.choices(rows, pixel_values, grids)
            keep = [choice.keep for choice in choices]
            owned = images_of_rows(rows, self.image_token, sizes)
            if len(rows) > 1:
                raise ValueError(
                    "several prompts at once are written by the wrapped model's processor: pass "
                    "`model.processor` in the place of the processor"
                )
        if mark == ENCODED_ALONE:  # a cache of vision features is keyed by the picture alone
            more = {k: v for k, v in more.items() if k not in ("vision_cache", "_image_key")}
        starts = np.cumsum([0, *(size * unit for size in sizes)])
        parts = []
        for row, mine in zip(rows, owned, strict=True):
            start, stop = int(starts[mine.start]), int(starts[mine.stop])
            own_keep = [keep[i] for i in mine]
            part = (pixel_values[start:stop], grids[mine.start : mine.stop]) if own_keep else (None, None)
            parts.append(self._embed(row, *part, own_keep, mark, more))
        return parts[0] if len(parts) == 1 and own.all() else _together(parts, own)

    def __call__(
        self, input_ids: mx.array, pixel_values: Any = None, mask: Any = None, cache: Any = None, **more: Any
    ) -> Any:
        """Return the language model's output for the columns that stay of one prompt."""
        features = self.get_input_embeddings(input_ids, pixel_values, mask=mask, **more)
        fields = {name: value for name, value in features.to_dict().items() if value is not None}
        return self.language_model(input_ids, cache=cache, **fields)

    def choices(
        self,
        rows: Sequence[np.ndarray],
        pixels: Any,
        grids: Any,
        budget: Budget | None = None,
        mode: str | None = None,
    ) -> tuple[list[Choice], float]:
        """Return the choice for each image of some prompts, and how kept cells are encoded.

        Args:
            rows: ids of the whole prompts, without padding.
            pixels: patches [P, values] of all images.
            grids: int [n, 3], (1, h, w) of each, in patches.
            budget: None: the model's.
            mode: None: the model's.

        Raises:
            ValueError: a clip, or images that don't fill the prompts' image tokens.
        """
        wanted = self._mode if mode is None else find_mode(mode)
        allowed = self.budget if budget is None else parse_budget(budget)
        listed = [(t, h, w) for t, h, w in np.array(grids).tolist()]
        unit = self.reader_config.vision_config.spatial_merge_size**2
        images = images_of_rows(rows, self.image_token, [t * h * w // unit for t, h, w in listed])
        levels = np.array(mx.array(pixels).astype(mx.float32))
        starts = np.cumsum([0, *(t * h * w for t, h, w in listed)])
        choices: list[Choice] = []
        for row, own in zip(rows, images, strict=True):
            if own:
                part = levels[starts[own.start] : starts[own.stop]]
                choices += self.chooser.choose(row, part, listed[own.start : own.stop], allowed)
        alone = wanted is SPARSE and self.family.tower is not None
        return choices, ENCODED_ALONE if alone else PRUNED

    def _embed(
        self, ids: np.ndarray, pixels: Any, grids: Any, keep: Keep, mark: float, more: dict[str, Any]
    ) -> Any:
        """Return the embeddings of one whole prompt [L] without the columns of its dropped cells."""
        prompt = mx.array(ids)[None]
        if pixels is None:
            features = self.base.get_input_embeddings(prompt, None, mask=mx.ones_like(prompt), **more)
            if features.position_ids is None:
                features.position_ids, features.rope_deltas = self.base.language_model.get_rope_index(prompt)
            return features
        unit = self.reader_config.vision_config.spatial_merge_size**2
        sizes = [t * h * w // unit for t, h, w in grids.tolist()]
        model, every = self.base, sum(sizes) == sum(map(len, keep))
        if mark == ENCODED_ALONE and not every:
            model = reader = copy.copy(self.base)  # its modules are the model's own
            if "thinker" in model:
                model.thinker = reader = copy.copy(model.thinker)
            reader.vision_tower = KeptCells(reader.vision_tower, self.family.tower, keep)
        features = model.get_input_embeddings(
            prompt, pixels, mask=mx.ones_like(prompt), image_grid_thw=grids, **more
        )
        if self.family.remembers:
            features.position_ids = self.base.language_model._position_ids
            features.rope_deltas = self.base.language_model._rope_deltas
        if strange := [k for k, v in features.to_dict().items() if v is not None and k not in KNOWN]:
            raise ValueError(
                f"MLX-VLM's {self.config.model_type} says {', '.join(strange)} of its prompts, which arr-coc "
                "doesn't know how to shorten: use mode 'full'"
            )
        columns = mx.array(kept_columns(ids, self.image_token, sizes, keep))
        features.inputs_embeds = features.inputs_embeds[:, columns]
        features.position_ids = features.position_ids[..., columns]
        features.rope_deltas = features.rope_deltas + (len(ids) - len(columns))
        features.attention_mask = None  # of one prompt without padding
        if features.visual_pos_masks is not None:
            features.visual_pos_masks = features.visual_pos_masks[:, columns]
        levels = features.deepstack_visual_embeds
        if levels is not None and self.family.dense:
            features.deepstack_visual_embeds = levels[:, columns]
        elif levels is not None:
            kept = mx.array(numbered(keep, sizes))
            levels = getattr(levels, "embeddings", levels)  # Compass's are in a record
            features.deepstack_visual_embeds = spread(features.visual_pos_masks[0], levels, kept)
        if self.family.remembers:
            self.base.language_model._position_ids = features.position_ids
            self.base.language_model._rope_deltas = features.rope_deltas
        return features

    # ---- what a user calls

    def ask(
        self,
        image: ImageSource | Sequence[ImageSource],
        question: str,
        budget: Budget | None = None,
        mode: str | None = None,
        max_new_tokens: int = 32,
        **how: Any,
    ) -> Answer:
        """Answer one question about an image or a list of them, as `arr_coc.ARRCOCModel.ask` does.

        Args:
            image: whatever `open_image` takes, an array of MLX, or a list of these.
            question: any text.
            budget: cells to keep of each image; None: the model's.
            mode: None: the model's.
            max_new_tokens: the longest answer; `max_tokens`, as MLX-VLM calls it, wins.
            **how: options of `mlx_vlm.generate`, such as `temperature`.

        Raises:
            ValueError: an image or question that can't be read, or a bad budget, mode or length.
        """
        from mlx_vlm import generate
        from mlx_vlm.utils import prepare_inputs, should_add_special_tokens

        start = time.perf_counter()
        check_question(question)
        check_length(max_new_tokens)
        wanted = self._mode if mode is None else find_mode(mode)
        allowed = self.budget if budget is None else parse_budget(budget)
        listed = image if isinstance(image, list | tuple) else [image]
        if not listed:
            raise ValueError("the list of images is empty: give one image or more")
        images = [open_image(np.array(one) if isinstance(one, mx.array) else one) for one in listed]
        refuse_placeholders(self.stock_processor, self.image_token, question, [])
        text = chat_prompt(self.stock_processor, question, len(images))
        adds = should_add_special_tokens(self.config.model_type, self.stock_processor)
        inputs = prepare_inputs(self.stock_processor, images=images, prompts=text, add_special_tokens=adds)
        prepared = time.perf_counter()
        if wanted.chooses:
            inputs, choices = shortened(self, inputs, budget=allowed, mode=wanted.name)
        else:
            merge = self.chooser.merge
            grids = [(t, h // merge, w // merge) for t, h, w in inputs["image_grid_thw"].tolist()]
            choices = [Choice(everything_kept(grid)) for grid in grids]
        chosen = time.perf_counter()
        inputs["mask"] = inputs.pop("attention_mask")
        model = self.base if wanted is FULL else self
        how = {"max_tokens": max_new_tokens, **inputs, **how}
        result = generate(model, self.stock_processor, text, **how)
        end = time.perf_counter()
        prefill = 1000 * result.prompt_tokens / result.prompt_tps if result.prompt_tps else 0.0
        ms = dict.fromkeys(STAGES, 0.0)
        ms |= {"prompt": 1000 * (prepared - start), "scoring": 1000 * (chosen - prepared)}
        ms |= {"prefill": prefill, "decode": 1000 * (end - chosen) - prefill, "other": 0.0}
        return self._answer(result.text.strip(), choices, ms, wanted, budget, question, images)

    def _answer(
        self,
        text: str,
        choices: list[Choice],
        ms: dict[str, float],
        wanted: Mode,
        budget: Budget | None,
        question: str,
        images: Sequence[Image.Image],
    ) -> Answer:
        allocations = tuple(choice.allocation for choice in choices)
        ran, substituted = wanted, None
        if wanted is SPARSE and self.family.tower is None:
            ran, substituted = (
                PRUNE,
                (
                    f"sparse ran as prune: the vision tower of {self.config.model_type} can't encode some "
                    "cells alone"
                ),
            )
        allowed, fallback = self.budget if budget is None else budget, any(c.fallback for c in choices)
        kept, sizes = sum(one.kept for one in allocations), [one.total for one in allocations]
        named = budget is not None or self._budget is not None
        note = joined(
            substituted,
            unused(ran, budget, False),
            budget_exceeds_image(allowed, sizes) if named and ran.chooses else None,
            "choosing cells failed, so all were kept: the log says why" if fallback else None,
            joined_notes(allocations),
        )
        couplings = tuple(c.coupling for c in choices if c.coupling is not None)
        return Answer(
            text=text,
            allocation=allocations[0],
            ms=ms | {"total": sum(ms.values())},
            fallback=fallback,
            mode=ran.name,
            budget=allowed,
            kept=kept,
            total=sum(sizes),
            read=kept,
            note=note,
            allocations=allocations,
            question=question,
            images=tuple(images),
            couplings=couplings if len(couplings) == len(choices) else (),
        )


def _together(parts: Sequence[Any], own: np.ndarray) -> Any:
    """Return the embeddings of several prompts as one, each in its own columns, bool [B, L]."""
    like, fields = parts[0], {}
    length = own.shape[1]
    bounds = [(int(columns.argmax()), int(length - columns[::-1].argmax())) for columns in own]

    def padded(values: mx.array, row: int, axis: int) -> mx.array:
        sides = [(0, 0)] * values.ndim
        start, stop = bounds[row]
        sides[axis] = (start, length - stop)
        return mx.pad(values, sides)

    def joined_rows(name: str, axis: int, batch: int = 0) -> mx.array:
        rows = [padded(getattr(part, name), i, axis) for i, part in enumerate(parts)]
        return mx.concatenate(rows, axis=batch)

    fields["inputs_embeds"] = joined_rows("inputs_embeds", 1)
    flat = all(part.position_ids.ndim == 2 for part in parts)
    for part in parts:
        if part.position_ids.ndim == 2 and not flat:  # of a prompt without pictures
            part.position_ids = mx.broadcast_to(part.position_ids[None], (3, *part.position_ids.shape))
    fields["position_ids"] = joined_rows("position_ids", *((1, 0) if flat else (2, 1)))
    fields["rope_deltas"] = mx.concatenate([part.rope_deltas for part in parts])
    deep = next((p.deepstack_visual_embeds for p in parts if p.deepstack_visual_embeds is not None), None)
    if any(part.visual_pos_masks is not None for part in parts):
        for part in parts:
            columns = part.inputs_embeds.shape[1]
            if part.visual_pos_masks is None:
                part.visual_pos_masks = mx.zeros((1, columns), dtype=mx.bool_)
            if deep is not None and part.deepstack_visual_embeds is None:
                part.deepstack_visual_embeds = mx.zeros((1, columns, *deep.shape[2:]), dtype=deep.dtype)
        fields["visual_pos_masks"] = joined_rows("visual_pos_masks", 1)
        if deep is not None:
            fields["deepstack_visual_embeds"] = joined_rows("deepstack_visual_embeds", 1)
    return type(like)(**fields)
