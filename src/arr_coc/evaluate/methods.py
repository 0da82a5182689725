"""The methods of an evaluation by name: ours, the nulls, the upper bounds and the rivals.

    METHODS["visionzip"].choose(view, question, 64) -> Selection(keep [64], tokens or None)
    METHODS["arr-coc sparse"].prepare(view, question, 64, known, watch) -> Ready(prompt, kept cells)

Most choose cells of the encoded image. Three do neither: "full" keeps everything, "downsample" shrinks the
image until it has no more cells than the budget, "fastv" drops tokens inside the language model. Where a
rival merges tokens, the merged ones stand at the kept cells' places; DeepStack's levels are gathered, not
merged. Those with `prepare` encode what they need themselves: "arr-coc sparse" and "arr-coc saccade" choose
before the encoder, "coc ..." sends a gestalt in place of the image.

A new method is one `Method` in `METHODS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file

from arr_coc import checkpoint, rivals
from arr_coc.evaluate.early import Prepare, alone, by_mode, of_another_question
from arr_coc.evaluate.fastv import FASTV_FAMILIES
from arr_coc.evaluate.view import View, check_tower
from arr_coc.layer import ARRCOCLayer
from arr_coc.model import ARRCOCModel
from arr_coc.rivals import QueryBlindScorer, Selection
from arr_coc.seam import Qwen2_5VLAdapter

Kind = Literal["full", "ours", "coc", "null", "bound", "rival"]
Choose = Callable[[View, int, int | Literal["auto"]], Selection]
Need = Literal["tower", "scorer", "sizes", "layers", "other", "sparse", "encoded", "conv4", "conv16"]
Mode = Literal["full", "prune", "sparse", "saccade", "compress"]

SHAPE = 1.1
"""How far a smaller grid may be from the image's shape, as a factor."""
BUNDLED_SCORER = checkpoint.BUNDLED_MODEL.parent / "query_blind.safetensors"
FULL, OURS, SHUFFLED, DOWNSAMPLE, FASTV = "full", "arr-coc", "shuffled question", "downsample", "fastv"
SPARSE, SACCADE = f"{OURS} sparse", f"{OURS} saccade"


@dataclass(frozen=True)
class Method:
    """One way to spend a budget of visual tokens.

    Attributes:
        name: as in result files.
        kind: what it is to the comparison.
        by_question: it chooses anew for each question; else once for an image.
        choose: (view, question, count or "auto") -> Selection, from the encoded image.
        prepare: makes the prompt itself, with what it encodes for it. Neither: `full`, `downsample`, `fastv`.
        needs: the watched vision "tower", a trained "scorer", images of any "sizes", the language model's
            "layers" to cut between, an "other" image's question, a tower that encodes some cells alone
            ("sparse"), the whole image "encoded" before `prepare`, a trained "conv4" or "conv16".
        auto: it can also choose how many.
        fixed: it always spends the same, whatever the budget of a run: one row, named without a budget.
        mode: whose LoRA it answers with, if there is one: that of its own mode if it is ours; "full", all
            else, is the stock model.
        timed: its time is that of a use; of a control that decides for one question and answers another it
            is not.
    """

    name: str
    kind: Kind
    by_question: bool
    choose: Choose | None = None
    prepare: Prepare | None = None
    needs: frozenset[Need] = frozenset()
    auto: bool = False
    fixed: bool = False
    mode: Mode = "full"
    timed: bool = True


def ours(name: str, layer: ARRCOCLayer | None = None, other: bool = False) -> Method:
    """ARR-COC as a method.

    Args:
        name: of the method.
        layer: an allocator for the same base model; None: the model's own.
        other: decide by another image's question.
    """

    def choose(view: View, i: int, budget: int | Literal["auto"]) -> Selection:
        own = view.model.layer if layer is None else layer
        if not own.trained:
            return Selection(view.untrained(own, i, budget, other))
        return Selection(own.allocate(view.relevance(own, i, other), budget, view.grid)[0].keep)

    needs: frozenset[Need] = frozenset({"other"} if other else ())
    return Method(name, "null" if other else "ours", True, choose, needs=needs, auto=not other, mode="prune")


def _oracle(view: View, i: int, k: int | Literal["auto"]) -> Selection:
    evidence = view.evidence(i)
    if evidence is None:  # nothing to know: the whole page is the evidence
        return rivals.even(view.grid[1:], _count(k))
    return rivals.oracle(evidence, _count(k))


def _count(k: int | Literal["auto"]) -> int:
    assert k != "auto", "only ours is asked to choose how many"
    return k


def _rival(
    name: str, rule: Callable[[View, int, int], Selection], *needs: Need, by_question: bool = False
) -> Method:
    return Method(name, "rival", by_question, lambda v, i, k: rule(v, i, _count(k)), needs=frozenset(needs))


def _null(name: str, rule: Callable[[View, int, int], Selection], by_question: bool = False) -> Method:
    return Method(name, "null", by_question, lambda v, i, k: rule(v, i, _count(k)))


def _coc(gestalt: str, *needs: Need) -> Method:
    """A gestalt in place of the image: COC without ARR."""
    prepare = by_mode("compress", gestalt)
    return Method(
        f"coc {gestalt}", "coc", False, prepare=prepare, needs=frozenset(needs), fixed=True, mode="compress"
    )


def _random(view: View, i: int, k: int) -> Selection:
    return rivals.random(view.total, k, view.generator("random", i))


def _visionzip(view: View, i: int, k: int) -> Selection:
    return rivals.visionzip(view.received(-2), view.keys(-2), view.tokens, k)


def _prumerge_plus(view: View, i: int, k: int) -> Selection:
    """Queries and keys are not split into heads, as published."""
    return rivals.prumerge_plus(view.received(-1, joined=True), view.keys(-1, joined=True), view.tokens, k)


def _mmtok(view: View, i: int, k: int) -> Selection:
    return rivals.mmtok(view.tokens, view.question(i), view.states, k)


def _cdpruner(sign: int) -> Callable[[View, int, int], Selection]:
    return lambda view, i, k: rivals.cdpruner(view.tokens, view.question(i), k, sign)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(FULL, "full", False),
        ours(OURS),
        _null("random", _random, by_question=True),
        _null("even grid", lambda v, i, k: rivals.even(v.grid[1:], k)),
        Method(DOWNSAMPLE, "null", False, needs=frozenset({"sizes"})),
        ours(SHUFFLED, other=True),
        Method(
            SPARSE,
            "ours",
            True,
            prepare=by_mode("sparse"),
            needs=frozenset({"sparse"}),
            auto=True,
            mode="sparse",
        ),
        Method(
            SACCADE,
            "ours",
            True,
            prepare=by_mode("saccade"),
            needs=frozenset({"sparse"}),
            fixed=True,
            mode="saccade",
        ),
        Method(
            f"{SHUFFLED} sparse",
            "null",
            True,
            prepare=alone(of_another_question),
            needs=frozenset({"sparse", "other"}),
            mode="sparse",
            timed=False,
        ),
        _coc("resize", "sparse"),
        _coc("pool4", "encoded"),
        _coc("pool16", "encoded"),
        _coc("conv4", "encoded", "conv4"),
        _coc("conv16", "encoded", "conv16"),
        Method("oracle", "bound", True, _oracle),
        Method(
            "oracle sparse",
            "bound",
            True,
            prepare=alone(_oracle),
            needs=frozenset({"sparse"}),
            mode="sparse",
        ),
        Method(FASTV, "rival", True, needs=frozenset({"layers"})),
        _rival("visionzip", _visionzip, "tower"),
        _rival("divprune", lambda v, i, k: rivals.divprune(v.tokens, k)),
        _rival("cdpruner+", _cdpruner(+1), by_question=True),
        _rival("cdpruner-", _cdpruner(-1), by_question=True),
        _rival("prumerge+", _prumerge_plus, "tower"),
        _rival("scope", lambda v, i, k: rivals.scope(v.tokens, v.received(-1), k), "tower"),
        _rival("mmtok", _mmtok, "tower", by_question=True),
        _rival("idpruner", lambda v, i, k: rivals.idpruner(v.blind_scores(), v.tokens, k), "scorer"),
        _rival("visionselector", lambda v, i, k: rivals.visionselector(v.blind_scores(), k), "scorer"),
    )
}


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
        The methods in the order of the registry, variants after ours; and by name why another one is left
        out.

    Raises:
        ValueError: an unknown name, or nothing can run.
    """
    known = dict(METHODS)
    for name, layer in variants:
        known[f"{OURS}:{name}"] = ours(f"{OURS}:{name}", layer)
    wanted = list(known if names is None else dict.fromkeys(names))
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"method {unknown[0]!r} is unknown; use some of {', '.join(known)}")
    found, notes = [], {}
    for method in known.values():
        if method.name in wanted:
            try:
                _check_needs(method, model, scorer)
                found.append(method)
            except ValueError as error:
                notes[method.name] = str(error)
    if not found:
        raise ValueError(f"none of the methods can run: {next(iter(notes.values()), 'none was named')}")
    return found, notes


def _check_needs(method: Method, model: ARRCOCModel, scorer: QueryBlindScorer | None) -> None:
    """Raises ValueError where the model lacks what the method needs."""
    family = model.config.model_type
    if "tower" in method.needs:
        check_tower(family)
    if "scorer" in method.needs and scorer is None:
        raise ValueError("no trained query-blind scorer: give its .safetensors file as --query-blind")
    if "sizes" in method.needs and not isinstance(model.adapter, Qwen2_5VLAdapter):
        raise ValueError(f"{family!r} has no freely chosen image size: its tower takes pictures of one size")
    if "sparse" in method.needs and not model.adapter.sparse:
        raise ValueError(f"the vision tower of {family!r} can't encode some cells alone, or a smaller image")
    for name in sorted(method.needs & {"conv4", "conv16"}):
        if name not in model.convs:
            raise ValueError(f"no trained compressor: put {name}.safetensors into the allocator's folder")
    if "layers" in method.needs:
        if family not in FASTV_FAMILIES:
            raise ValueError(
                f"the layers of {family!r} are unknown to fastv: it runs {', '.join(FASTV_FAMILIES)}"
            )
        if cut_layer(model) < 1:
            raise ValueError("the language model has one layer: there is no place to cut")


def cut_layer(model: ARRCOCModel) -> int:
    """The layer after which fastv drops tokens: 2 as published, less in a model of two layers."""
    return min(2, model.config.get_text_config().num_hidden_layers - 1)


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
        found = re.fullmatch(r"([\w.+-]+)=(.+)", spec)
        if found is None:
            if own is not None:
                raise ValueError(
                    f"allocators {own!r} and {spec!r} have no name: write NAME={spec} for one of them"
                )
            own = spec
        elif found[1] in variants:
            raise ValueError(f"allocator name {found[1]!r} comes twice: give each its own")
        else:
            variants[found[1]] = found[2]
    return own, list(variants.items())


def load_variant(folder: str, model: ARRCOCModel) -> ARRCOCLayer:
    """Another allocator for the same base model.

    Raises:
        ValueError: it is none, doesn't fit, or brings a LoRA, of which a model holds one at a time.
    """
    found = checkpoint.find_allocator(folder)
    if found is None:
        raise ValueError(f"{folder!r} is not an allocator: it has no {checkpoint.CONFIG_NAME}")
    if any((found / name).is_file() for name in checkpoint.LORA_FILES):
        raise ValueError(f"allocator {folder!r} has a LoRA: evaluate it in a run of its own, without a name")
    return checkpoint.load_layer(found, model.base).to(model.device).eval()


def smaller_grid(grid: tuple[int, int], count: int) -> tuple[int, int]:
    """The grid with the most cells, at most `count`, in the shape of the image's own.

    The shape may differ by the factor `SHAPE`; where that leaves nothing the nearest shape is taken. Equally
    large grids: the nearer shape, then the wider one.

    Args:
        grid: (H, W) of the image.
        count: cells to spend, at least 1.
    """
    height, width = grid
    if count >= height * width:
        return grid
    shape = width / height
    sizes = [(h, w) for h in range(1, min(height, count) + 1) for w in range(1, min(width, count // h) + 1)]
    far = {(h, w): abs(math.log(w / h / shape)) for h, w in sizes}
    near = [size for size in sizes if far[size] <= math.log(SHAPE) + 1e-9]
    if near:
        return min(near, key=lambda size: (-size[0] * size[1], round(far[size], 9), size[0]))
    return min(sizes, key=lambda size: (round(far[size], 9), -size[0] * size[1], size[0]))


def shrink(image: Image.Image, grid: tuple[int, int], model: ARRCOCModel) -> Image.Image:
    """The image resized to exactly `grid` (H, W) cells of a Qwen model."""
    vision = model.config.vision_config
    cell = vision.patch_size * vision.spatial_merge_size
    return image.resize((grid[1] * cell, grid[0] * cell), Image.Resampling.LANCZOS)
