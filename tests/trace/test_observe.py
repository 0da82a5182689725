"""Observing: traces of every mode and family, and what each word pulls at."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from arr_coc.choose.allocation import Reason
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.data.evidence import evidence_cells
from arr_coc.guide.coupling import Coupling, GuideSource
from arr_coc.model import ARRCOCModel
from arr_coc.session import ChoiceOptions, Session
from arr_coc.trace.observe import _allocate_sets, _columns, _fitted, observe, word_heat
from arr_coc.trace.trace import Trace
from arr_coc.train.learner import fit_coarse_basis
from arr_coc_lab.world import draw_page
from eyes import IMAGES, build, set_constants, wrapped
from near import near
from tiny import WIDTH, picture, tiny

WIDE = IMAGES[1]  # 45 cells in Qwen's families
QUESTION = "Where is the red ball, (INV-24)?"
WORDS = ["Where", "is", "the", "red", "ball", "INV-24"]
SCORING = ("prune", "weight", "sparse", "saccade")
MODES = (*SCORING, "compress", "full")

CALLS: dict[str, dict[str, Any]] = {
    "budget": {"budget": 0.3},
    "mode": {"mode": "saccade"},
    "gestalt": {"mode": "saccade", "gestalt": "pool4"},
    "cells": {"cells": [3, 4, 17]},
    "coverage": {"mode": "prune", "coverage": 0.8},
    "magnify": {"mode": "sparse", "magnify": 2, "budget": 20},
    "history": {"history": [("Where is the red ball, (INV-24)?", "red"), ("And now?", "")]},
    "max_new_tokens": {"max_new_tokens": 2},
    "on_text": {"on_text": lambda _: None},
    "on_plan": {"on_plan": lambda _: None},
}
"""Arguments of `Session.ask`, by the option that they are there for."""
MORE_CALLS = {
    "auto": {"budget": "auto"},
    "magnify auto": {"mode": "sparse", "magnify": "auto", "budget": 20},
    "magnified saccade": {"mode": "saccade", "magnify": 2, "budget": 20},
    "magnified cells": {"mode": "sparse", "magnify": 1.5, "cells": [3, 4, 17]},
    "cells of a saccade": {"mode": "saccade", "cells": [3, 4, 17]},
    "a history and a coverage": {"history": [("What?", "red")], "coverage": 0.8, "mode": "sparse"},
}
EVERY_CALL = CALLS | MORE_CALLS
every_call = pytest.mark.parametrize(
    ("call", "kind"),
    [(call, "stem") for call in EVERY_CALL]
    + [(call, "guide") for call in ("budget", "coverage", "history", "auto", "magnify auto")],
)
"""Each call where a trained layer chooses, and those to which the guide's word is another where it does."""
every_mode = pytest.mark.parametrize("mode", MODES)
every_scoring = pytest.mark.parametrize("mode", SCORING)
every_path = pytest.mark.parametrize(
    ("kind", "mode"),
    [("guide", "prune"), ("gaze", "sparse"), ("covering", "saccade"), ("stem", "sparse"), ("stem", "weight")],
)
"""Each mode that scores, and each kind of eyes."""


@pytest.fixture(autouse=True)
def small_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    set_constants(monkeypatch)


def session(kind: str = "stem", family: str = "qwen3_vl") -> Session:
    return wrapped(family, kind).session(WIDE)


def said(answer: Any) -> tuple[Any, ...]:
    """An answer but for its times."""
    kept = answer.allocation
    return answer.text, answer.mode, answer.kept, answer.read, answer.note, kept.to_dict()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "compress"])
def test_channels_that_need_a_basis_where_nothing_is_scored(mode: str) -> None:
    small = tiny("qwen3_vl")
    channels = ("rgb", "position", "components")
    layer = ARRCOCLayer(ARRCOCConfig(dim=WIDTH, channels=channels))
    pictures = [picture(seed, (64, 48)) for seed in range(20)]
    layer.basis = fit_coarse_basis(ARRCOCModel.wrap(small.model, small.processor), pictures)
    model = ARRCOCModel(small.model, small.processor, layer, strict=True)
    trace = observe(model.session(pictures[1]), "What is it?", mode=mode, max_new_tokens=2)
    assert trace.texture.shape[0] == len(trace.channels) == 3 + 2 + 16


class TestTrace:
    @pytest.mark.parametrize(
        ("family", "kind", "mode"),
        [("qwen3_vl", "stem", mode) for mode in MODES]
        + [("qwen3_vl", "gaze", "sparse"), ("qwen2_5_vl", "gaze", "saccade"), ("llava", "gaze", "prune")]
        + [("llava", "gaze", "compress"), ("llava_next", "gaze", "prune"), ("llava_next", "gaze", "weight")],
    )
    def test_every_family_and_mode(self, family: str, kind: str, mode: str, tmp_path: Path) -> None:
        open_ = session(kind, family)
        found = observe(open_, QUESTION, mode=mode, max_new_tokens=2)
        alone = session(kind, family).ask(QUESTION, mode=mode, max_new_tokens=2)
        whole = open_.ask(QUESTION, mode="full", max_new_tokens=2)
        assert (found.answer, found.mode, found.note) == (alone.text, alone.mode, alone.note)
        assert found.allocation.to_dict() == alone.allocation.to_dict()
        assert (found.kept, found.total, found.read) == (alone.kept, alone.total, alone.read)
        assert found.full is not None
        assert found.full.text == whole.text
        assert said(open_.ask(QUESTION, mode=mode, max_new_tokens=2)) == said(alone)  # nothing has changed
        assert found.texture is not None
        assert found.texture.shape == (len(found.channels), *alone.grid[1:])
        chooses = alone.mode not in ("full", "compress")
        assert [word.text for word in found.words if word.heat is not None] == (WORDS if chooses else [])
        found.save(tmp_path / "a")
        assert Trace.load(tmp_path / "a").view() == found.view()
        json.dumps(found.view(), allow_nan=False)

    def test_full_chooses_nothing_and_differs_in_nothing(self) -> None:
        found = observe(session(), QUESTION, mode="full", max_new_tokens=3)
        assert found.agree is True
        assert found.full is not None
        assert (found.full.text, found.full.ms) == (found.answer, found.ms)
        assert found.allocation.mask().all()
        assert set(found.allocation.reasons.tolist()) == {Reason.ALL}

    def test_a_saccade_reads_its_coarse_view_too(self) -> None:
        found = observe(session(), QUESTION, mode="saccade", max_new_tokens=1)
        assert found.read - found.kept == 8
        assert found.read == 7 + 8

    def test_an_image_too_small_for_saccades(self) -> None:
        small = wrapped().session(IMAGES[0])
        found = observe(small, QUESTION, mode="saccade", max_new_tokens=1)
        assert (found.kept, found.read) == (30, 30)
        assert all(word.heat is None for word in found.words)
        with pytest.raises(ValueError, match="'saccade' scores nothing of this image"):
            word_heat(small, QUESTION, "saccade", kept=7)

    def test_less_can_be_asked(self) -> None:
        found = observe(session(), QUESTION, compare=False, words=False, budget=0.2, max_new_tokens=1)
        assert (found.full, found.agree, found.words) == (None, None, ())
        assert (found.budget, found.kept) == (0.2, 9)

    @pytest.mark.parametrize("mode", ["prune", "saccade", "compress", "full"])
    def test_both_answers_are_from_scratch_whatever_was_asked_before(self, mode: str) -> None:
        open_, towers = session(), []
        visual = open_.model.base.model.visual
        for _ in range(2):
            open_.ask(QUESTION, mode="full", max_new_tokens=1)
            open_.ask(QUESTION, mode=mode, max_new_tokens=1)
            hook = visual.register_forward_hook(lambda *_: towers.append(1))
            found = observe(open_, QUESTION, mode=mode, max_new_tokens=1)
            hook.remove()
            assert found.full is not None
            assert found.full.ms["encode"] > 0
            assert found.ms["encode"] + found.ms["gestalt"] > 0
            own = {"sparse": "texture", "saccade": "texture", "compress": "gestalt"}.get(mode, "encode")
            assert found.ms[own] > 0
        assert len(towers) >= 2

    @every_mode
    def test_a_later_question_does_not_encode_again(self, mode: str) -> None:
        found = observe(session(), QUESTION, mode=mode, max_new_tokens=1)
        assert found.full is not None
        assert found.again is not None
        assert found.full.again is not None
        assert found.full.again["encode"] == 0
        left = found.full.ms["total"] - found.full.ms["encode"]
        assert found.full.again["total"] == pytest.approx(left)
        if mode not in ("sparse", "saccade"):  # which encode other cells for another question
            assert found.again["encode"] == 0

    def test_nothing_is_measured_again_unless_it_is_compared(self) -> None:
        found = observe(session(), QUESTION, compare=False, words=False, max_new_tokens=1)
        assert (found.full, found.again) == (None, None)

    def test_the_machine_is_named(self) -> None:
        found = observe(session(), QUESTION, compare=False, words=False, max_new_tokens=1)
        assert found.machine == f"cpu, float32, {torch.get_num_threads()} threads"

    def test_true_answers_are_recorded(self) -> None:
        found = observe(session(), "What?", compare=False, true_answers=["red"], max_new_tokens=1)
        assert (found.true_answers, found.is_true) == (("red",), False)

    def test_a_fallback_is_traced(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = build(strict=False)
        monkeypatch.setattr(model.layer, "scores", lambda *_: 1 / 0)
        found = observe(model.session(WIDE), QUESTION, max_new_tokens=1)
        assert found.fallback
        assert found.agree is True
        assert all(word.heat is None for word in found.words)

    @pytest.mark.slow
    def test_the_answer_is_told_as_it_comes_and_can_be_ended(self) -> None:
        heard: list[str] = []
        found = observe(session(), QUESTION, max_new_tokens=4, on_text=heard.append)
        assert heard[3] == found.answer
        assert set(heard[4:]) == {found.answer}  # while it is compared, which can be ended, too
        assert len(heard) == 12

        for last in (1, 6, 10):
            heard.clear()

            def enough(text: str, last: int = last) -> None:
                heard.append(text)
                if len(heard) == last:
                    raise InterruptedError

            with pytest.raises(InterruptedError):
                observe(session(), QUESTION, max_new_tokens=4, on_text=enough)
            assert len(heard) == last

    def test_a_folder_is_named_without_its_place(self, tmp_path: Path) -> None:
        base = tmp_path / "base"
        base.mkdir()
        model = build(base_name=str(base))
        found = observe(model.session(WIDE), "What?", words=False, compare=False, max_new_tokens=1)
        assert found.model == base.name
        assert str(base.parent) not in json.dumps(found._plain())


class TestOptions:
    """Whatever `Session.ask` takes, `observe` and, of what chooses, `plan` take too, with the same effect."""

    def test_every_option_is_here(self) -> None:
        own = inspect.signature(Session.ask).parameters.keys() - {"self", "question", "choice"}
        assert own | ChoiceOptions.__annotations__.keys() == CALLS.keys()

    @every_call
    def test_a_trace_is_of_the_answer(self, call: str, kind: str, tmp_path: Path) -> None:
        how = EVERY_CALL[call]
        alone = session(kind).ask(QUESTION, **({"max_new_tokens": 3} | how))
        found = observe(session(kind), QUESTION, **({"max_new_tokens": 3} | how))
        assert (found.answer, found.mode, found.note) == (alone.text, alone.mode, alone.note)
        assert (found.budget, found.read, found.magnified) == (alone.budget, alone.read, alone.magnified)
        assert found.allocation.to_dict() == alone.allocation.to_dict()
        talk = {name: how[name] for name in ("history",) if name in how}
        long = how.get("max_new_tokens", 3)
        whole = session(kind).ask(QUESTION, mode="full", max_new_tokens=long, **talk)
        assert found.full is not None
        assert found.full.text == whole.text
        assert [word.text for word in found.words if word.heat is not None] == WORDS
        found.save(tmp_path / "a")
        assert Trace.load(tmp_path / "a").view() == found.view()

    @every_call
    def test_a_plan_is_that_of_the_answer(self, call: str, kind: str) -> None:
        how, plans = EVERY_CALL[call], []
        choice = {name: value for name, value in how.items() if name not in ("max_new_tokens", "on_text")}
        answer = session(kind).ask(QUESTION, **({"max_new_tokens": 1} | how | {"on_plan": plans.append}))
        choice.pop("on_plan", None)
        for plan in (session(kind).plan(QUESTION, **choice), plans.pop()):
            assert (plan.mode, sum(plan.read), plan.fallback) == (answer.mode, answer.read, False)
            assert [one.to_dict() for one in plan.allocations] == [answer.allocation.to_dict()]
            assert (plan.note or "") in (answer.note or "")
        looked = session(kind).look(QUESTION, **choice)
        assert looked.to_dict() == answer.allocation.to_dict()
        assert not plans

    def test_a_plan_is_of_all_tokens_where_the_answer_is(self) -> None:
        """For a question about all that is printed, and once every token of an image is kept."""
        open_ = wrapped().session(WIDE, keep_image_after=0)
        for one, question in ((open_, QUESTION), (session(), "Transcribe the text.")):
            assert one.plan(question).mode == one.ask(question, max_new_tokens=1).mode == "full"
            assert one.look(question).kept == 7
        assert open_.plan(QUESTION, cells=[3]).mode == "sparse"

    def test_what_is_no_option(self) -> None:
        for refusing in (session().plan, session().look, session().ask):
            with pytest.raises(TypeError, match="'bugdet' is no option: use budget, mode"):
                refusing(QUESTION, bugdet=4)


class TestPicture:
    def test_it_is_what_the_model_saw(self) -> None:
        found = observe(session(), QUESTION, words=False, compare=False, max_new_tokens=1)
        assert found.picture.size == WIDE.size
        near = torch.tensor(list(found.picture.tobytes())) - torch.tensor(list(WIDE.tobytes()))
        assert near.abs().max() <= 1

    def test_a_coarse_view_is_shown_as_it_was_seen(self) -> None:
        seen = observe(session(), QUESTION, mode="compress", words=False, max_new_tokens=1)
        assert seen.allocation.grid == (1, 4, 2)
        assert seen.picture.size == (2 * 8, 4 * 8)
        pooled = observe(session(), QUESTION, mode="compress", gestalt="pool4", words=False, max_new_tokens=1)
        assert pooled.allocation.grid == (1, 5, 3)
        assert pooled.picture.size == (42, 75)  # 40x72 px, whose cells are of no whole number of pixels

    def test_fitted_is_exact_where_it_fits(self) -> None:
        view = torch.rand(3, 6, 8, generator=torch.Generator().manual_seed(0))
        fitted = torch.tensor(list(_fitted(view, (3, 4)).tobytes())).view(6, 8, 3)
        assert torch.equal(fitted, (255 * view).round().permute(1, 2, 0).long())
        assert _fitted(view, (4, 3)).size == (9, 8)

    def test_tiles_that_the_model_shrinks(self) -> None:
        open_ = wrapped("llava_onevision", "gaze").session(picture(3, (96, 72)))
        found = observe(open_, "What?", compare=False, max_new_tokens=1)
        _, height, width = found.allocation.grid
        assert (found.picture.width % width, found.picture.height % height) == (0, 0)


class TestWords:
    @every_path
    def test_the_whole_question_gives_the_allocation_itself(self, mode: str, kind: str) -> None:
        self._assert_whole(session(kind), {"mode": mode})

    @every_call
    def test_it_does_for_any_call(self, call: str, kind: str) -> None:
        self._assert_whole(session(kind), EVERY_CALL[call])

    @staticmethod
    @torch.no_grad()
    def _assert_whole(open_: Session, how: dict[str, Any]) -> None:
        answer = open_.ask(QUESTION, **(how | {"max_new_tokens": 1}))
        history = {"history": how.get("history", ())}
        choice = {name: how[name] for name in how if name in ChoiceOptions.__annotations__}
        with open_.call(QUESTION, **history, **(choice | {"mode": answer.mode})) as request:
            content = open_.model.adapter.question_mask(request.inputs["input_ids"])[0]
            found = _allocate_sets(request, content[None], content, answer.kept)[0]
        if "cells" in how:  # which no map has chosen
            assert found.kept == answer.kept
            return
        for name in ("information", "perspectival", "participatory", "balanced", "weights"):
            assert near(getattr(found, name), getattr(answer.allocation, name)), name
        assert torch.equal(found.keep, answer.allocation.keep)

    @pytest.mark.parametrize(
        ("kind", "mode"),
        [("guide", "prune"), ("gaze", "sparse"), ("covering", "saccade"), ("stem", "sparse")],
    )
    def test_no_word_moves_named_cells(self, mode: str, kind: str) -> None:
        open_ = session(kind)
        free = word_heat(open_, QUESTION, mode, kept=20)
        named = word_heat(open_, QUESTION, mode, kept=20, cells=range(20))
        for one, other in zip(free, named, strict=True):
            assert other.pull == 0
            assert (one.heat is None) == (other.heat is None)
            assert one.heat is None or near(one.heat, other.heat)
        assert max(word.pull for word in free) > 0

    @pytest.mark.parametrize("mode", ["sparse", "saccade"])
    def test_magnifying_changes_no_heat(self, mode: str) -> None:
        open_ = session()
        once, twice = (word_heat(open_, QUESTION, mode, kept=5, magnify=times) for times in (1, 2))
        for one, other in zip(once, twice, strict=True):
            assert one.pull == other.pull
            assert one.heat is None or near(one.heat, other.heat)

    def test_a_small_image_has_heats_where_it_is_magnified(self) -> None:
        how: dict[str, Any] = {"mode": "saccade", "magnify": 2, "budget": 20, "max_new_tokens": 1}
        found = observe(wrapped().session(IMAGES[0]), QUESTION, **how)
        assert found.kept < 30 < found.total + found.read
        assert found.magnified is not None
        assert [word.text for word in found.words if word.heat is not None] == WORDS

    def test_the_heat_of_a_coverage_is_that_of_what_is_calibrated(self) -> None:
        """For "auto" the guide, also where a trained layer decides otherwise."""
        covered = word_heat(session(), QUESTION, "prune", kept=9, coverage=0.8)
        guided = word_heat(build(kind="stem", relevance="guide").session(WIDE), QUESTION, "prune", kept=9)
        trained = word_heat(session(), QUESTION, "prune", kept=9)
        scored = [i for i, word in enumerate(covered) if word.heat is not None]
        assert [covered[i].text for i in scored] == WORDS
        assert all(near(covered[i].heat, guided[i].heat) for i in scored)
        assert not any(near(covered[i].heat, trained[i].heat) for i in scored)

    def test_the_pull_under_a_promised_coverage_is_of_the_best_cells_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As the answer's own cells: a promise is calibrated for them, so none is spent on exploring."""

        def promised(self: GuideSource, view: Any, text: str, grid: tuple[int, int]) -> Coupling:
            cells = torch.arange(float(grid[0] * grid[1])).view(grid)
            return Coupling(cells / 10, 0.28, printed=True)  # just enough for a promise

        monkeypatch.setattr(GuideSource, "couple", promised)
        monkeypatch.delattr(GuideSource, "couple_all")
        for how in ({"coverage": 0.8}, {"budget": 0.7}):
            open_ = session("guide")
            kept = open_.look(QUESTION, mode="prune", **how)
            with open_.call(QUESTION, mode="prune", **how) as request:
                content = open_.model.adapter.question_mask(request.inputs["input_ids"])[0]
                found = _allocate_sets(request, content[None], content, kept.kept)[0]
            assert torch.equal(found.keep, kept.keep)
            explored = bool((found.reasons == Reason.EXPLORED).any())
            assert explored == ("budget" in how)

    def test_a_word_of_the_history_is_not_scored(self) -> None:
        """Heat is of the question's own tokens, though the same question was asked before."""
        open_, earlier = session("gaze"), [(QUESTION, "It is red."), ("What?", "")]
        words = word_heat(open_, QUESTION, "prune", kept=7, history=earlier)
        assert [word.text for word in words if word.heat is not None] == WORDS
        ids = open_.inputs(QUESTION, earlier)["input_ids"][0]
        columns = _columns(open_, QUESTION, words, ids, earlier)
        short = open_.inputs(QUESTION)["input_ids"][0]
        once = _columns(open_, QUESTION, words, short, ())
        assert columns.any()
        assert torch.equal(ids[columns.any(0)], short[once.any(0)])
        assert int(columns.any(0).nonzero()[0]) > int(once.any(0).nonzero()[0])

    @every_path
    def test_words_have_heats_of_their_own(self, mode: str, kind: str) -> None:
        open_ = session(kind)
        words = word_heat(open_, QUESTION, mode, kept=45 if mode == "weight" else 20)
        assert "".join(word.text for word in words) == QUESTION
        scored = [word for word in words if word.heat is not None]
        assert [word.text for word in scored] == WORDS
        for i, word in enumerate(scored):
            assert not any(torch.equal(word.heat, other.heat) for other in scored[:i])
            assert word.heat.shape == (9, 5)
        pulls = [word.pull for word in words]
        assert (max(pulls) > 0) == (mode != "weight")  # where all are kept no word takes any away

    @pytest.mark.parametrize(
        ("family", "kind"),
        [("qwen2_5_vl", "stem"), *((f, "gaze") for f in ("qwen2_5_vl", "llava", "llava_next"))],
    )
    def test_what_stands_behind_a_word_does_not_move_its_heat(self, family: str, kind: str) -> None:
        one, two = (
            word_heat(session(kind, family), text, "prune", kept=7)
            for text in ("Is red the one?", "Is red it, or what?")
        )
        for a, b in zip(one[:3], two[:3], strict=True):
            assert a.text == b.text
            assert (a.heat is None and b.heat is None) or near(a.heat, b.heat)
        assert not torch.allclose(one[0].heat, one[2].heat, atol=1e-4)

    @pytest.mark.parametrize(
        ("question", "words"),
        [
            ("  What's   1,234.50 €?\n", ["What's", "1,234.50"]),
            ("Où? naïve–good", ["Où", "naïve–good"]),
            ("何ですか 🙂 word", ["何ですか", "word"]),
            ("user assistant image_pad", ["user", "assistant", "image_pad"]),
            ("(((", []),
            ("?!", []),
        ],
    )
    def test_any_question(self, question: str, words: list[str]) -> None:
        for family in ("qwen3_vl", "llava"):
            open_ = wrapped(family, "gaze").session(WIDE)
            found = word_heat(open_, question, "prune", kept=7)
            assert "".join(word.text for word in found) == question
            assert [word.text for word in found if word.heat is not None] == words

    def test_a_word_said_twice_is_scored_where_it_stands(self) -> None:
        words = word_heat(session("gaze"), "red or red", "prune", kept=7)
        assert not torch.equal(words[0].heat, words[4].heat)

    def test_long_questions_are_scored_in_part(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("arr_coc.trace.observe.MAX_WORDS", 3)
        words = word_heat(session("covering"), "word " * 5, "prune", kept=7)
        assert [word.heat is not None for word in words[::2]] == [True, True, True, False, False]

    @every_scoring
    def test_nothing_is_encoded_again(self, mode: str) -> None:
        open_, calls = session(), []
        open_.ask(QUESTION, mode=mode, max_new_tokens=1)
        hook = open_.model.base.model.visual.register_forward_hook(lambda *_: calls.append(1))
        try:
            word_heat(open_, QUESTION, mode, kept=7)
        finally:
            hook.remove()
        assert calls == []

    def test_prompts_that_cannot_be_followed_leave_words_unscored(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        open_ = session()
        processor = open_.model.processor
        monkeypatch.setattr(
            processor, "chat_template", processor.chat_template.replace("c.text", "c.text | upper")
        )
        words = word_heat(open_, QUESTION, "prune", kept=7)
        assert all(word.heat is None for word in words)

    @pytest.mark.parametrize("mode", ["full", "compress"])
    def test_modes_that_score_nothing(self, mode: str) -> None:
        with pytest.raises(ValueError, match="scores nothing of this image; use 'prune'"):
            word_heat(session(), QUESTION, mode, kept=7)

    @pytest.mark.slow
    def test_the_name_of_a_field_pulls_most(self) -> None:
        """The bundled model, on a page it never saw: other words pull little, this one at the evidence."""
        page = draw_page(3, (512, 512), "test", void=False)
        open_ = ARRCOCModel.from_pretrained(strict=True).session(page.image)
        asked = [question for question in page.questions if question.family == "value"]
        assert len(asked) >= 3
        for question in asked:
            words = word_heat(open_, question.text, "prune", kept=16)
            *others, most = sorted((w for w in words if w.heat is not None), key=lambda word: word.pull)
            evidence = torch.as_tensor(evidence_cells(question.evidence, (16, 16), (512, 512)))
            assert most.pull > 0.8 > 0.5 > others[-1].pull, question.text
            assert most.heat[evidence].mean() > most.heat[~evidence].mean() + 0.8


def test_several_images() -> None:
    found = observe(wrapped().session(IMAGES[:2]), "What?", compare=False, max_new_tokens=1)
    assert [strip.is_clip for strip in found.strips] == [False, False]
    assert found.kept == sum(strip.allocation.kept for strip in found.strips)
