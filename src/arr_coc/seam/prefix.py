"""Prefix caching: keys and values of the columns that all questions about one image share.

A gestalt comes first in the prompt and depends on no question, so its keys and values (and those of the words
before it) are computed once: each new question then costs its saccades and its words alone. Answers are those
of the whole prompt, up to rounding.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from arr_coc.seam import Compacted
from arr_coc.seam.caches import CACHE
from arr_coc.seam.compaction import GESTALT
from arr_coc.seam.kept import PER_COLUMN


@dataclass(frozen=True)
class Prefix:
    """The first P columns of a prompt with their keys and values.

    Attributes:
        ids: long [P], their token ids.
        coarse: number of gestalt tokens among them.
        cache: their keys and values; copied for every use.
    """

    ids: Tensor
    coarse: int
    cache: DynamicCache


def shared_columns(compacted: Compacted) -> int:
    """The number of first columns that depend on no question, for one row and image; 0 without a gestalt."""
    columns = compacted.columns
    coarse = (columns[0] == GESTALT).nonzero().flatten()
    return int(coarse[-1]) + 1 if len(columns) == 1 and len(coarse) else 0


@torch.no_grad()
def read_prefix(base: Any, compacted: Compacted) -> Prefix | None:
    """Run the language model on the columns that all questions share; None where there is no gestalt."""
    length = shared_columns(compacted)
    if not length:
        return None
    kwargs = compacted.kwargs
    coarse = int((compacted.columns[0] == GESTALT).sum())
    cache = DynamicCache(config=base.config.get_text_config())
    shared = {name: kwargs[name][..., :length] for name in PER_COLUMN if kwargs.get(name) is not None}
    shared["mm_encoder_outputs"] = _tokens(kwargs, slice(0, coarse))
    base(**shared, **{CACHE: cache}, use_cache=True, logits_to_keep=1)
    return Prefix(kwargs["input_ids"][0, :length], coarse, cache)


def after(prefix: Prefix | None, compacted: Compacted) -> Compacted:
    """The prompt with the prefix's cache; unchanged where its first columns differ."""
    if prefix is None or shared_columns(compacted) != len(prefix.ids):
        return compacted
    if not torch.equal(compacted.kwargs["input_ids"][0, : len(prefix.ids)], prefix.ids):
        return compacted
    rest = {"mm_encoder_outputs": _tokens(compacted.kwargs, slice(prefix.coarse, None))}
    if not len(rest["mm_encoder_outputs"]["image"].pooler_output[0]):
        del rest["mm_encoder_outputs"]
    kwargs = {name: value for name, value in compacted.kwargs.items() if name != "mm_encoder_outputs"}
    return replace(compacted, kwargs=kwargs | rest | {CACHE: copy.deepcopy(prefix.cache)})


def _tokens(kwargs: dict[str, Any], part: slice) -> dict[str, Any]:
    """A value of `mm_encoder_outputs` with a part of the image's tokens, in every level."""
    visual = kwargs["mm_encoder_outputs"]["image"]
    own = visual.pooler_output
    # Packed tokens are pieces of one token each.
    packed = isinstance(own, Tensor)
    fields: dict[str, Any] = {"pooler_output": own[part] if packed else [tokens[part] for tokens in own]}
    if getattr(visual, "deepstack_features", None):
        fields["deepstack_features"] = [
            [tokens[part] for tokens in level] for level in visual.deepstack_features
        ]
    return {"image": type(visual)(**fields)}
