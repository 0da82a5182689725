"""Methods that choose before the vision encoder, or send a coarse view in place of the image.

    by_mode("sparse")(view, question, 64, encoded, watch) -> Ready(prompt for the base model, kept cells)
    encoded_alone(rule)                        the cells of any rule that reads no encoded token

Each encodes what it needs itself; the view's own encoding is used only through `encoded`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.modes import SPARSE, find_mode
from arr_coc.modes.call import EncodedImages
from arr_coc.modes.route import encode_parts
from arr_coc.seam import Compacted
from arr_coc.seam.tower_compressor import TowerCompressor
from arr_coc_lab.evaluate.view import View
from arr_coc_lab.rivals.method import Count
from arr_coc_lab.rivals.reduction import Reduction

Spend = Count | None
"""A count, "auto", or None for methods of fixed cost."""


@dataclass(frozen=True, eq=False)
class Ready:
    """A prompt of one row, and its cells long [K] in raster order (None: no token is a cell).

    `allocation` is the record of a choice that made one.
    """

    compacted: Compacted
    keep: Tensor | None
    allocation: Allocation | None = None


Prepare = Callable[[View, int, Spend, EncodedImages, Stopwatch], Ready]
"""(view, question, budget, encodings shared by earlier questions, stage timer) -> Ready."""


def by_mode(mode: str, gestalt: str | None = None) -> Prepare:
    """Return the model's own `prepare` in mode "sparse", "saccade" or "compress"; `gestalt` None: the usual
    one.
    """
    more: dict[str, Any] = {} if gestalt is None else {"gestalt": gestalt}

    def prepare(view: View, i: int, budget: Spend, encoded: EncodedImages, watch: Stopwatch) -> Ready:
        prepared = view.model.prepare(
            view.prompts[i], budget=budget, mode=mode, encoded=encoded, watch=watch, **more
        )
        if find_mode(mode).coarse:
            return Ready(prepared.compacted, None)
        allocation = prepared.allocations[0]
        return Ready(prepared.compacted, allocation.keep, allocation)

    return prepare


def encoded_alone(select: Callable[[View, int, Any], Reduction]) -> Prepare:
    """Return the cells that a rule chooses, encoded without the others; the rule must read no encoded
    token.
    """

    def prepare(view: View, i: int, budget: Spend, encoded: EncodedImages, watch: Stopwatch) -> Ready:
        adapter, inputs = view.model.adapter, view.prompts[i]
        with watch("scoring"):
            chosen = select(view, i, budget)
            keep = chosen.keep.to(view.model.device)
        layout = adapter.layout(inputs)
        with watch("encode"):
            fine = encode_parts(view.model.chooser, SPARSE, inputs, [keep], layout.sizes)
        return Ready(adapter.assemble(inputs, layout, [keep], fine, None), keep, chosen.allocation)

    return prepare


def whole_image(view: View, inputs: Mapping[str, Any]) -> Ready:
    """Return a prompt with every cell of its image encoded and read; the image may be another than the
    view's.
    """
    adapter = view.model.adapter
    features = adapter.features(inputs)
    cells = torch.arange(len(features.cells[0]), device=view.model.device)
    return Ready(adapter.compact(inputs, features, [cells]), None)


def averaged_patches(factor: int) -> Prepare:
    """Return the untrained null of tower compressors: 4 or 16 patches averaged into one half-way up the
    tower.
    """

    def prepare(view: View, i: int, budget: Spend, encoded: EncodedImages, watch: Stopwatch) -> Ready:
        adapter: Any = view.model.adapter
        inputs, name = view.prompts[i], f"averaged patches {factor}"
        if name not in encoded.gestalts:
            compressor = TowerCompressor.of(adapter.tower, factor)
            with watch("gestalt"):
                encoded.gestalts[name] = compressor(adapter, inputs)
        layout = adapter.layout(inputs)
        # no cell follows the coarse view
        none = [torch.zeros(0, dtype=torch.long, device=cells.device) for cells in layout.cells]
        return Ready(adapter.assemble(inputs, layout, none, None, encoded.gestalts[name]), None)

    return prepare


def of_another_question(view: View, i: int, budget: Count) -> Reduction:
    """Return the cells that mode "sparse" takes for another image's question."""
    other = view.others[i]
    assert other is not None, "run only on questions that have another image's"
    encoded = view.encoded(SPARSE.name)
    prepared = view.model.prepare(other, budget=budget, mode=SPARSE.name, encoded=encoded)
    (allocation,) = prepared.allocations
    return Reduction(allocation.keep, allocation=allocation)
