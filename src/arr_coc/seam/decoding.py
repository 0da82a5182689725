"""`generate` on a compacted prompt, with the results of an ordinary `generate` on the whole prompt.

Returned sequences begin with the whole prompt, length limits count it, callbacks (stopping criteria, logits
processors, `prefix_allowed_tokens_fn`, streamers) get it before the new tokens, and arguments that can't be
honoured while tokens are dropped raise a ValueError that names them.

Shapes: whole prompts are [B, S], compacted ones [B, S'].
"""

from __future__ import annotations

import copy
import inspect
import numbers
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import transformers
from packaging.version import Version
from torch import Tensor
from transformers import GenerationMixin, PreTrainedModel

from arr_coc.choose.allocation import Allocation
from arr_coc.seam.caches import cache_of, mark_caches
from arr_coc.seam.callbacks import show_whole_prompt
from arr_coc.seam.features import Compacted

T = TypeVar("T")

REFUSED = {
    "assistant_model": "assisted decoding needs the whole prompt in both models",
    "prompt_lookup_num_tokens": "assisted decoding needs the whole prompt",
    "assistant_early_exit": "assisted decoding needs the whole prompt",
    "use_mtp": "assisted decoding needs the whole prompt",
    "custom_generate": "custom decoding may not know of dropped tokens",
    "guidance_scale": "guidance runs a second prompt without the images",
    "negative_prompt_ids": "guidance runs a second prompt without the images",
    "token_healing": "healing rewrites the end of the prompt",
    "inputs_embeds": "tokens to drop are found by their ids, pass input_ids",
    "mm_encoder_outputs": "images are encoded here, pass pixel_values",
    "per_layer_inputs": "they are made of the tokens that are kept, leave them out",
    "visual_pos_masks": "the model finds the visual tokens that are kept, leave them out",
    "deepstack_visual_embeds": "images are encoded here, pass pixel_values",
    "cache_position": "columns are numbered anew, leave it out",
    "rope_deltas": "they belong to the whole prompt, leave them out",
    "position_embeddings": "they belong to the whole prompt, pass position_ids",
    "shift_labels": "labels of the kept tokens are shifted by the model, pass labels",
    "cu_seq_lens_q": "packed prompts can't be divided anew, pad them",
    "cu_seq_lens_k": "packed prompts can't be divided anew, pad them",
    "seq_idx": "packed prompts can't be divided anew, pad them",
}
"""Arguments that dropping tokens can't honour, and why; all of them work with mode="full"."""

CHUNKED_PREFILL = Version("5.23")
"""The first transformers whose `prefill_chunk_size` gives each chunk the features of its own placeholders.
Stock 5.18 to 5.22 fail or answer wrongly with images, whether tokens are dropped or not.
"""

NUMBERED_BY_PROMPT = Version("5.24")
"""The first transformers that gives `prefix_allowed_tokens_fn` the number of the prompt in every case;
before, returned sequences without beams were numbered apart.
"""

FORGETFUL = ("exaone4_5",)
"""Model types whose `generate` counts positions along the columns, in place of those that it is given."""


def heeding_positions(model: Any) -> Any:
    """The model, or a view of one that is `FORGETFUL`, with the same modules, whose `generate` isn't."""
    if model.config.model_type not in FORGETFUL:
        return model
    view: Any = copy.copy(model)
    prepare = GenerationMixin.prepare_inputs_for_generation
    view.__dict__["prepare_inputs_for_generation"] = types.MethodType(prepare, view)
    return view


def named_arguments(
    call: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call of the base model by name, the prompt as `input_ids`.

    Stock `generate` and `forward` take positional arguments, the prompt first (`generate` calls it `inputs`).

    Args:
        call: the base model's `generate` or `forward`.
        args: positional arguments.
        kwargs: arguments by name.

    Returns:
        All of them by name. A prompt that came as `inputs` is `input_ids`.

    Raises:
        ValueError: too many positional arguments, an argument given twice, or a prompt that isn't ids, such
            as a picture or all processor inputs in one object.
    """
    name = getattr(call, "__name__", "the call")
    if args:
        _check_ids(args[0], name)
    parameters = inspect.signature(call).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(args) > len(names):
        raise ValueError(f"{len(args)} positional arguments were given but there are {len(names)}; name them")
    positional = dict(zip(names, args, strict=False))
    if twice := sorted(set(positional) & set(kwargs)):
        raise ValueError(f"{', '.join(twice)} was given twice, by position and by name; pass it once")
    named = {**positional, **kwargs}
    prompt = named.pop("inputs", None)
    for value in (prompt, named.get("input_ids")):
        _check_ids(value, name)
    if prompt is not None:
        if named.get("input_ids") is not None:
            raise ValueError("inputs and input_ids were both given, and both are the prompt; pass input_ids")
        named["input_ids"] = prompt
    return named


def naming(*names: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """A decorator: the signature of a function that takes any arguments names these, each None by default.

    transformers' Trainer reads it: what it doesn't name is left out of the data, and labels aren't found.
    """

    def named(function: Callable[..., T]) -> Callable[..., T]:
        signature = inspect.signature(function)
        *own, last = signature.parameters.values()
        new = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names]
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *new, last])
        return function

    return named


def _check_ids(prompt: Any, name: str) -> None:
    """Raise a ValueError where something else than ids stands in the place of a call's prompt.

    Args:
        prompt: what does; None: nothing.
        name: of the call.
    """
    if prompt is None or isinstance(prompt, Tensor):
        return
    kind = type(prompt).__name__
    if isinstance(prompt, Mapping):
        raise ValueError(f"{name} got a {kind} in place of input_ids: unpack it, {name}(**inputs)")
    raise ValueError(
        f"{name} got a {kind} in place of input_ids: use ask(image, question), or pass all that the "
        f"processor makes of a prompt and its images, {name}(**inputs)"
    )


def check_length(count: object) -> None:
    """Check the number of tokens at which an answer is cut off.

    Raises:
        ValueError: not a whole number from 1 on.
    """
    if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 1:
        raise ValueError(f"max_new_tokens {count!r} is no count of tokens: use a whole number, 1 or more")


def with_inferred_mask(base: PreTrainedModel, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `generate` with the attention mask that stock `generate` infers where none is given.

    A padding token in the prompt is padding, unless it also ends sequences (it could then be text). With no
    padding token in the prompt nothing is added. `forward` infers nothing, neither here nor in stock.

    Args:
        base: the base model; its generation_config has the token ids that the call lacks.
        kwargs: arguments of `generate`, `input_ids` [B, S] among them.

    Returns:
        The same arguments, with `attention_mask` long [B, S] where one is inferred.
    """
    ids = kwargs.get("input_ids")
    pad, eos = (setting(base, kwargs, f"{name}_token_id") for name in ("pad", "eos"))
    if kwargs.get("attention_mask") is not None or not isinstance(ids, Tensor) or pad is None:
        return dict(kwargs)
    ends = torch.as_tensor([] if eos is None else eos).flatten().tolist()
    if int(pad) in ends or not bool((ids == pad).any()):
        return dict(kwargs)
    return {**kwargs, "attention_mask": (ids != pad).long()}


def setting(base: PreTrainedModel, kwargs: Mapping[str, Any], name: str) -> Any:
    """A generation setting: the call's own, else its generation_config's, else the model's, else None."""
    sources = (kwargs.get("generation_config"), base.generation_config)
    values = (kwargs.get(name), *(getattr(source, name, None) for source in sources))
    return next((value for value in values if value is not None), None)


def refuse_settings(base: PreTrainedModel, kwargs: Mapping[str, Any]) -> None:
    """Check the settings of a call of `generate`, its own and those of the model's generation_config.

    Raises:
        ValueError: names the setting, the reason and the remedy.
    """
    if not isinstance(kwargs.get("logits_to_keep", 0), int | None):
        raise ValueError("logits_to_keep of columns is for one forward: leave it out of generate")
    names = (*REFUSED, "cache_implementation", "prefill_chunk_size")
    refuse_arguments({name: setting(base, kwargs, name) for name in names})


def refuse_arguments(arguments: Mapping[str, Any]) -> None:
    """Check arguments or settings for those that can't be honoured while tokens are dropped.

    Args:
        arguments: arguments or settings by name.

    Raises:
        ValueError: names the argument, the reason and the remedy.
    """
    for name, why in REFUSED.items():
        value = arguments.get(name)
        if value is None or value is False or (name == "guidance_scale" and value == 1):
            continue
        raise ValueError(f"{name} can't be used while tokens are dropped: {why}; use mode='full'")
    if arguments.get("cache_implementation") == "paged":
        raise ValueError("a paged cache can't be used while tokens are dropped; use mode='full' or no paging")
    chunk, installed = arguments.get("prefill_chunk_size"), Version(transformers.__version__)
    if chunk is not None and installed < CHUNKED_PREFILL:
        raise ValueError(
            f"prefill_chunk_size {chunk} is wrong with images in transformers {installed}, tokens dropped or "
            f"not; install transformers >= {CHUNKED_PREFILL}, or leave it out"
        )


# ---- the call --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Generated:
    """The result of `generate(..., return_allocation=True)`.

    Attributes:
        sequences: long [B * num_return_sequences, S + new], the whole prompts and the new tokens.
        allocations: one per image, in order of appearance; empty in mode "full".
        fallback: whether the allocation failed and all tokens were used.
        mode: the name of the mode that ran.
        note: what of the call was not followed to the letter, and why; None where all was.
        details: the base model's own output where `return_dict_in_generate=True`, else None.
    """

    sequences: Tensor
    allocations: list[Allocation]
    fallback: bool
    mode: str = "full"
    note: str | None = None
    details: Any = None


@torch.no_grad()
def generate_whole(base: Any, inputs: Mapping[str, Any], compacted: Compacted, **more: Any) -> Any:
    """Generate from a compacted prompt and return sequences that begin with the whole one.

    Args:
        base: the model that generates.
        inputs: the caller's own inputs, with the whole `input_ids` [B, S].
        compacted: the prompt with tokens dropped, for the base model.
        more: further arguments of `generate`.

    Returns:
        The output of `base.generate`, with sequences [B * num_return_sequences, S + new] that begin with the
        whole prompts. A cache in it is marked where tokens were dropped (`mark_caches`).
    """
    kwargs, ids = compacted.kwargs | more, inputs["input_ids"]
    length = compacted.columns.shape[1]
    for limit, count in (("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")):
        value = setting(base, kwargs, limit)  # counts the prompt's tokens, so it is lowered by those dropped
        if value and setting(base, kwargs, count) is None:
            shorter = max(value - (ids.shape[1] - length), 0)
            if kwargs.get("generation_config") is not None:
                kwargs["generation_config"] = copy.deepcopy(kwargs["generation_config"])
                setattr(kwargs["generation_config"], limit, shorter)
            else:
                kwargs[limit] = shorter
    beams = setting(base, kwargs, "num_beams") or 1
    apart = beams == 1 and Version(transformers.__version__) < NUMBERED_BY_PROMPT
    copies = (setting(base, kwargs, "num_return_sequences") or 1) if apart else 1
    show_whole_prompt(kwargs, ids, length, copies)
    heeding = base if kwargs.get("position_ids") is None else heeding_positions(base)
    output = heeding.generate(**kwargs)
    mark_caches(output, cache_of(kwargs), compacted.columns, ids.shape[1])
    sequences = output if isinstance(output, Tensor) else output.sequences
    prompts = ids.repeat_interleave(len(sequences) // len(ids), dim=0)
    whole = torch.cat([prompts, sequences[:, length:]], dim=1)
    if isinstance(output, Tensor):
        return whole
    output.sequences = whole
    return output
