"""The registry of families: the adapter of each model type."""

from __future__ import annotations

import difflib
import inspect
import sys
from typing import Any, NamedTuple

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

from arr_coc.seam.base import FamilyAdapter

ADAPTERS: dict[str, type[FamilyAdapter]] = {}
"""Adapters by `config.model_type`."""
ABSENT = f"not in this release of transformers ({transformers.__version__})"
"""What is said of a model type that the installed transformers can't give encoded images."""


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
        sparse: some cells can be encoded alone.
        tiles: some tiles can: `sparse` encodes those that hold a kept cell, and `saccade` runs as `sparse`.
            Where neither can be, both run as `prune`.
        crops: finer crops of a picture can, beside its one view: `saccade` encodes those that hold a chosen
            cell, and `sparse` runs as `prune`.
        clips: clips are read, frame by frame.
        remark: what is not offered, or what to know; "" for nothing.
        lacking: of the model types those that the installed transformers can't give encoded images.
    """

    title: str
    model_types: tuple[str, ...]
    sparse: bool
    tiles: bool
    clips: bool
    remark: str
    lacking: tuple[str, ...] = ()
    crops: bool = False

    @property
    def early(self) -> str:
        """What becomes of `sparse` and `saccade`, in a few words."""
        if self.sparse:
            return "every mode"
        if self.tiles:
            return "sparse by whole tiles, saccade runs as it"
        return (
            "saccade by finer crops, sparse runs as prune"
            if self.crops
            else "sparse and saccade run as prune"
        )

    @property
    def summary(self) -> str:
        """The modes, clips, remark and what this release of transformers lacks, in a line."""
        lacks = f"{', '.join(self.lacking)}: {ABSENT}" if self.lacking else ""
        return "; ".join(filter(None, [self.early + (", clips" if self.clips else ""), self.remark, lacks]))


def offers() -> list[Offer]:
    """What is offered for each family, in the order of registration."""
    types: dict[type[FamilyAdapter], list[str]] = {}
    for kind, adapter in ADAPTERS.items():
        types.setdefault(adapter, []).append(kind)
    return [
        Offer(
            adapter.title or kinds[0],
            tuple(kinds),
            adapter.sparse,
            adapter.by_tiles,
            adapter.clips,
            adapter.remark,
            tuple(kind for kind in kinds if not is_served(kind)),
            adapter.by_crops,
        )
        for adapter, kinds in types.items()
    ]


def model_class(model_type: str) -> Any:
    """The class of the installed transformers that answers for a model type; None: it has none."""
    config = CONFIG_MAPPING[model_type] if model_type in CONFIG_MAPPING else None
    return None if config is None else MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.get(config, None)


def is_served(model_type: str) -> bool:
    """Whether the installed transformers has a model type, and lets it be given encoded images."""
    made = model_class(model_type)
    return made is not None and takes_encoded_images(made) and takes_any_number(made)


def takes_any_number(model_class: Any) -> bool:
    """Whether the images of a prompt may have any number of encoded tokens.

    Some releases put those of SmolVLM into the prompt in blocks of as many as a patch is wide in px, and
    refuse what is left of an image once some of its tokens are dropped.
    """
    members = vars(sys.modules[model_class.__module__]).values()
    mergers = [
        one.inputs_merger for one in members if isinstance(one, type) and hasattr(one, "inputs_merger")
    ]
    return not any("vision_config.patch_size" in inspect.getsource(merger) for merger in mergers)


def takes_encoded_images(model_class: Any) -> bool:
    """Whether models of a class take encoded images in place of pixels; else nothing can be dropped."""
    return "mm_encoder_outputs" in inspect.signature(model_class.forward).parameters


def check_model_type(model_type: str) -> None:
    """Check that a model type is of a registered family, or one that the generic adapter may serve.

    Raises:
        ValueError: it isn't, and the message names some that are, the nearest first; or the installed
            transformers can't give it encoded images.
    """
    served = is_served(model_type)
    if model_type in ADAPTERS and not served:
        raise ValueError(
            f"model type {model_type!r} is {ABSENT}, or takes no encoded images there; install a newer one"
        )
    if not served:
        some = difflib.get_close_matches(str(model_type), ADAPTERS, 3) or list(ADAPTERS)[:3]
        raise ValueError(
            f"model type {model_type!r} is not supported; supported are {', '.join(some)} and "
            f"{len(ADAPTERS) - len(some)} others that `arr-coc info --families` lists (a new family is one "
            "FamilyAdapter and `arr_coc.families.register_family`)"
        )
