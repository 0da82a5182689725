"""The registry of families: the adapter of each model type."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

from arr_coc.seam.base import FamilyAdapter

ADAPTERS: dict[str, type[FamilyAdapter]] = {}
"""Adapters by `config.model_type`."""


def register_family(adapter: type[FamilyAdapter], *model_types: str) -> None:
    """Support a family of models.

    Args:
        adapter: its adapter.
        model_types: each a `config.model_type` that it serves; none: the adapter's own `model_types`.

    Raises:
        ValueError: the adapter lacks something that a family must say, there is no model type, or one is
            taken by another adapter.
    """
    kinds = model_types or adapter.model_types
    if lacks := sorted(adapter.__abstractmethods__):
        raise ValueError(f"{adapter.__name__} says nothing of {', '.join(lacks)}: add that to the class")
    if not kinds or isinstance(kinds, str):
        raise ValueError(f"{adapter.__name__} has model_types {kinds!r}: use a tuple with at least one name")
    if taken := [kind for kind in kinds if ADAPTERS.get(kind, adapter) is not adapter]:
        raise ValueError(
            f"model type {taken[0]!r} is served by {ADAPTERS[taken[0]].__name__} already; remove that first "
            f"with ADAPTERS.pop({taken[0]!r})"
        )
    ADAPTERS.update(dict.fromkeys(kinds, adapter))


class Offer(NamedTuple):
    """What is offered for a family.

    Attributes:
        title: its name for readers.
        model_types: those that are registered for its adapter.
        sparse: some cells can be encoded alone; elsewhere `sparse` and `saccade` run as `prune`.
        clips: clips are read, frame by frame.
        remark: what is not offered, or what to know; "" for nothing.
    """

    title: str
    model_types: tuple[str, ...]
    sparse: bool
    clips: bool
    remark: str

    @property
    def summary(self) -> str:
        """The modes, clips and remark in a line."""
        modes = "every mode" if self.sparse else "sparse and saccade run as prune"
        return "; ".join(filter(None, [modes + (", clips" if self.clips else ""), self.remark]))


def offers() -> list[Offer]:
    """What is offered for each family, in the order of registration."""
    types: dict[type[FamilyAdapter], list[str]] = {}
    for kind, adapter in ADAPTERS.items():
        types.setdefault(adapter, []).append(kind)
    return [
        Offer(adapter.title or kinds[0], tuple(kinds), adapter.sparse, adapter.clips, adapter.remark)
        for adapter, kinds in types.items()
    ]


def takes_encoded_images(model_class: Any) -> bool:
    """Whether models of a class take encoded images in place of pixels; else nothing can be dropped."""
    return "mm_encoder_outputs" in inspect.signature(model_class.forward).parameters


def check_model_type(model_type: str) -> None:
    """Check that a model type is of a registered family, or one that the generic adapter may serve.

    Raises:
        ValueError: it isn't; names the model type and lists the registered ones.
    """
    if model_type in ADAPTERS:
        return
    config = CONFIG_MAPPING[model_type] if model_type in CONFIG_MAPPING else None
    made: Any = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.get(config, None) if config is not None else None
    if made is None or not takes_encoded_images(made):
        raise ValueError(
            f"model type {model_type!r} is not supported; supported are {', '.join(sorted(ADAPTERS))} "
            "(a new family is one FamilyAdapter and `arr_coc.seam.register_family`)"
        )
