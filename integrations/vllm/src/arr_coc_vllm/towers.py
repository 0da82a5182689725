"""What a vision tower needs to know of chosen patches, in place of what it would compute from whole grids.

    qwen2_metadata(visual, grids, keep)      Qwen2-VL: positions, and one attention segment per image
    qwen2_5_metadata(visual, grids, keep)    Qwen2.5-VL: and windows, of which each cell keeps its own
    qwen3_metadata(visual, grids, keep)      Qwen3-VL and Qwen3.5: and learned positions
    glm_metadata(visual, grids, keep)        GLM-4V: as Qwen3-VL; GLM-OCR: without learned positions

Positions are computed by the tower for the whole grids and then indexed by the kept rows. Each takes the
tower, the grids (1, h, w) of the images in patches, and per image its kept cells, long [K], rising; each
returns the `encoder_metadata` of vLLM's towers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention

from arr_coc.seam.pixels import kept_windows, patch_rows

Grids = Sequence[Sequence[int]]


def qwen2_metadata(visual: Any, grids: Grids, keep: Sequence[Tensor]) -> dict[str, Any]:
    """Of Qwen2-VL's tower."""
    cos, sin = visual.rot_pos_emb(grids)
    rows = _rows(visual, grids, keep)
    bounds = torch.from_numpy(_bounds(visual, keep))
    return {
        "rotary_pos_emb_cos": cos[rows],
        "rotary_pos_emb_sin": sin[rows],
        "cu_seqlens": bounds.to(visual.device),
        "max_seqlen": visual.compute_attn_mask_seqlen(bounds),
    }


def qwen3_metadata(visual: Any, grids: Grids, keep: Sequence[Tensor]) -> dict[str, Any]:
    """Of Qwen3-VL's tower, which is Qwen3.5's, too."""
    cos, sin = visual.rot_pos_emb(grids)
    rows = _rows(visual, grids, keep)
    segments = _segments(visual, _bounds(visual, keep))
    return {
        "pos_embeds": visual.fast_pos_embed_interpolate(grids)[rows],
        "rotary_pos_emb_cos": cos[rows],
        "rotary_pos_emb_sin": sin[rows],
        **dict(zip(("cu_seqlens", "max_seqlen", "sequence_lengths"), segments, strict=True)),
    }


def qwen2_5_metadata(visual: Any, grids: Grids, keep: Sequence[Tensor]) -> dict[str, Any]:
    """Of Qwen2.5-VL's tower, whose patches stand in the order of their windows."""
    unit, cells_before = visual.spatial_merge_size**2, 0
    orders, cosines, sines, ends = [], [], [], [np.zeros(1, dtype=np.int32)]
    for (t, h, w), cells in zip(grids, keep, strict=True):
        index, windows = visual.get_window_index_thw(t, h, w)
        order, bounds = kept_windows(cells, index, F.pad(windows, (1, 0)), unit)
        cos, sin = (values[cells[order].to(values.device)] for values in visual.rotary_pos_emb_thw(t, h, w))
        cosines.append(cos.flatten(0, 1))
        sines.append(sin.flatten(0, 1))
        orders.append(order + cells_before)
        ends.append(bounds[1:].numpy() + np.int32(cells_before * unit))
        cells_before += len(cells)
    order = torch.cat(orders)
    full = _segments(visual, _bounds(visual, keep))
    window = _segments(visual, np.concatenate(ends).astype(np.int32))
    return {
        "rotary_pos_emb_cos": torch.cat(cosines).to(visual.device),
        "rotary_pos_emb_sin": torch.cat(sines).to(visual.device),
        "window_index": order.to(visual.device),
        "reverse_indices": order.argsort().to(visual.device),
        **dict(zip(("cu_seqlens", "max_seqlen_full", "sequence_lengths_full"), full, strict=True)),
        **dict(
            zip(("cu_window_seqlens", "max_seqlen_window", "sequence_lengths_window"), window, strict=True)
        ),
    }


def glm_metadata(visual: Any, grids: Grids, keep: Sequence[Tensor]) -> dict[str, Any]:
    """Of GLM-4V's tower, and of GLM-OCR's, which has no learned positions."""
    cos, sin, _ = visual.rot_pos_emb(grids)
    rows = _rows(visual, grids, keep)
    segments = _segments(visual, _bounds(visual, keep))
    metadata = {
        "rotary_pos_emb_cos": cos[rows],
        "rotary_pos_emb_sin": sin[rows],
        **dict(zip(("cu_seqlens", "max_seqlen", "sequence_lengths"), segments, strict=True)),
    }
    if hasattr(visual, "embeddings"):
        metadata["pos_embeds"] = visual.pos_embeds_interpolate(grids)[rows]
    return metadata


def glm_ocr_tokens(visual: Any, pixels: Tensor, metadata: dict[str, Any]) -> Tensor:
    """The tokens [K, D] of some cells' patches, by GLM-OCR's tower, step by step.

    Its own `forward` works positions and segments out from whole grids, whatever it is told.
    """
    hidden = visual.patch_embed(visual.input_norm(pixels.to(visual.device), visual.dtype))[:, None]
    names = ("cu_seqlens", "rotary_pos_emb_cos", "rotary_pos_emb_sin", "max_seqlen")
    places = {name: metadata[name] for name in names}
    for block in visual.blocks:
        hidden = block(hidden, **places)
    merge = visual.spatial_merge_size
    cells = visual.post_layernorm(hidden).view(-1, merge, merge, visual.hidden_size)
    shrunk = visual.downsample(cells.permute(0, 3, 1, 2))  # a convolution over each cell's own patches
    return visual.merger(shrunk.view(-1, visual.out_hidden_size))


def _rows(visual: Any, grids: Grids, keep: Sequence[Tensor]) -> Tensor:
    """The kept patches, numbered over all images: long [R] on the tower's device."""
    starts = np.cumsum([0, *(t * h * w for t, h, w in grids)]).tolist()
    parts = [
        patch_rows(cells, visual.spatial_merge_size**2) + start
        for cells, start in zip(keep, starts, strict=False)
    ]
    return torch.cat(parts).to(visual.device)


def _bounds(visual: Any, keep: Sequence[Tensor]) -> np.ndarray:
    """Where the patches of each image begin and end: int32 [images + 1]."""
    return np.cumsum([0, *(len(cells) * visual.spatial_merge_size**2 for cells in keep)], dtype=np.int32)


def _segments(visual: Any, bounds: np.ndarray) -> tuple[Tensor, Tensor, Tensor | None]:
    """Attention segments as the tower's backend wants them: boundaries, the longest, all lengths."""
    backend, device = visual.attn_backend, visual.device
    longest = MMEncoderAttention.compute_max_seqlen(backend, bounds)
    lengths = MMEncoderAttention.maybe_compute_seq_lens(backend, bounds, device)
    boundaries = MMEncoderAttention.maybe_recompute_cu_seqlens(
        backend,
        bounds,
        visual.hidden_size,
        visual.tp_size,
        device,
        fp8_padded_hidden_size=getattr(visual, "fp8_padded_hidden_size", None),
    )
    return boundaries, torch.tensor(longest, dtype=torch.int32), lengths
