"""The registry of families: a row for each, found by model type, and the adapter that it gives a model."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import transformers
from transformers import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

from arr_coc.families.generic import GenericAdapter
from arr_coc.seam.base import Encodes, FamilyAdapter
from arr_coc.seam.decoding import COLUMN_COUNTERS
from arr_coc.seam.self_check import self_check

# of model types that take no encoded images in the installed transformers
ABSENT = f"not in this release of transformers ({transformers.__version__})"
# Consequence for the modes that choose before the encoder, by what a family `encodes`.
EARLY: dict[Encodes, str] = {
    "cells": "every mode",
    "tiles": "sparse by whole tiles, saccade runs as it",
    "crops": "saccade by finer crops, sparse runs as prune",
    "images": "sparse and saccade run as prune",
}


@dataclass(frozen=True, eq=False)
class Family:
    """A family: model types whose images one adapter reads in one way.

    `title` and `remark` are for readers; `traits` are attributes of the adapter class with other values
    here. A ValueError for an abstract class, no model type, or an unknown trait.
    """

    title: str
    model_types: tuple[str, ...]
    adapter: type[FamilyAdapter]
    remark: str = ""
    traits: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name = self.adapter.__name__
        if lacks := sorted(self.adapter.__abstractmethods__):
            raise ValueError(f"{name} says nothing of {', '.join(lacks)}: add that to the class")
        if not self.model_types or isinstance(self.model_types, str):
            raise ValueError(f"{name} is registered for {self.model_types!r}: name at least one model type")
        if unknown := [trait for trait in self.traits if not hasattr(self.adapter, trait)]:
            raise ValueError(f"{name} has no {unknown[0]!r}: see the attributes of FamilyAdapter")

    def trait(self, name: str) -> Any:
        """Return an attribute of this family's adapters, from the row or the class."""
        return self.traits.get(name, getattr(self.adapter, name))

    @property
    def encodes(self) -> Encodes:
        """The smallest part of an image that the vision tower can encode alone."""
        return self.trait("encodes")

    @property
    def clips(self) -> bool:
        """Whether the family takes video clips (each frame is encoded alone)."""
        return self.trait("clips")

    @property
    def lacking(self) -> tuple[str, ...]:
        """The model types that take no encoded images in the installed transformers."""
        return tuple(kind for kind in self.model_types if not is_served(kind))

    @property
    def summary(self) -> str:
        """The modes, clips, remark and what this release of transformers lacks, in a line."""
        modes = EARLY[self.encodes] + (", clips" if self.clips else "")
        lacks = f"{', '.join(self.lacking)}: {ABSENT}" if self.lacking else ""
        return "; ".join(filter(None, [modes, self.remark, lacks]))


FAMILIES: dict[str, Family] = {}  # by `config.model_type`


def add_family(family: Family) -> None:
    """Registers a `Family` under its model types; a ValueError if another adapter serves one already."""
    for kind in family.model_types:
        if kind in FAMILIES and FAMILIES[kind].adapter is not family.adapter:
            raise ValueError(
                f"model type {kind!r} is served by {FAMILIES[kind].adapter.__name__} already; remove that "
                f"first with FAMILIES.pop({kind!r})"
            )
    for kind in family.model_types:
        FAMILIES.setdefault(kind, family)  # one that its adapter serves already keeps its row
    if family.trait("ignores_positions"):
        COLUMN_COUNTERS.update(family.model_types)


def register_family(
    adapter: type[FamilyAdapter], *model_types: str, title: str = "", remark: str = "", **traits: Any
) -> None:
    """Registers an adapter class for some model types (`config.model_type`), as a `Family`.

    `title`: the family's name for readers, by default the first model type; `remark`: what is not offered, or
    what to know; `traits`: attributes of the class with other values here.

    Raises:
        ValueError: the adapter is abstract, there is no model type, a trait is unknown, or a model type is
            served by another adapter.
    """
    add_family(Family(title or (*model_types, "")[0], model_types, adapter, remark, traits))


def known_families() -> list[Family]:
    """Return the registered families, each once, in the order of registration."""
    return list(dict.fromkeys(FAMILIES.values()))


def model_class(model_type: str) -> Any:
    """Return the class of the installed transformers for a model type, or None."""
    config = CONFIG_MAPPING[model_type] if model_type in CONFIG_MAPPING else None
    return None if config is None else MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.get(config, None)


def is_served(model_type: str) -> bool:
    """Return whether the installed transformers has a model type, and lets it be given encoded images."""
    made = model_class(model_type)
    return made is not None and takes_encoded_images(made) and takes_any_number(made)


def takes_encoded_images(model_class: Any) -> bool:
    """Return whether models of a class take encoded images in place of pixels; else nothing can be
    dropped.
    """
    return "mm_encoder_outputs" in inspect.signature(model_class.forward).parameters


def takes_any_number(model_class: Any) -> bool:
    """Return whether the images of a prompt may have any number of encoded tokens.

    Some releases insert those of SmolVLM in blocks of as many as a patch is wide in px, and refuse an image
    with some tokens dropped.
    """
    members = vars(sys.modules[model_class.__module__]).values()
    mergers = [
        one.inputs_merger for one in members if isinstance(one, type) and hasattr(one, "inputs_merger")
    ]
    return not any("vision_config.patch_size" in inspect.getsource(merger) for merger in mergers)


def check_model_type(model_type: str) -> None:
    """Raises a ValueError for a model type that neither its family nor the generic adapter can serve."""
    served = is_served(model_type)
    if model_type in FAMILIES and not served:
        raise ValueError(
            f"model type {model_type!r} is {ABSENT}, or takes no encoded images there; install a newer one"
        )
    if not served:
        some = difflib.get_close_matches(str(model_type), FAMILIES, 3) or list(FAMILIES)[:3]
        raise ValueError(
            f"model type {model_type!r} is not supported; supported are {', '.join(some)} and "
            f"{len(FAMILIES) - len(some)} others that `arr-coc info --families` lists (a new family is one "
            "FamilyAdapter and `arr_coc.families.register_family`)"
        )


def adapter_for(model: PreTrainedModel, processor: Any = None) -> FamilyAdapter:
    """Return the adapter of a loaded model: its family's, or the generic one if `self_check` finds that it
    fits.

    Raises:
        ValueError: an unsupported model type, or a model without a generation head.
        ImportError: a transformers whose models take no `mm_encoder_outputs`, or only some numbers of tokens.
    """
    if not hasattr(getattr(model, "config", None), "model_type"):
        raise ValueError(
            f"{type(model).__name__} is no transformers model: load one with "
            "AutoModelForImageTextToText.from_pretrained"
        )
    kind = model.config.model_type
    if hasattr(model, "thinker"):
        raise ValueError(
            f"{type(model).__name__} also speaks, and only the part that reads images can be given fewer "
            "tokens: wrap `model.thinker`"
        )
    # Before its type is looked up, which in old releases may be another one.
    if isinstance(model, PreTrainedModel) and not model.can_generate():
        raise ValueError(
            f"{type(model).__name__} has no generation head, so it can't answer; load the checkpoint with "
            "AutoModelForImageTextToText.from_pretrained"
        )
    family = FAMILIES.get(kind)
    if family is None:
        check_model_type(kind)
        adapter = GenericAdapter(model, processor)
        self_check(adapter)
        return adapter
    if not takes_any_number(type(model)):
        raise ImportError(
            f"{kind!r} takes encoded images in whole blocks alone in transformers "
            f"{transformers.__version__}, so that no token of them can be dropped; install a newer one"
        )
    return family.adapter(model, processor, **family.traits)
