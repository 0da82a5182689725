"""Key/value caches of a call: their name in this release of transformers, and which of them can be continued.

A call that dropped tokens leaves a cache with fewer columns than the prompt that the caller holds. Nothing in
it says so, so such caches are marked, and refused where the whole prompt would be continued.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils import ModelOutput

CACHE = "cache" if "cache" in BaseModelOutputWithPast.__dataclass_fields__ else "past_key_values"
"""The argument, and the output, that is a key/value cache: `cache` since transformers 5.24, which deprecates
the older name, `past_key_values`.
"""

LACKING = "arr_coc_lacks_tokens"
"""The attribute of a key/value cache whose call dropped tokens."""


def cache_of(arguments: Mapping[str, Any]) -> Any:
    """The key/value cache among the arguments of a call, by its name of today or the older one; or None."""
    cache = arguments.get(CACHE)
    return arguments.get("past_key_values") if cache is None else cache


def refuse_continuation(inputs: Mapping[str, Any], stock: bool) -> None:
    """Check a call's key/value cache.

    Args:
        inputs: arguments of the call.
        stock: whether it runs as the stock model.

    Raises:
        ValueError: a stock call continues a cache that lacks tokens; another one continues any cache.
    """
    past = cache_of(inputs)
    if stock:
        refuse_pruned_cache(past)
        return
    refuse_cache(past)


def refuse_cache(past: Any) -> None:
    """Check that a key/value cache passed by the caller is empty.

    Raises:
        ValueError: it is filled; a call that drops tokens can't continue it, with or without new images.
    """
    if past is not None and past.get_seq_length() > 0:
        raise ValueError(
            f"{CACHE} can't be continued while tokens are dropped: a cache doesn't say which tokens it "
            "lacks; pass the whole conversation with its images and no cache, or use "
            "mode='full' in every turn"
        )


def mark_caches(output: Any, past: Any, columns: Tensor, length: int) -> None:
    """Mark the key/value caches of a call that dropped tokens of the prompt, for `refuse_pruned_cache`.

    Args:
        output: returned by the base model; the caches in it, if any, are marked.
        past: the cache that the caller passed to be filled, or None.
        columns: long [B, S'], `Compacted.columns` of the call.
        length: S of the whole prompt.
    """
    if columns.shape[1] == length and bool((columns == torch.arange(length, device=columns.device)).all()):
        return
    results = output.to_tuple() if isinstance(output, ModelOutput) else output
    for cache in (past, *(results if isinstance(results, tuple) else ())):
        if isinstance(cache, Cache):
            setattr(cache, LACKING, True)


def refuse_pruned_cache(past: Any) -> None:
    """Check, for mode "full", that a cache is not of a call that dropped tokens (see `mark_caches`).

    Such a cache has fewer columns than the prompt that the caller holds, so the stock model would read the
    prompt's end again or skip some of it. A mark on a cache that was emptied since is removed.

    Raises:
        ValueError: it is of such a call.
    """
    if not getattr(past, LACKING, False):
        return
    if past.get_seq_length() == 0:
        delattr(past, LACKING)
        return
    raise ValueError(
        f"{CACHE} comes from a call that dropped visual tokens, and mode='full' can't continue it: it is "
        "shorter than the prompt; use mode='full' in every turn, or pass the whole conversation "
        "with its images and no cache"
    )
