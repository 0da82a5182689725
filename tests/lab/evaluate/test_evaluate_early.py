"""Methods that choose before the encoder, and gestalts alone: what they read, say, keep and cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.data.metrics import exact_match
from arr_coc.model import ARRCOCModel
from arr_coc.modes.call import EncodedImages
from arr_coc.session import GREEDY, Session
from arr_coc_lab.evaluate import METHODS, Settings, evaluate
from arr_coc_lab.evaluate.answering import answer_compacted, joined, visual_tokens
from arr_coc_lab.evaluate.methods import pick_methods
from arr_coc_lab.evaluate.questions import world_questions
from arr_coc_lab.evaluate.scene import Harness, Scene
from arr_coc_lab.evaluate.timing import Trial, measure
from arr_coc_lab.results.files import decode_kept, read_results
from each import each
from near import near
from tiny import FAMILIES, LLAVA_FAMILIES, tiny

# "crop-black" reads all tokens of a painted picture: `test_evaluate_hits.py` has its laws
EARLY = [method for method in METHODS.values() if method.prepare is not None and method.name != "crop-black"]
GESTALT, IN_ALL = 16, 30
"""A gestalt and its saccades on the small pages of these tests; else they would keep everything."""


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return ARRCOCModel.from_pretrained(strict=True)


@pytest.fixture(autouse=True)
def small_gestalts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arr_coc.seam.gestalt.CELLS", GESTALT)
    monkeypatch.setattr("arr_coc.modes.route.SACCADE_TOKENS", IN_ALL)


@pytest.fixture(scope="module")
def scene(model: ARRCOCModel) -> Scene:
    """A page of 8 x 8 cells with several questions, and those of the next page."""
    first, second = (a for a, _ in zip(world_questions(8, 256, per_page=4), range(2), strict=False))
    with torch.no_grad():
        return Scene(model, first, second.queries)


def ready(scene: Scene, name: str, i: int, budget: int | None) -> Any:
    method = METHODS[name]
    assert method.prepare is not None
    encoded = EncodedImages(scene.view.features if "encoded" in method.needs else None)
    with torch.no_grad():
        return method.prepare(scene.view, i, budget, encoded, Stopwatch(scene.model.device))


# ---- what is read -------------------------------------------------------------------------------------


@each(
    ("name", "budget", "read", "kept"),
    [
        ("arr-coc sparse", 9, 9, 9),
        ("oracle sparse", 9, 9, 9),
        ("shuffled question sparse", 9, 9, 9),
        ("arr-coc saccade", None, IN_ALL, IN_ALL - GESTALT),
        ("coc resize", None, GESTALT, None),
        ("coc pool4", None, 16, None),
        ("coc pool16", None, 4, None),
    ],
)
def test_each_reads_what_it_says(scene: Scene, name: str, budget: int | None, read: int, kept: int) -> None:
    made = ready(scene, name, 0, budget)
    assert visual_tokens(scene.model, made.compacted) == read
    if kept is None:
        assert made.keep is None
    else:
        assert made.keep.tolist() == sorted(set(made.keep.tolist()))
        assert len(made.keep) == kept


# "resolution by question" may look at all of an image before it says how large it has to be.
INSIDE = [m for m in EARLY if m.needs & {"tower4", "tower16", "halves"}]
"""They run half of the tower on all of an image."""
WHOLE = [
    m for m in EARLY if "encoded" not in m.needs and not m.name.startswith("resolution") and m not in INSIDE
]


@each("method", WHOLE, ids=lambda m: m.name)
def test_the_whole_image_is_never_encoded(scene: Scene, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patches that reach the tower: fewer than the image has, in every call."""
    rows: list[int] = []
    tower = scene.model.base.model.visual
    hook = tower.register_forward_pre_hook(
        lambda _, args, kwargs: rows.append(len(args[0])), with_kwargs=True
    )
    try:
        ready(scene, method.name, 0, None if method.fixed else 9)
    finally:
        hook.remove()
    assert rows
    assert max(rows) < 4 * scene.view.total


@each("method", INSIDE, ids=lambda m: m.name)
def test_few_patches_reach_the_upper_half_of_the_tower(scene: Scene, method: Any) -> None:
    """Those of the whole image reach the first block alone, on local windows; a quarter or less the last."""
    counts: dict[int, list[int]] = {}
    tower = scene.model.base.model.visual
    hooks = [
        block.register_forward_pre_hook(
            lambda _, args, number=number: counts.setdefault(number, []).append(len(args[0]))
        )
        for number, block in ((0, tower.blocks[0]), (1, tower.blocks[-1]))
    ]
    try:
        ready(scene, method.name, 0, None)
    finally:
        for hook in hooks:
            hook.remove()
    assert max(counts[0]) == 4 * scene.view.total
    assert min(counts[1]) <= scene.view.total  # of a saccade the chosen cells run through the tower as well


def test_they_decide_as_the_model_does(scene: Scene) -> None:
    model, i = scene.model, 1
    inputs = Session(model, scene.source.image).inputs(scene.texts[i])
    with torch.no_grad():
        for name, mode, budget in (("arr-coc sparse", "sparse", 9), ("arr-coc saccade", "saccade", None)):
            own = model.prepare(inputs, mode=mode, budget=budget)
            assert torch.equal(ready(scene, name, i, budget).keep, own.allocations[0].keep)


def test_the_oracle_and_the_control_choose_by_what_they_are_named_for(scene: Scene) -> None:
    oracle, other = METHODS["oracle"], scene.view.others[0]
    assert oracle.select is not None
    assert other is not None
    assert torch.equal(ready(scene, "oracle sparse", 0, 9).keep, oracle.select(scene.view, 0, 9).keep)
    with torch.no_grad():
        theirs = scene.model.prepare(other, mode="sparse", budget=9).allocations[0].keep
    assert torch.equal(ready(scene, "shuffled question sparse", 0, 9).keep, theirs)
    assert not torch.equal(ready(scene, "arr-coc sparse", 0, 9).keep, theirs)


@torch.no_grad()
def test_with_every_cell_kept_it_is_the_stock_model(scene: Scene) -> None:
    """But for the LoRA of what is encoded in part, if the model has one: the stock encoder is called here."""
    model, total = scene.model, scene.view.total
    made = ready(scene, "oracle sparse", 0, total)
    fine = model.adapter.encode_cells(scene.view.prompts[0], [torch.arange(total)])
    assert torch.equal(fine.tokens[0], scene.view.features.tokens[0])
    assert made.keep.tolist() == list(range(total))
    assert "position_ids" not in made.compacted.kwargs  # nothing was dropped: the caller's own prompt


# ---- what is said -------------------------------------------------------------------------------------


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("name", ["arr-coc sparse", "arr-coc saccade", "coc resize", "coc pool16"])
def test_a_batch_answers_as_its_rows(scene: Scene, name: str) -> None:
    model, mode = scene.model, METHODS[name].mode
    budget = None if METHODS[name].fixed else 20
    made = [ready(scene, name, i, budget).compacted for i in range(len(scene.texts))]
    assert len({one.columns.shape[1] for one in made}) > 1  # questions of different lengths
    together = joined(made, model.adapter.padding_id)
    base = model.adapter_for(mode).model
    logits = base(**together, logits_to_keep=1).logits[:, -1]
    for row, one in zip(logits, made, strict=True):
        alone = base(**one.kwargs, logits_to_keep=1).logits[0, -1]
        assert near(row, alone)
    options = {"max_new_tokens": 8}
    texts = answer_compacted(model, made, mode, most=8, **options)
    assert texts == answer_compacted(model, made, mode, most=1, **options)
    for text, one in zip(texts, made, strict=True):
        ids = base.generate(**one.kwargs, **GREEDY, **options)[0, one.columns.shape[1] :]
        assert text == model.processor.tokenizer.decode(ids, skip_special_tokens=True).strip()


@torch.no_grad()
def test_whole_and_shortened_prompts_do_not_share_a_batch(scene: Scene) -> None:
    total = scene.view.total
    made = [
        ready(scene, "oracle sparse", i, k).compacted for i, k in ((0, 9), (0, total), (1, total), (1, 9))
    ]
    texts = answer_compacted(scene.model, made, "sparse", most=8, max_new_tokens=8)
    for one, text in zip(made, texts, strict=True):
        assert answer_compacted(scene.model, [one], "sparse", most=1, max_new_tokens=8) == [text]


@pytest.mark.slow
def test_a_run_records_them_as_the_others(tmp_path: Path, model: ARRCOCModel) -> None:
    names = ("full", "arr-coc sparse", "arr-coc saccade", "coc resize", "coc pool4", "oracle sparse")
    names += ("shuffled question sparse",)
    settings = Settings(
        out=tmp_path / "run",
        questions=4,
        per_image=2,
        size=256,
        budgets=(18, "auto"),
        methods=names,
        timed=1,
    )
    summary = evaluate(settings, progress=False)
    fixed = {"full", "arr-coc saccade", "coc resize", "coc pool4"}
    budgeted = {f"{m}@18" for m in set(names) - fixed} | {"arr-coc sparse@auto"}
    header, records = read_results(settings.lines)
    for record in records:
        assert set(record["said"]) == set(record["tokens"]) == fixed | budgeted
        assert set(record["kept"]) == budgeted | {"arr-coc saccade"}
        assert record["tokens"]["arr-coc sparse@18"] == 18
        assert record["tokens"]["arr-coc saccade"] == IN_ALL
        assert decode_kept(record["kept"]["arr-coc saccade"], 64).sum() == IN_ALL - GESTALT
        if record["evidence"]:
            assert record["recall"]["oracle sparse@18"] == pytest.approx(
                min(1, 18 / record["evidence"]), abs=1e-4
            )
    (timed,) = [record for record in records if "ms" in record]
    untimed = {"shuffled question sparse@18"}
    assert set(timed["ms"]) == set(timed["peak_mb"]) == (fixed | budgeted) - untimed
    assert "gestalt" in timed["ms"]["coc resize"]
    assert timed["ms"]["arr-coc sparse@18"]["select"] > 0.5
    assert all(min(stages.values()) >= 0 for stages in timed["ms"].values())
    assert summary["methods"]["arr-coc saccade"]["tokens"] == IN_ALL
    if model.stem is not None:
        assert "stem" in header["weights"]

    asked = [(page, query) for page in world_questions(4, 256, 2) for query in page.queries]
    for (page, query), record in zip(asked, records, strict=True):
        for name, mode, budget in (
            ("arr-coc sparse@18", "sparse", 18),
            ("arr-coc sparse@auto", "sparse", "auto"),
            ("arr-coc saccade", "saccade", None),
            ("coc resize", "compress", None),
        ):
            answer = Session(model, page.image).ask(query.text, mode=mode, budget=budget, max_new_tokens=8)
            assert record["said"][name] == answer.text


# ---- what it costs ------------------------------------------------------------------------------------


def test_a_time_is_from_nothing_and_of_every_stage(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage is made longer by a known time, and comes back in its own place."""
    ms = {"gestalt": 50.0, "encode": 40.0, "texture": 30.0, "scoring": 20.0}
    model = scene.model
    plain = model.prepare

    def slow(*args: Any, watch: Stopwatch, encoded: EncodedImages, **kwargs: Any) -> Any:
        assert encoded.features is None  # nothing is known
        made = plain(*args, encoded=encoded, **kwargs)
        for stage, value in ms.items():
            watch.ms[stage] += value
        return made

    monkeypatch.setattr(model, "prepare", slow)
    method = METHODS["arr-coc saccade"]
    stages = measure(Trial(method, None, scene.view, 0, scene.view.prompts[0]))
    assert list(stages) == ["gestalt", "encode", "select", "prefill"]
    assert [stages[name] for name in ("gestalt", "encode", "select")] == [50.0, 40.0, 50.0]


# ---- where it can run ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_family_cannot_do_is_noted(family: str) -> None:
    built = tiny(family)
    model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
    found, notes = pick_methods(model, None, [], None)
    assert {m.name for m in found} | set(notes) == set(METHODS)
    assert {"coc tower4", "arr-coc saccade tower4"} <= notes.keys()  # untrained
    before = {m.name for m in EARLY if "sparse" in m.needs and not m.needs & {"tower4", "tower16"}}
    assert before & notes.keys() == (before if family in LLAVA_FAMILIES else set())
    assert {"coc pool4", "coc pool16"} <= {m.name for m in found}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_answers(family: str) -> None:
    built = tiny(family)
    model = ARRCOCModel.wrap(built.model, built.processor, strict=True)
    first, second = (a for a, _ in zip(world_questions(4, 64, per_page=2), range(2), strict=False))
    found, _ = pick_methods(model, [m.name for m in EARLY], [], None)
    harness = Harness(model, found, exact_match, (5,), 4, max_new_tokens=3)
    for record in harness.records(first, second.queries):
        assert record["tokens"].keys() == {m.name if m.fixed else f"{m.name}@5" for m in found}
        for name, tokens in record["tokens"].items():
            if name.endswith("@5"):
                assert tokens == 5
            elif name == "coc pool16" and family not in LLAVA_FAMILIES:
                h, w = record["grid"][1:]
                assert tokens == -(-h // 4) * -(-w // 4)


def test_a_fixed_method_has_one_row_whatever_the_budgets(model: ARRCOCModel) -> None:
    methods = [METHODS[name] for name in ("full", "arr-coc sparse", "arr-coc saccade", "coc pool4")]
    for budgets in ((9,), (9, 18, "auto")):
        harness = Harness(model, methods, exact_match, budgets, 1)
        labels = [entry.label for entry in harness.entries]
        assert [label for label in labels if "@" not in label] == ["full", "arr-coc saccade", "coc pool4"]
        assert [x for x in labels if "@" in x] == [f"arr-coc sparse@{budget}" for budget in budgets]
