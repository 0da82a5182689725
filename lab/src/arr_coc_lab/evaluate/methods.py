"""Which registered methods can run on a model, and loading the allocators and scorers that some need.

methods, notes = pick_methods(model, ("arr-coc", "divprune"), [], scorer)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from arr_coc.choose.knowing import same_start
from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.files.atomic import one_line
from arr_coc.files.paths import input_file
from arr_coc.model import ARRCOCModel
from arr_coc.seam.tower_compressor import TOWERS
from arr_coc.store import checkpoint
from arr_coc.train.folder import QUERY_BLIND
from arr_coc_lab.evaluate.layer_pruning import layer_families
from arr_coc_lab.evaluate.ours import ours
from arr_coc_lab.evaluate.painted import CROP_BLACK
from arr_coc_lab.evaluate.resolution import resolution_by_question
from arr_coc_lab.evaluate.turns import TURNS
from arr_coc_lab.evaluate.view import check_tower
from arr_coc_lab.results.kinds import OURS
from arr_coc_lab.rivals import METHODS, QueryBlindScorer
from arr_coc_lab.rivals.method import Method, find_method

__all__ = [
    "CROP_BLACK",
    "METHODS",
    "Method",
    "check_names",
    "load_scorer",
    "load_variant",
    "pick_methods",
    "resolution_by_question",
    "split_allocators",
]

BUNDLED_SCORER = Path(__file__).parents[1] / QUERY_BLIND


def pick_methods(
    model: ARRCOCModel,
    names: Sequence[str] | None,
    variants: Sequence[tuple[str, ARRCOCLayer]],
    scorer: QueryBlindScorer | None,
) -> tuple[list[Method], dict[str, str]]:
    """Return the methods that can run on a model, in the order of the table, and why each other one is left
    out.

    `names` may hold variations NAME:ARGUMENT and `TURNS`; None: all but these. `variants` are further
    allocators, "arr-coc:NAME" each.

    Raises:
        ValueError: an unknown name, or nothing can run.
    """
    check_names(names, [name for name, _ in variants])
    table = dict(METHODS)
    for name, layer in variants:
        table[f"{OURS}:{name}"] = ours(f"{OURS}:{name}", layer)
    if names is not None:
        table |= TURNS
    wanted = table if names is None else {name: find_method(name, table) for name in names}
    order = list(table)
    methods: list[Method] = []
    notes: dict[str, str] = {}

    def place(name: str) -> tuple[int, bool]:  # a variation comes after the method that it varies
        return order.index(name if name in table else name.partition(":")[0]), name not in table

    for name in sorted(wanted, key=place):
        try:
            _check_needs(wanted[name], model, scorer)
            methods.append(wanted[name])
        except ValueError as error:
            notes[name] = str(error)
    if not methods:
        raise ValueError(f"none of the methods can run: {next(iter(notes.values()), 'none was named')}")
    return methods, notes


def check_names(names: Sequence[str] | None, variants: Sequence[str]) -> None:
    """Raise ValueError for an unknown method name, with the nearest known one, before any loading."""
    table = METHODS | TURNS | {f"{OURS}:{name}": METHODS[OURS] for name in variants}
    for name in names or ():
        find_method(name, table)


def _check_needs(method: Method, model: ARRCOCModel, scorer: QueryBlindScorer | None) -> None:
    """Raise ValueError where the model lacks what the method needs."""
    family = model.config.model_type
    if "tower" in method.needs:
        check_tower(model.adapter)
    if "scorer" in method.needs and scorer is None:
        raise ValueError("no trained query-blind scorer: give its .safetensors file as --query-blind")
    if "sizes" in method.needs and not model.adapter.keeps_shape:
        raise ValueError(f"{family!r} has no freely chosen image size that is known here: use a Qwen model")
    if "sparse" in method.needs and model.adapter.encodes != "cells":
        raise ValueError(f"the vision tower of {family!r} can't encode some cells alone, or a smaller image")
    if "halves" in method.needs and not model.adapter.halves:
        raise ValueError(f"the vision tower of {family!r} can't be run in two halves")
    for name in sorted(method.needs & set(TOWERS)):
        if name not in model.compressors:
            raise ValueError(f"no trained compressor: put {name}.safetensors into the allocator's folder")
    if "layers" in method.needs:
        if not model.adapter.layer_by_layer:
            raise ValueError(
                f"the layers of {family!r} can't be called one by one: use {', '.join(layer_families())}"
            )
        depth = model.config.get_text_config().num_hidden_layers
        if depth < 2:
            raise ValueError("the language model has one layer: there is no place to cut")
        if method.layers >= max(depth, 3):  # the published two are one in a model of two
            raise ValueError(f"the language model has {depth} layers: there is a cut after 1 to {depth - 1}")


def load_scorer(path: str | Path | None, model: ARRCOCModel) -> QueryBlindScorer | None:
    """Return the query-blind scorer of a file with query.weight and key.weight [width, D], with or without
    biases.

    `path` of None: the bundled one, for the bundled model, if there is one.

    Raises:
        ValueError: no such file, no such weights, or of another width.
    """
    if path is None:
        if model.base_name != checkpoint.BUNDLED_NAME or not BUNDLED_SCORER.is_file():
            return None
        path = BUNDLED_SCORER
    file = input_file(path)
    try:
        weights = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"scorer {str(path)!r} can't be read ({one_line(error)}): "
                         "give the query_blind.safetensors that training wrote") from error  # fmt: skip
    dim = model.config.get_text_config().hidden_size
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    width = shapes.get("query.weight", (0,))[0]
    matrices = {"query.weight": (width, dim), "key.weight": (width, dim)}
    biases = {"query.bias": (width,), "key.bias": (width,)}
    if shapes not in (matrices, matrices | biases):
        raise ValueError(
            f"scorer {str(path)!r} has {shapes}: it needs query.weight and key.weight of [width, {dim}], "
            "with or without biases of [width], trained for this base model"
        )
    with same_start():  # drawn, before its weights are read
        scorer = QueryBlindScorer(dim, width, bias=len(shapes) > len(matrices))
    scorer.load_state_dict(weights)
    return scorer.requires_grad_(False).to(model.device)


def split_allocators(specs: Sequence[str]) -> tuple[str | None, list[tuple[str, str]]]:
    """Return the model's own allocator and the named further ones, from "FOLDER" and "NAME=FOLDER".

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
        ValueError: it is none, doesn't fit, or has a LoRA, of which a model holds one at a time.
    """
    place = checkpoint.find_allocator(folder)
    if place is None:
        raise ValueError(f"{folder!r} is not an allocator: it has no {checkpoint.CONFIG_NAME}")
    if any((place / name).is_file() for name in checkpoint.LORA_FILES):
        raise ValueError(f"allocator {folder!r} has a LoRA: evaluate it in a run of its own, without a name")
    return checkpoint.load_layer(place, model.base).to(model.device).eval()
