"""Which methods of the table can run on a model, and the allocators and scorers that some of them bring.

    methods, notes = pick_methods(model, ("arr-coc", "divprune"), [], scorer)

The table itself is `arr_coc.rivals.METHODS`: rivals and nulls register there in `arr_coc.rivals`, ours in
`arr_coc.evaluate.ours`, and anyone's own wherever it is written (`arr_coc.rivals.register`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from arr_coc.core.layer import ARRCOCLayer
from arr_coc.evaluate.layer_pruning import LAYER_FAMILIES, cut_layer
from arr_coc.evaluate.ours import ours
from arr_coc.evaluate.view import check_tower
from arr_coc.model import ARRCOCModel
from arr_coc.rivals import METHODS, QueryBlindScorer
from arr_coc.rivals.method import Method
from arr_coc.seam import Qwen2_5VLAdapter
from arr_coc.store import checkpoint
from arr_coc.store.results.kinds import OURS

__all__ = ["METHODS", "Method", "load_scorer", "load_variant", "pick_methods", "split_allocators"]

BUNDLED_SCORER = checkpoint.BUNDLED_MODEL.parent / "query_blind.safetensors"


def pick_methods(
    model: ARRCOCModel,
    names: Sequence[str] | None,
    variants: Sequence[tuple[str, ARRCOCLayer]],
    scorer: QueryBlindScorer | None,
) -> tuple[list[Method], dict[str, str]]:
    """The methods that can run on a model.

    Args:
        model: the model.
        names: wanted methods; None: all.
        variants: further allocators, "arr-coc:NAME" each; with `names` given, those named there.
        scorer: a trained query-blind scorer.

    Returns:
        The methods in the order of the table, variants last; and by name why another one is left
        out.

    Raises:
        ValueError: an unknown name, or nothing can run.
    """
    table = dict(METHODS)
    for name, layer in variants:
        table[f"{OURS}:{name}"] = ours(f"{OURS}:{name}", layer)
    wanted = list(table if names is None else dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in table]:
        raise ValueError(f"method {unknown[0]!r} is unknown; use some of {', '.join(table)}")
    methods: list[Method] = []
    notes: dict[str, str] = {}
    for method in table.values():
        if method.name in wanted:
            try:
                _check_needs(method, model, scorer)
                methods.append(method)
            except ValueError as error:
                notes[method.name] = str(error)
    if not methods:
        raise ValueError(f"none of the methods can run: {next(iter(notes.values()), 'none was named')}")
    return methods, notes


def _check_needs(method: Method, model: ARRCOCModel, scorer: QueryBlindScorer | None) -> None:
    """Raises ValueError where the model lacks what the method needs."""
    family = model.config.model_type
    if "tower" in method.needs:
        check_tower(family)
    if "scorer" in method.needs and scorer is None:
        raise ValueError("no trained query-blind scorer: give its .safetensors file as --query-blind")
    if "sizes" in method.needs and not isinstance(model.adapter, Qwen2_5VLAdapter):
        raise ValueError(f"{family!r} has no freely chosen image size that is known here: use a Qwen model")
    if "sparse" in method.needs and not model.adapter.sparse:
        raise ValueError(f"the vision tower of {family!r} can't encode some cells alone, or a smaller image")
    for name in sorted(method.needs & {"conv4", "conv16"}):
        if name not in model.convs:
            raise ValueError(f"no trained compressor: put {name}.safetensors into the allocator's folder")
    if "layers" in method.needs:
        if family not in LAYER_FAMILIES:
            raise ValueError(
                f"the layers of {family!r} can't be called one by one: use {', '.join(LAYER_FAMILIES)}"
            )
        if cut_layer(model) < 1:
            raise ValueError("the language model has one layer: there is no place to cut")


def load_scorer(path: str | Path | None, model: ARRCOCModel) -> QueryBlindScorer | None:
    """The trained query-blind scorer of a file with query.weight and key.weight [width, D].

    Args:
        path: None: the bundled one, for the bundled model, if there is one.
        model: it is for.

    Raises:
        ValueError: no such file, no such weights, or of another width.
    """
    if path is None:
        if model.base_name != checkpoint.BUNDLED or not BUNDLED_SCORER.is_file():
            return None
        path = BUNDLED_SCORER
    file = Path(path).expanduser()
    try:
        weights = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"scorer {str(path)!r} can't be read ({checkpoint.one_line(error)}): "
                         "give the query_blind.safetensors that training wrote") from error  # fmt: skip
    dim = model.config.get_text_config().hidden_size
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    width = shapes.get("query.weight", (0,))[0]
    if shapes != {"query.weight": (width, dim), "key.weight": (width, dim)}:
        raise ValueError(
            f"scorer {str(path)!r} has {shapes}: it needs query.weight and key.weight of [width, {dim}], "
            "trained for this base model"
        )
    with torch.random.fork_rng(devices=[]):  # drawn, before its weights are read
        scorer = QueryBlindScorer(dim, width)
    scorer.load_state_dict(weights)
    return scorer.requires_grad_(False).to(model.device)


def split_allocators(specs: Sequence[str]) -> tuple[str | None, list[tuple[str, str]]]:
    """The model's own allocator and the named further ones, of "FOLDER" and "NAME=FOLDER".

    Raises:
        ValueError: two without a name, or a name twice.
    """
    own: str | None = None
    variants: dict[str, str] = {}
    for spec in specs:
        named = re.fullmatch(r"([\w.+-]+)=(.+)", spec)
        if named is None:
            if own is not None:
                raise ValueError(
                    f"allocators {own!r} and {spec!r} have no name: write NAME={spec} for one of them"
                )
            own = spec
        elif named[1] in variants:
            raise ValueError(f"allocator name {named[1]!r} comes twice: give each its own")
        else:
            variants[named[1]] = named[2]
    return own, list(variants.items())


def load_variant(folder: str, model: ARRCOCModel) -> ARRCOCLayer:
    """Another allocator for the same base model.

    Raises:
        ValueError: it is none, doesn't fit, or brings a LoRA, of which a model holds one at a time.
    """
    place = checkpoint.find_allocator(folder)
    if place is None:
        raise ValueError(f"{folder!r} is not an allocator: it has no {checkpoint.CONFIG_NAME}")
    if any((place / name).is_file() for name in checkpoint.LORA_FILES):
        raise ValueError(f"allocator {folder!r} has a LoRA: evaluate it in a run of its own, without a name")
    return checkpoint.load_layer(place, model.base).to(model.device).eval()
