"""The beginning that all questions about one image share: read by the language model once, kept in its cache.

A gestalt stands first in the prompt and depends on no question, so what the language model makes of it (and
of the words before it) can be kept: each new question pays for its saccades and its words alone.

Law: answers are those of the whole prompt, up to rounding.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from arr_coc.seam import PROMPT_NAMES, Compacted
from arr_coc.seam.compaction import GESTALT

PER_COLUMN = (*PROMPT_NAMES, "position_ids")


@dataclass(frozen=True)
class Prefix:
    """A beginning that was read.

    Attributes:
        ids: long [P], what was read.
        coarse: how many gestalt tokens are among them.
        cache: keys and values of the P columns; copied for every use.
    """

    ids: Tensor
    coarse: int
    cache: DynamicCache


def shared_columns(compacted: Compacted) -> int:
    """How many columns of a prompt of one row and one image depend on no question; 0 without a gestalt."""
    columns = compacted.columns
    coarse = (columns[0] == GESTALT).nonzero().flatten()
    return int(coarse[-1]) + 1 if len(columns) == 1 and len(coarse) else 0


@torch.no_grad()
def read_prefix(base: Any, compacted: Compacted) -> Prefix | None:
    """Let the language model read what all questions share; None where there is no gestalt."""
    length = shared_columns(compacted)
    if not length:
        return None
    kwargs = compacted.kwargs
    coarse = int((compacted.columns[0] == GESTALT).sum())
    cache = DynamicCache(config=base.config.get_text_config())
    some = {name: kwargs[name][..., :length] for name in PER_COLUMN if kwargs.get(name) is not None}
    some["mm_encoder_outputs"] = _tokens(kwargs, slice(0, coarse))
    base(**some, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return Prefix(kwargs["input_ids"][0, :length], coarse, cache)


def after(prefix: Prefix | None, compacted: Compacted) -> Compacted:
    """The same prompt, of which the beginning need not be read again; as it is where it begins otherwise."""
    if prefix is None or shared_columns(compacted) != len(prefix.ids):
        return compacted
    if not torch.equal(compacted.kwargs["input_ids"][0, : len(prefix.ids)], prefix.ids):
        return compacted
    rest = {"mm_encoder_outputs": _tokens(compacted.kwargs, slice(prefix.coarse, None))}
    if not len(rest["mm_encoder_outputs"]["image"].pooler_output[0]):
        del rest["mm_encoder_outputs"]
    kwargs = {name: value for name, value in compacted.kwargs.items() if name != "mm_encoder_outputs"}
    return replace(compacted, kwargs=kwargs | rest | {"past_key_values": copy.deepcopy(prefix.cache)})


def _tokens(kwargs: dict[str, Any], part: slice) -> dict[str, Any]:
    """A part of the one image's tokens, in every level."""
    seen = kwargs["mm_encoder_outputs"]["image"]
    fields: dict[str, Any] = {"pooler_output": [tokens[part] for tokens in seen.pooler_output]}
    if getattr(seen, "deepstack_features", None):
        fields["deepstack_features"] = [
            [tokens[part] for tokens in level] for level in seen.deepstack_features
        ]
    return {"image": type(seen)(**fields)}
