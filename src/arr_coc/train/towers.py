"""The losses of compressors inside the vision tower: the whole tower teaches, and so do answers.

    tower    tower4 and tower16: the merging of patches half-way, and a LoRA of the tower each

Two lessons. **Features** (`echo`): what a gestalt made of the whole tower's own tokens is, conv4 or conv16
where the allocator has them and else their average, is what the tower is to make of merged patches,
deepstack levels included (self-distillation; Hinton et al. 2015). No question and no language model is
needed. **Answers**: the right one, or the model's own with all tokens where there is none, read from the
gestalt alone by the frozen language model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from arr_coc.model import ARRCOCModel
from arr_coc.modes import COMPRESS
from arr_coc.seam import Layout, VisualFeatures
from arr_coc.seam.batching import compacted_costs
from arr_coc.seam.gestalt import CONVS, pooled
from arr_coc.seam.tower_compressor import TOWERS, TowerCompressor
from arr_coc.train.recipe import Recipe


def prepare_towers(model: ARRCOCModel, recipe: Recipe) -> None:
    """Make the compressors of a recipe learn, new ones where the allocator has none, and a LoRA for each.

    Raises:
        ValueError: the vision tower can't be run in two halves.
    """
    if not model.adapter.halves:
        raise ValueError(
            f"stage is 'tower', but the vision tower of {model.config.model_type} can't be run in two "
            "halves: use stage=compressor"
        )
    adapter: Any = model.adapter
    for name in recipe.compressors:
        if name not in model.convs:
            model.convs[name] = TowerCompressor.of(adapter.tower, TOWERS[name])
        model.convs[name].to(model.device, torch.float32).requires_grad_(True)
        if name not in model.loras:
            model.loras.add(name, recipe.lora)
        for parameter in model.loras.parameters_of(name):
            parameter.data = parameter.data.float().to(model.device)
            parameter.requires_grad_(True)


def tower_gestalt(model: ARRCOCModel, name: str, inputs: Mapping[str, Any]) -> VisualFeatures:
    """The gestalt of the images by one compressor and its LoRA, with gradient to both."""
    return model.convs[name](model.adapter.on(model.loras.model_for((name,))), inputs)


@torch.no_grad()
def taught_gestalt(model: ARRCOCModel, name: str, whole: VisualFeatures) -> VisualFeatures:
    """What is to come of it: the gestalt of as many tokens that is made of the whole tower's."""
    factor = TOWERS[name]
    conv = next((conv for conv, cells in CONVS.items() if cells == factor and conv in model.convs), None)
    return pooled(whole, factor) if conv is None else model.convs[conv](whole)


def gestalt_costs(
    model: ARRCOCModel, batch: Mapping[str, Any], layout: Layout, gestalt: VisualFeatures
) -> Tensor:
    """Mean cross-entropy of each answer [Q] from a gestalt alone, as mode "compress" reads it.

    Args:
        model: the model.
        batch: of `Session.batch` with answers, Q prompts about one image.
        layout: of that image, every token of which is a cell.
        gestalt: of that image.
    """
    adapter, rows = model.adapter_for(COMPRESS), len(batch["input_ids"])
    none = [torch.zeros(0, dtype=torch.long, device=model.device)] * rows
    compacted = adapter.assemble(
        batch, layout.repeat(rows), none, None, gestalt.repeat(rows), use_cache=False
    )
    return compacted_costs(adapter, compacted)


def feature_loss(gestalt: VisualFeatures, taught: VisualFeatures, whole: VisualFeatures) -> Tensor:
    """How far a gestalt is from what it is taught: the share of the variance that is missed, mean over
    levels.

    Args:
        gestalt: of the merged patches.
        taught: of the same grids.
        whole: the image's own tokens, whose variance is the unit.

    Returns:
        0 where nothing differs, about 1 where nothing is known.
    """
    stacks = [(part.tokens, *part.levels) for part in (gestalt, taught, whole)]
    return torch.stack([missed_share(*level) for level in zip(*stacks, strict=True)]).mean()


def missed_share(ours: Sequence[Tensor], theirs: Sequence[Tensor], scale: Sequence[Tensor]) -> Tensor:
    """The mean square difference of tokens [K, D] in units of the variance of others, mean over the pairs."""
    parts = [
        (a.float() - b.float()).square().mean() / c.float().var(0).mean().clamp_min(1e-6)
        for a, b, c in zip(ours, theirs, scale, strict=True)
    ]
    return torch.stack(parts).mean()
