"""Observation of attention: the queries and keys of a loaded model, without changing it or its results.

    with watch_attention(model, "language", observe) as watched: watched(**inputs)

Fused kernels never form the probabilities, so observers get queries and keys and compute the rows they need.
Shapes: B batch, H query heads, G key heads (H a multiple of G), Q queries, S keys, d head width.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from arr_coc.seam.loaded import refresh, twin, twin_key, with_configs

Part = Literal["language", "vision"]
# observe(layer, query [B, H, Q, d], key [B, G, S, d], scaling, mask bool [B or 1, 1, Q, S] or None)
Observer = Callable[[int, Tensor, Tensor, float, Tensor | None], None]

WATCHED = "arr_coc_watched_sdpa"
# By attention module its layer and observer, in this context only: other threads aren't observed.
_watching: ContextVar[Mapping[nn.Module, tuple[int, Observer]]] = ContextVar("watching")


def _watched_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention by sdpa, after a call of the module's observer if it has one."""
    if module in (watching := _watching.get({})):
        layer, observe = watching[module]
        causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
        mask, (rows, columns) = attention_mask, (query.shape[2], key.shape[2])
        if mask is None and causal and rows > 1:  # sdpa takes a flag; an observer gets only the mask
            mask = torch.ones(rows, columns, dtype=torch.bool, device=query.device).tril_()[None, None]
        observe(layer, query, key, query.shape[-1] ** -0.5 if scaling is None else scaling, mask)
    if kwargs.get("softcap") is not None:
        return _softcapped(query, key, value, attention_mask, scaling, kwargs["softcap"]), None
    sdpa = AttentionInterface()["sdpa"]
    return sdpa(module, query, key, value, attention_mask, scaling=scaling, is_causal=is_causal, **kwargs)


def _softcapped(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None, softcap: float
) -> Tensor:
    """Attention whose scores stay within -softcap to softcap (Gemma 2), which sdpa can't: [B, Q, H, d]."""
    groups = query.shape[1] // key.shape[1]
    # each key head serves `groups` query heads
    keys, values = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = softcap * torch.tanh(query @ keys.transpose(-1, -2) * scale / softcap)
    if mask is None:
        rows, columns = scores.shape[-2:]
        mask = torch.ones(rows, columns, dtype=torch.bool, device=query.device).tril_(columns - rows)
    if mask.is_floating_point():
        scores = scores + mask
    else:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    shares = scores.softmax(-1, dtype=torch.float32)
    return (shares.to(query.dtype) @ values).transpose(1, 2).contiguous()


AttentionInterface.register(WATCHED, _watched_attention)
AttentionMaskInterface.register(WATCHED, AttentionMaskInterface()["sdpa"])


def attention_modules(model: PreTrainedModel, part: Part) -> list[nn.Module]:
    """Return the attention modules of one part of a model, in order, without recurrent layers.

    A ValueError for an unknown part, or a model without one.
    """
    if part not in ("language", "vision"):
        raise ValueError(f'part {part!r} is unknown; use "language" or "vision"')
    root = _part(model, part)
    modules = [m for m in root.modules() if hasattr(m, "is_causal") and hasattr(m, "config")]
    if root is model or not modules:
        raise ValueError(
            f"{type(model).__name__} has no {part} part with attention to watch; pass the whole "
            "image-text-to-text model"
        )
    return modules


@contextmanager
def watch_attention(
    model: PreTrainedModel, part: Part, observe: Observer
) -> Generator[PreTrainedModel, None, None]:
    """Yields a copy of a model that calls `observe` at every attention of its `part`, "language" or "vision".

    The copy shares the weights. `observe` gets queries and keys after rotary positions, with the keys of the
    cache; layers count the part's attention modules from 0. Mask None: every query attends to every key;
    causal attention always has its mask. A vision tower may call it for each image or window (Qwen), or once
    per layer for all pictures (CLIP, SigLIP). An exception that it raises ends the call. The part runs sdpa:
    a model configured for sdpa computes the same bits. Only calls in the context (`contextvars`) that opened
    the watch are observed. For both parts, watch the copy again.
    """
    attention_modules(model, part)  # raises before a twin is made
    watched = _watched_twin(model, part)
    layers = {module: (layer, observe) for layer, module in enumerate(attention_modules(watched, part))}
    outer = _watching.get({})
    if outer:  # a model that is a watched twin itself: the twin of a watched module is watched, too
        pairs = zip(model.modules(), watched.modules(), strict=True)
        layers = {new: outer[old] for old, new in pairs if old in outer} | layers
    token = _watching.set({**outer, **layers})
    try:
        yield watched
    finally:
        _watching.reset(token)


# By model and part its watched twin, and the `twin_key` that it was made under.
_TWINS: weakref.WeakKeyDictionary[nn.Module, dict[Part, tuple[Any, PreTrainedModel]]]
_TWINS = weakref.WeakKeyDictionary()


def _watched_twin(model: PreTrainedModel, part: Part) -> PreTrainedModel:
    """Return the cached twin of a model in which one part runs `WATCHED` attention."""
    key, twins = twin_key(model), _TWINS.setdefault(model, {})
    if part not in twins or twins[part][0] != key:
        watched = twin(model)
        with_configs(_part(watched, part), _watched_config)
        twins[part] = (key, watched)
    return refresh(twins[part][1])


def _watched_config(config: Any) -> None:
    config._attn_implementation = {"": WATCHED}  # {"": ...}: this configuration, not the ones inside it


def _part(model: Any, part: Part) -> Any:
    return model.get_decoder() if part == "language" else model.get_encoder(modality="image")


def attention_rows(query: Tensor, key: Tensor, scaling: float, mask: Tensor | None = None) -> Tensor:
    """Attention probabilities float32 [B, H, R, S] of queries [B, H, R, d] to keys [B, G, S, d].

    `mask` [B or 1, 1 or H, R, S] is bool (True: attended) or float (added), or [B, S] of keys. `scaling`
    multiplies the products before softmax. A row that attends to nothing is 0.
    """
    heads, groups = query.shape[1], key.shape[1]
    if heads % groups:
        raise ValueError(f"{heads} query heads are no multiple of {groups} key heads; pass them as observed")
    keys = key.float().repeat_interleave(heads // groups, dim=1)
    # float32: half precision would round small probabilities of long prompts to 0
    scores = query.float() @ keys.transpose(-1, -2) * scaling  # (B, H, R, S)
    if mask is None:
        return scores.softmax(-1)  # over keys S
    if mask.ndim == 2:
        mask = mask.bool()[:, None, None]  # (B, 1, 1, S)
    if mask.is_floating_point():
        scores, mask = scores + mask, mask > torch.finfo(mask.dtype).min
    hidden = ~mask.bool()  # softmax over nothing is NaN: such rows become 0 by the second fill
    return scores.masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden, 0.0)


def attention_received(query: Tensor, key: Tensor, scaling: float, rows: int = 1024) -> Tensor:
    """Return the attention that each key [G, S, d] receives, its mean over unmasked queries [H, Q, d]:
    float32 [S].

    `rows` queries at a time: at most H x rows x S probabilities are held.
    """
    if rows < 1:
        raise ValueError(f"rows {rows} is below 1; use how many queries to hold at a time, such as 1024")
    received = torch.zeros(key.shape[1], device=key.device)
    for block in query.split(rows, dim=1):
        # sum over heads H and queries
        received += attention_rows(block[None], key[None], scaling)[0].sum((0, 1))
    return received / (query.shape[0] * query.shape[1])
