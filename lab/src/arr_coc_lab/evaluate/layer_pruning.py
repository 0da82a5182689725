"""Pruning between two layers of the language model, as FastV does (Chen et al. 2024, arXiv 2403.06764).

    layers 0 .. layer-1 read the whole prompt;  A [H, S]: attention of its last token in layer - 1
    layers layer .. L-1 read the text and the k visual tokens of rule(A, the image's columns, k)

B rows, S columns of the prompt, S' of them after the cut, N visual tokens of a row, k kept, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask

from arr_coc.families import FAMILIES
from arr_coc.model import ARRCOCModel
from arr_coc.seam import VisualFeatures, compact_columns, gather_columns, kept_columns
from arr_coc.seam.attention import attention_rows, watch_attention
from arr_coc.seam.decoding import CACHE, setting
from arr_coc_lab.rivals.reduction import Reduction, check_budget

Rule = Callable[[Tensor, slice | Tensor, int], Reduction]
"""(attention [H, S] of the last prompt token, columns of the image's N tokens, count) -> Reduction."""


@dataclass(frozen=True)
class PrunedAnswers:
    """Greedy answers of a batch: new ids per row without the end-of-sequence id, and the cells kept, long
    [k].

    `mean_tokens` is the visual tokens per layer, (N * layer + k * (L - layer)) / L, the mean over rows.
    """

    ids: list[list[int]]
    keep: list[Tensor]
    mean_tokens: float


@dataclass(frozen=True)
class PrunedPrefill:
    """A batch that was read up to its next new token, of logits [B, vocabulary] at `position` [B].

    `masks` are 0 for padding, before the cut [B, S] and after it [B, S'], as long as the cache of those
    layers; `keep` holds the cells kept per row, long [k], in raster order.
    """

    logits: Tensor = field(repr=False)
    keep: list[Tensor]
    cache: Cache = field(repr=False)
    masks: tuple[Tensor, Tensor] = field(repr=False)
    position: Tensor


@torch.no_grad()
def pruned_prefill(
    model: ARRCOCModel,
    inputs: Mapping[str, Any],
    features: VisualFeatures,
    rule: Rule,
    count: int,
    *,
    layer: int = 2,
) -> PrunedPrefill:
    """Run a batch of prompts up to the first new token, dropping visual tokens after `layer` layers.

    With count N the result is the model's own. Text is never dropped, kept tokens keep their positions, and a
    row's result does not depend on the others. The text model's layers are called one by one, as its
    `forward` does; nothing is patched, and the allocator is not used. `inputs` are B left-padded rows with
    one image each, encoded in `features`; `count` is 1 to N, `layer` 1 to L - 1.

    Raises:
        ValueError: an unsupported family, a count or layer out of range, or rows that are not left-padded
            or have not one image each.
    """
    text = _text_model(model, layer)
    adapter, ids = model.adapter, inputs["input_ids"]
    mask = adapter.attention_mask(inputs).long()
    if not bool((mask.diff(dim=1) >= 0).all() and (mask[:, -1] == 1).all()):
        raise ValueError("rows are not left-padded; use a processor whose tokenizer has padding_side='left'")
    spans = adapter.columns(ids, features.counts)  # one image per row
    if [row for row, _ in spans] != list(range(len(ids))):
        raise ValueError(f"{len(spans)} images in {len(ids)} rows; pass rows with exactly one image each")
    for cells in features.cells:
        check_budget(count, len(cells))

    positions = adapter.positions(inputs)  # [3, B, S] or [B, S]
    hidden = model.base.get_input_embeddings()(ids)
    is_image = ids == adapter.image_token_id
    hidden[is_image] = torch.cat(features.tokens).to(hidden)  # rows one after the other, as the mask flattens
    cache = DynamicCache(config=text.config)
    attention: list[Tensor] = []  # [B, H, S], what the last token of the prompt attends to

    def observe(at: int, query: Tensor, key: Tensor, scaling: float, causal: Tensor | None) -> None:
        if at == layer - 1:
            last = None if causal is None else causal[:, :, -1:]
            attention.append(attention_rows(query[:, :, -1:], key, scaling, last)[:, :, 0])

    with watch_attention(model.base, "language", observe) as watched:
        hidden = _run(
            watched.get_decoder(),
            range(layer),
            hidden,
            mask,
            positions,
            cache,
            levels=features.levels,
            is_image=is_image,
        )
    columns = [columns[cells] for (_, columns), cells in zip(spans, features.cells, strict=True)]
    # attention[0] (B, H, S)
    keep = [rule(row, visual, count).keep for row, visual in zip(attention[0], columns, strict=True)]

    indices = features.tokens_to_keep(keep)
    stay = compact_columns(kept_columns(mask, spans, indices))  # (B, S')
    late_mask = gather_columns(mask, stay, fill=0)
    hidden = _run(
        text,
        range(layer, len(text.layers)),
        hidden.gather(1, stay.clamp_min(0)[..., None].expand(-1, -1, hidden.shape[-1])),
        late_mask,
        gather_columns(positions, stay, fill=0),
        cache,
        levels=features.select(indices).levels,
        is_image=gather_columns(is_image, stay, fill=0),
    )
    # padding holds no position
    last_position = positions.masked_fill(mask == 0, 0).amax(-1)  # [B], or [3, B] of t, y and x
    position = (last_position.amax(0) if last_position.ndim == 2 else last_position) + 1
    return PrunedPrefill(_logits(model, text, hidden), keep, cache, (mask, late_mask), position)


@torch.no_grad()
def pruned_continuation(
    model: ARRCOCModel, before: PrunedPrefill, ids: Tensor, *, layer: int = 2
) -> PrunedPrefill:
    """Read more text, `ids` long [B, n], after a prompt whose visual tokens were dropped.

    The cache of `before` grows in place; the rest of it is left unchanged.
    """
    text = _text_model(model, layer)
    masks = [torch.cat([mask, torch.ones_like(ids)], dim=1) for mask in before.masks]
    position = before.position[:, None] + torch.arange(ids.shape[1], device=ids.device)  # [B, n]
    if not model.adapter.plain_positions:
        position = position.expand(3, *position.shape)
    hidden = model.base.get_input_embeddings()(ids)
    hidden = _run(text, range(layer), hidden, masks[0], position, before.cache)
    hidden = _run(text, range(layer, len(text.layers)), hidden, masks[1], position, before.cache)
    following = before.position + ids.shape[1]
    return replace(
        before, logits=_logits(model, text, hidden), masks=(masks[0], masks[1]), position=following
    )


@torch.no_grad()
def pruned_answers(
    model: ARRCOCModel,
    inputs: Mapping[str, Any],
    features: VisualFeatures,
    rule: Rule,
    count: int,
    *,
    layer: int = 2,
    max_new_tokens: int = 8,
) -> PrunedAnswers:
    """Answer a batch of prompts greedily by plain argmax, dropping visual tokens after `layer` layers.

    Raises:
        ValueError: as `pruned_prefill`, or `max_new_tokens` below 1.
    """
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens {max_new_tokens} is below 1; ask for at least one new token")
    run = pruned_prefill(model, inputs, features, rule, count, layer=layer)
    total, keep = len(_text_model(model, layer).layers), run.keep
    end = setting(model.base, {}, "eos_token_id")  # one id, several or none
    ends = torch.tensor([] if end is None else end, dtype=torch.long, device=run.logits.device).flatten()
    new = [run.logits.argmax(-1)]
    while len(new) < max_new_tokens and not bool(torch.isin(torch.stack(new), ends).any(0).all()):
        run = pruned_continuation(model, run, new[-1][:, None], layer=layer)
        new.append(run.logits.argmax(-1))

    rows = torch.stack(new, dim=1)
    ended = torch.isin(rows, ends).cumsum(1) > 0  # from the first end on
    answers = [row[~over].tolist() for row, over in zip(rows, ended, strict=True)]
    tokens = [(len(cells) * layer + count * (total - layer)) / total for cells in features.cells]
    return PrunedAnswers(answers, keep, sum(tokens) / len(tokens))


def layer_families() -> list[str]:
    """Model types whose language model's layers can be called one by one."""
    return [kind for kind, family in FAMILIES.items() if family.trait("layer_by_layer")]


def cut_layer(model: ARRCOCModel, layers: int = 2) -> int:
    """Return the number of layers that read all tokens: `layers`, at most all but the last one."""
    return min(layers, model.config.get_text_config().num_hidden_layers - 1)


def _text_model(model: ARRCOCModel, layer: int) -> Any:
    """Return the base model's text model, checked to be one that can be cut after `layer` layers."""
    family = model.config.model_type
    if not model.adapter.layer_by_layer:
        raise ValueError(
            f"the layers of {family!r} can't be called one by one; use one of {', '.join(layer_families())}"
        )
    text: Any = model.base.get_decoder()
    total = len(text.layers)
    if not 1 <= layer < total:
        raise ValueError(f"layer {layer} is no cut inside {total} layers; use 1 to {total - 1}")
    windowed = getattr(text.config, "sliding_window", None)
    kinds = getattr(text.config, "layer_types", None) or [
        "sliding_attention" if windowed else "full_attention"
    ]
    if set(kinds) != {"full_attention"}:
        raise ValueError(
            f"this {family} has {', '.join(sorted(set(kinds)))} layers; pruning between layers needs "
            "full_attention in all"
        )
    return text


def _run(
    text: Any,
    layers: range,
    hidden: Tensor,
    mask: Tensor,
    positions: Tensor,
    cache: Cache,
    levels: list[list[Tensor]] | None = None,
    is_image: Tensor | None = None,
) -> Tensor:
    """Run some layers of a text model on `hidden` [B, new, D], whose columns extend the cache.

    `mask` [B, cached + new] is 0 for padding, `positions` [3, B, new] or [B, new]. `levels` holds by layer
    and image [n, D], which deepstack adds after it to the visual tokens at `is_image` (Bool [B, new]).
    """
    # A view of the cache that begins with these layers: the mask is as long as what the first one saw.
    own = Cache(layers=cache.layers[layers.start : layers.stop])
    causal = create_causal_mask(text.config, hidden, mask, own)
    angles = text.rotary_emb(hidden, positions)
    for i in layers:
        hidden = text.layers[i](
            hidden,
            attention_mask=causal,
            position_embeddings=angles,
            use_cache=True,
            **{CACHE: cache},
        )
        if levels is not None and i < len(levels):
            hidden[is_image] += torch.cat(levels[i]).to(hidden)
    return hidden


def _logits(model: ARRCOCModel, text: Any, hidden: Tensor) -> Tensor:
    """float32 [B, vocabulary] of the token after the last column of `hidden` [B, S, D]."""
    return model.base.get_output_embeddings()(text.norm(hidden[:, -1])).float()
