"""Mode "saccade" in a family of one square view: the view of the whole, then cells of finer crops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from arr_coc.choose.allocation import Reason
from arr_coc.modes.call import EncodedImages, Prepared
from arr_coc.modes.request import with_pictures
from arr_coc.seam import GESTALT
from arr_coc.seam.assembly import CROP, CROP_VALUES
from arr_coc.trace.observe import observe
from eyes import KINDS, assert_same, build, every_kind, prepared_for, wrapped
from tiny import picture, prompts, tiny

QUESTION = "Where is the red ball?"
LARGE, SMALL, WIDE = picture(1, (96, 72)), picture(2, (30, 28)), picture(3, (90, 50))
"""Of 324 cells in 3x3 crops, of 36 in its view alone, and of 144 in 2x2."""
ROWS = [(QUESTION, [LARGE, WIDE]), ("What is that?", [SMALL])]
PICTURES = [LARGE, WIDE, SMALL]
NEW = 4


def inputs_for(rows: list = ROWS) -> dict[str, Any]:
    return prompts(tiny("llava"), rows)


def prepare(kind: str = "guide", rows: list = ROWS, **more: Any) -> Prepared:
    pictures = [one for _, images in rows for one in images]
    return prepared_for(wrapped("llava", kind), inputs_for(rows), "saccade", pictures=pictures, **more)


def greedy(model: Any, inputs: dict, **more: Any) -> Any:
    return model.generate(
        **inputs, do_sample=False, max_new_tokens=NEW, suppress_tokens=[model.config.image_token_id], **more
    )


class TestPrepare:
    @every_kind
    def test_the_view_of_the_whole_and_then_the_kept_cells(self, kind: str) -> None:
        prepared = prepare(kind, budget=9)
        assert (prepared.mode, prepared.fallback) == ("saccade", False)
        assert [one.grid for one in prepared.allocations] == [(1, 18, 18), (1, 12, 12), (1, 6, 6)]
        assert [one.kept for one in prepared.allocations] == [9, 9, 36]
        assert (prepared.read, prepared.cells) == ([45, 45, 36], [324, 144, 36])
        columns, inputs = prepared.compacted.columns, inputs_for()
        assert (columns == GESTALT).sum(1).tolist() == [72, 0]
        assert (columns == CROP).sum(1).tolist() == [18, 0]
        row = columns[1][columns[1] >= 0]
        assert row.tolist() == inputs["attention_mask"][1].nonzero().flatten().tolist()
        model = wrapped("llava", kind)
        full = inputs | model.adapter.crops(inputs, PICTURES)
        keep = [one.keep for one in prepared.allocations]
        view = model.adapter.features(model.adapter.coarse(full))
        with torch.no_grad():
            fine = model.adapter.encode_cells(full, keep)
        gestalt = view.select([torch.arange(36), torch.arange(36), torch.arange(0)])
        expected = model.adapter.assemble(full, model.adapter.layout(full), keep, fine, gestalt)
        assert_same(prepared.compacted, expected)
        encoded, every = model.adapter.views_encoded(full, keep)
        assert f"cells are encoded by whole tiles: {encoded} of {every} were" in prepared.note

    @pytest.mark.slow
    def test_the_kinds_of_eyes_choose_other_cells(self) -> None:
        chosen = {tuple(prepare(kind, budget=9).allocations[0].keep.tolist()) for kind in KINDS}
        assert len(chosen) >= 3

    def test_another_question_chooses_other_cells(self) -> None:
        rows = [("What is written at the top?", ROWS[0][1]), ROWS[1]]
        one, other = (prepare("covering", some, budget=9).allocations[0] for some in (ROWS, rows))
        assert not torch.equal(one.keep, other.keep)

    @pytest.mark.slow
    def test_a_budget_is_of_the_fine_cells(self) -> None:
        for budget, kept in ((5, [5, 5, 36]), (0.25, [81, 36, 36]), (1.0, [324, 144, 36])):
            assert [one.kept for one in prepare(budget=budget).allocations] == kept
        model = build("llava", "guide", budget=None)  # the default count
        prepared = prepared_for(model, inputs_for(), "saccade", pictures=PICTURES)
        assert [one.kept for one in prepared.allocations] == [273, 144, 36]
        assert prepared.read == [36 + 273, 36 + 144, 36]
        assert "all 36 cells" not in (prepared.note or "")  # nobody asked for fewer
        assert "saccade kept all 36 cells whatever the budget" in (prepare(budget=5).note or "")

    def test_small_pictures_are_the_stock_model_to_the_last_bit(self) -> None:
        rows = [ROWS[1], ("Why?", [picture(5, (24, 30))])]
        model, inputs = wrapped("llava", "stem"), inputs_for(rows)
        with torch.no_grad():
            out = model(**inputs, mode="saccade", budget=1.0, pictures=[SMALL, rows[1][1][0]])
            assert torch.equal(out.logits, tiny("llava").model(**inputs).logits)
        assert all((one.reasons == Reason.ALL).all() for one in out.allocations)

    @pytest.mark.slow
    def test_without_pictures_it_prunes_and_says_so(self) -> None:
        model, inputs = wrapped("llava", "guide"), inputs_for()
        prepared, pruned = (prepared_for(model, inputs, mode) for mode in ("saccade", "prune"))
        assert prepared.mode == "prune"
        assert prepared.note.startswith("saccade ran as prune: crops are cut from pictures as you have them")
        assert_same(prepared.compacted, pruned.compacted)

    @pytest.mark.slow
    def test_a_coarse_view_that_is_named_has_no_effect_and_it_says_so(self) -> None:
        named, usual = prepare(gestalt="pool4", budget=9), prepare(budget=9)
        assert_same(named.compacted, usual.compacted)
        assert "gestalt pool4 had no effect: the coarse view is the model's own" in named.note
        assert "gestalt" not in usual.note

    @pytest.mark.parametrize(
        ("more", "match"),
        [
            ({"pictures": [LARGE]}, "1 pictures are passed, and the prompt has 3 images"),
            ({"pictures": [WIDE, LARGE, SMALL]}, "picture 0 does not show"),
            ({"pictures": LARGE}, "pictures is an Image: pass a list of images"),
            ({"pictures": ["nowhere.png"] * 3}, "nowhere.png"),
            ({"pictures": PICTURES, "budget": 0}, "budget 0"),
            (
                {"pictures": PICTURES, "keep": (torch.tensor([324]),) * 3},
                "cells .324. are not of an image of 324",
            ),
        ],
    )
    def test_what_the_caller_got_wrong(self, more: dict, match: str) -> None:
        with pytest.raises(ValueError, match=match):
            prepared_for(wrapped("llava", "guide"), inputs_for(), "saccade", **more)

    @torch.no_grad()
    def test_a_failure_still_answers_from_the_stock_tokens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = build("llava", "stem", strict=False)

        def wrong(*_: Any, **__: Any) -> Any:
            raise RuntimeError("broken")

        monkeypatch.setattr(model.layer, "allocate", wrong)
        prepared = prepared_for(model, inputs_for(), "saccade", pictures=PICTURES)
        assert (prepared.fallback, prepared.read) == (True, [36, 36, 36])
        logits = model.base(**prepared.compacted.kwargs).logits
        assert torch.equal(logits, tiny("llava").model(**inputs_for()).logits)

    def test_other_families_cut_no_crops_of_pictures(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model, inputs = wrapped("qwen3_vl", "guide"), prompts(tiny("qwen3_vl"), ROWS)
        monkeypatch.setattr(model.adapter, "crops", None)
        with_pictures = prepared_for(model, inputs, "saccade", pictures=PICTURES)
        assert with_pictures.read == prepared_for(model, inputs, "saccade").read

    def test_pictures_are_none_of_a_clip(self) -> None:
        with pytest.raises(ValueError, match="the prompt has clips: leave them out"):
            with_pictures(wrapped("qwen3_vl", "guide").adapter, {}, PICTURES, EncodedImages(), (2,))


class TestGenerate:
    @torch.no_grad()
    def test_greedy_text_is_stepwise_argmax_without_cache(self) -> None:
        """Decoding continues after the end of the processor's prompt."""
        model, inputs = wrapped("llava", "stem"), inputs_for()
        out = greedy(model, inputs, mode="saccade", pictures=PICTURES)
        length = inputs["input_ids"].shape[1]
        assert torch.equal(out[:, :length], inputs["input_ids"])
        prepared = model.prepare(inputs | {"use_cache": False}, mode="saccade", pictures=PICTURES)
        steps, end = prepared.compacted.kwargs, model.adapter.positions(inputs)[..., -1:]
        for step in range(NEW):
            logits = model.base(**steps).logits[:, -1]
            logits[:, model.config.image_token_id] = -torch.inf
            token = logits.argmax(-1, keepdim=True)
            assert torch.equal(token[:, 0], out[:, length + step])
            steps["input_ids"] = torch.cat([steps["input_ids"], token], dim=1)
            steps["attention_mask"] = F.pad(steps["attention_mask"], (0, 1), value=1)
            steps["position_ids"] = torch.cat([steps["position_ids"], end + 1 + step], dim=-1)

    @pytest.mark.slow
    @every_kind
    def test_batch_equals_single(self, kind: str) -> None:
        model = wrapped("llava", kind)
        rows = [*ROWS, ("Why?", [picture(7, (60, 60))])]
        pictures = [one for _, images in rows for one in images]
        both = greedy(model, inputs_for(rows), mode="saccade", pictures=pictures, return_allocation=True)
        for row, first, images in ((0, 0, 2), (1, 2, 1), (2, 3, 1)):
            own = pictures[first : first + images]
            alone = greedy(
                model, inputs_for([rows[row]]), mode="saccade", pictures=own, return_allocation=True
            )
            for one, other in zip(alone.allocations, both.allocations[first:], strict=False):
                assert torch.equal(one.keep, other.keep)
            assert torch.equal(alone.sequences[0, -NEW:], both.sequences[row, -NEW:])

    @pytest.mark.slow
    def test_beams_caches_and_returned_sequences(self) -> None:
        model, inputs = wrapped("llava", "stem"), inputs_for()
        how: dict[str, Any] = {"mode": "saccade", "pictures": PICTURES}
        repeated = inputs["input_ids"].repeat_interleave(2, dim=0)
        beams = greedy(model, inputs, num_beams=3, num_return_sequences=2, **how)
        assert torch.equal(beams[:, : repeated.shape[1]], repeated)
        best = greedy(model, inputs, **how)
        assert torch.equal(greedy(model, inputs, use_cache=False, **how), best)
        assert torch.equal(greedy(model, inputs, cache_implementation="static", **how), best)

    @pytest.mark.slow
    @torch.no_grad()
    def test_forward_has_a_loss_on_the_text_alone(self) -> None:
        model, inputs = wrapped("llava", "guide"), inputs_for()
        labels = inputs["input_ids"].masked_fill(inputs["input_ids"] == model.config.image_token_id, -100)
        out = model(**inputs, labels=labels, mode="saccade", pictures=PICTURES)
        assert out.loss.isfinite()
        assert out.columns.shape == out.logits.shape[:2]
        kept = prepare().compacted.columns
        assert torch.equal(out.columns, kept)

    def test_pictures_are_nothing_that_the_stock_model_is_given(self) -> None:
        model, inputs = wrapped("llava", "guide"), inputs_for()
        assert torch.equal(
            greedy(model, inputs, mode="full", pictures=PICTURES), greedy(tiny("llava").model, inputs)
        )


class TestSession:
    def test_as_generate(self) -> None:
        model = wrapped("llava", "guide")
        session = model.session([LARGE, WIDE])
        answer = session.ask(QUESTION, mode="saccade", max_new_tokens=NEW)
        inputs = session.inputs(QUESTION)
        assert CROP_VALUES not in inputs
        out = model.generate(
            **inputs,
            mode="saccade",
            pictures=[LARGE, WIDE],
            max_new_tokens=NEW,
            do_sample=False,
            return_allocation=True,
        )
        assert all(
            torch.equal(a.keep, b.keep) for a, b in zip(answer.allocations, out.allocations, strict=True)
        )
        new = out.sequences[0, inputs["input_ids"].shape[1] :].tolist()
        assert answer.text == model.processor.tokenizer.decode(new, skip_special_tokens=True).strip()
        assert (answer.mode, answer.kept, answer.total, answer.read) == ("saccade", 14, 468, 72 + 14)

    @pytest.mark.slow
    def test_modes_of_one_session_dont_disturb_each_other(self) -> None:
        model = wrapped("llava", "stem")
        session = model.session(LARGE)
        for mode in ("saccade", "prune", "saccade", "full", "weight"):
            later = session.ask(QUESTION, mode=mode, max_new_tokens=NEW)
            fresh = model.ask(LARGE, QUESTION, mode=mode, max_new_tokens=NEW)
            assert (later.text, later.read, later.note) == (fresh.text, fresh.read, fresh.note)
            assert torch.equal(later.allocation.keep, fresh.allocation.keep)
        assert session.look(QUESTION, mode="saccade").grid == (1, 18, 18)
        assert session.look(QUESTION, mode="prune").grid == (1, 6, 6)

    def test_cells_that_a_caller_names(self) -> None:
        answer = wrapped("llava", "guide").ask(
            LARGE, QUESTION, mode="saccade", cells=[323, 4], max_new_tokens=2
        )
        assert answer.allocation.keep.tolist() == [4, 323]
        assert answer.read == 38

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["guide", "gaze", "stem"])
    def test_a_trace_is_of_the_crops(self, kind: str) -> None:
        trace = observe(wrapped("llava", kind).session(LARGE), QUESTION, mode="saccade", budget=9)
        assert trace.allocation.grid == (1, 18, 18)
        assert trace.picture.size == (72, 72)
        assert (trace.kept, trace.read) == (9, 45)
        assert any(word.heat is not None and word.heat.shape == (18, 18) for word in trace.words)
