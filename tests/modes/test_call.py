"""A call on its way to the base model: what is known is used again, what runs, what fails."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

import pytest
import torch

from arr_coc.choose.allocation import Reason
from arr_coc.choose.attending import NonFiniteScores
from arr_coc.guide.coupling import Coupling, GuideSource
from arr_coc.model import ARRCOCModel
from arr_coc.modes import MODES, scoring
from arr_coc.modes.call import OF_LORAS, OF_TURNS, EncodedImages
from arr_coc.modes.request import runs_as
from arr_coc.relevance.deciding import LookedAt
from each import each
from eyes import (
    IMAGES,
    assert_same,
    build,
    calls_of,
    inputs_of,
    llava_families,
    patches_seen,
    prepared_for,
    sparse_families,
    wrapped,
)
from tiny import tiny


def lost(source: Any, page: Any, question: str, grid: tuple[int, int]) -> Coupling:
    """A guide that knows nothing of a question."""
    logits = torch.randn(grid, generator=torch.Generator().manual_seed(len(question)))
    return Coupling(logits, 0.0, 0.0, 0.0)


pytestmark = pytest.mark.usefixtures("small_constants")


class TestKnownAlready:
    """A second question about the same images costs no more than it must."""

    @pytest.mark.parametrize(
        ("kind", "mode"),
        [
            ("guide", "sparse"),
            ("gaze", "saccade"),
            ("covering", "sparse"),
            ("stem", "sparse"),
            ("stem", "saccade"),
        ],
    )
    def test_gestalt_and_stem_are_made_once(
        self, mode: str, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model, encoded, looks = wrapped(kind=kind), EncodedImages(), []
        monkeypatch.setattr(GuideSource, "couple", lost)  # a sure guide needs no coarse view
        monkeypatch.delattr(GuideSource, "couple_all")
        if kind == "stem":
            monkeypatch.setattr(
                model.stem, "forward", lambda *a, see=model.stem.forward: looks.append(1) or see(*a)
            )
        with patches_seen(model) as seen:
            for question in ("What?", "Where is the red ball?", "How many?"):
                inputs = inputs_of(rows=[(question, IMAGES[1:])])
                later = prepared_for(model, inputs, mode, encoded=encoded, budget=5)
                fresh = prepared_for(model, inputs, mode, budget=5)
                assert torch.equal(later.allocations[0].keep, fresh.allocations[0].keep)
                assert_same(later.compacted, fresh.compacted)
        coarse = kind != "stem" or mode == "saccade"
        assert seen.count(4 * 8) == (1 + 3) * coarse  # once for the three, and for each fresh one
        assert seen.count(4 * 5) == 6
        assert len(looks) == (4 if kind == "stem" else 0)
        assert encoded.features is None

    def test_what_the_neutral_question_looks_at_is_found_once(self) -> None:
        model, encoded = wrapped(kind="gaze"), EncodedImages()
        with calls_of([model.base.model.language_model], begun=True) as passes:
            for question in ("What?", "Where is the red ball?"):
                prepared_for(model, inputs_of(rows=[(question, IMAGES[1:])]), "sparse", encoded=encoded)
        assert len(passes) == 2 + 1

    def test_everything_that_was_encoded_is_used_again(self) -> None:
        model, encoded, inputs = wrapped(), EncodedImages(), inputs_of()
        with patches_seen(model) as seen:
            for mode in ("prune", "full", "weight"):
                prepared_for(model, inputs, mode, encoded=encoded)
            for name in ("pool4", "pool16", "pool4"):
                prepared_for(model, inputs, "compress", gestalt=name, encoded=encoded)
        assert seen == [4 * (30 + 45)]


class TestRunsAs:
    @llava_families
    def test_families_that_encode_everything_prune(
        self, family: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        for budget in (7, None):  # also with the default one, which fills up to SACCADE_TOKENS
            model, inputs = build(family, "stem", budget=budget), inputs_of(family)
            pruned = prepared_for(model, inputs, "prune")
            assert pruned.note is None
            for mode in ("sparse", "saccade"):
                caplog.clear()
                with caplog.at_level(logging.WARNING):
                    prepared = prepared_for(model, inputs, mode)
                assert prepared.mode == "prune"
                assert f"{mode} ran as prune" in prepared.note
                crops = (family, mode) == ("llava", "saccade")
                why = "pass pictures=[...]" if crops else f"of {family} can't encode some cells alone"
                assert why in prepared.note
                assert prepared.note in caplog.text
                assert_same(prepared.compacted, pruned.compacted)
                assert prepared.read == pruned.read

    @sparse_families
    def test_others_run_what_was_asked(self, family: str) -> None:
        for mode in MODES.values():
            assert runs_as(wrapped(family).adapter, mode) == (mode, None)


class TestFailure:
    """Whatever fails in deciding, the answer still comes, from all tokens, and says so."""

    FAILURES = ("stem raises", "stem is nan", "layer raises", "allocator raises", "gaze raises")

    @staticmethod
    def broken(failure: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> ARRCOCModel:
        model = build("qwen3_vl", "gaze" if failure.startswith("gaze") else "stem", **more)

        def wrong(*_: Any, **__: Any) -> Any:
            raise RuntimeError("broken")

        if failure == "stem is nan":
            see = model.stem.forward
            monkeypatch.setattr(
                model.stem, "forward", lambda *a: see(*a).index_fill(1, torch.tensor(3), torch.nan)
            )
        else:
            place, name = {
                "stem": (model.stem, "forward"),
                "layer": (model.layer, "scores"),
                "allocator": (model.layer, "allocate"),
                "gaze": (scoring, "gaze"),
            }[failure.split()[0]]
            monkeypatch.setattr(place, name, wrong)
        return model

    @each(("failure", "mode"), [*((failure, "sparse") for failure in FAILURES), ("stem raises", "saccade")])
    def test_all_tokens_are_used_or_strict_raises(
        self, failure: str, mode: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        model, inputs = self.broken(failure, monkeypatch, strict=False), inputs_of()
        with caplog.at_level(logging.ERROR):
            prepared = prepared_for(model, inputs, mode)
        assert prepared.fallback
        assert prepared.read == [30, 45]
        assert all((allocation.reasons == Reason.ALL).all() for allocation in prepared.allocations)
        assert "allocation failed; all visual tokens are used" in caplog.text
        with torch.no_grad():
            logits = model.base(**prepared.compacted.kwargs).logits
            assert torch.equal(logits, tiny("qwen3_vl").model(**inputs).logits)
        strict = self.broken(failure, monkeypatch, strict=True)
        with pytest.raises((RuntimeError, NonFiniteScores), match=r"broken|not finite"):
            prepared_for(strict, inputs, mode)

    @each(
        ("mode", "more", "words"),
        [
            ("sparse", {"budget": "many"}, "many"),
            ("saccade", {"budget": 0}, "budget 0"),
            ("saccade", {"gestalt": "tower4"}, "'tower4' has no trained weights for this model; use 'pool4'"),
            ("compress", {"gestalt": "tower16"}, "'tower16' has no trained weights"),
            ("compress", {"gestalt": "zip"}, "compressor 'zip' is unknown; use one of resize, pool4"),
            ("full", {"gestalt": "zip"}, "compressor 'zip' is unknown"),
            (
                "dense",
                {},
                "mode 'dense' is unknown; use one of full, prune, sparse, saccade, compress",
            ),
        ],
    )
    def test_what_the_caller_got_wrong_is_an_error_not_a_fallback(
        self, mode: str, more: dict, words: str
    ) -> None:
        for strict in (False, True):
            with pytest.raises(ValueError, match=words):
                prepared_for(build(strict=strict), inputs_of(), mode, **more)

    @llava_families
    def test_no_family_makes_a_gestalt_it_cannot(self, family: str) -> None:
        with pytest.raises(ValueError, match=f"'resize' needs .* '{family}' has not; use 'pool4'"):
            prepared_for(wrapped(family), inputs_of(family), "compress", gestalt="resize")


class TestFieldsOfAnImage:
    """None is forgotten where an image's record is copied: a new one is taken over unless it is named."""

    def filled(self, **more: Any) -> EncodedImages:
        return EncodedImages(**{one.name: (one.name,) for one in fields(EncodedImages)} | more)

    def test_a_conversation_hands_back_all_but_what_depends_on_its_turns(self) -> None:
        images = EncodedImages()
        with images.in_conversation([("What?", "That.")]) as other:
            vars(other).update(vars(self.filled()))
        for one in fields(EncodedImages):
            value = getattr(images, one.name)
            assert value == (getattr(EncodedImages(), one.name) if one.name in OF_TURNS else (one.name,))

    def test_another_mode_gets_all_but_what_depends_on_loras(self) -> None:
        images = EncodedImages()
        looked = [LookedAt(**{one.name: {one.name: one} for one in fields(LookedAt)})]
        images.share(self.filled(finer=True, looked=looked))
        assert images == EncodedImages()  # of another scale
        images.share(self.filled(finer=False, looked=looked))
        for one in fields(LookedAt):
            empty = getattr(LookedAt(), one.name)
            made = empty if one.name in ("textures", "coarse", "stems") else {one.name: one}
            assert getattr(images.looked[0], one.name) == made
        for one in fields(EncodedImages):
            if one.name == "looked":
                continue
            own = one.name in OF_TURNS | OF_LORAS or one.name == "finer"
            value = getattr(EncodedImages(), one.name) if own else (one.name,)
            assert getattr(images, one.name) == value

    def test_what_is_there_stays(self) -> None:
        images, view = EncodedImages(foreign=[True]), object()
        images.looked_at(1)[0].view = view
        images.share(self.filled(finer=False, looked=[LookedAt(object())]))
        assert images.foreign == [True]
        assert images.looked[0].view is view

    def test_a_view_that_comes_later_is_shared_too(self) -> None:
        images, other = EncodedImages(), EncodedImages()
        other.looked_at(2)
        images.share(other)
        for one in other.looked:
            one.view = object()
        images.share(other)
        assert [one.view for one in images.looked] == [one.view for one in other.looked]
