"""Asking and looking: answers, timings, one encoding for many questions, questions that can't be asked."""

from __future__ import annotations

import io
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from arr_coc.answer import Answer
from arr_coc.choose.stopwatch import STAGES
from arr_coc.model import ARRCOCModel
from arr_coc.modes import scoring
from arr_coc.session import Session
from each import each
from tiny import APART, KINDS, MASKABLE, apart, picture, prompts, tiny

IMAGE = picture(1, (48, 40))


@pytest.fixture
def model() -> ARRCOCModel:
    built = tiny("qwen3_vl")
    return ARRCOCModel.wrap(built.model, built.processor, budget=9).eval()


@pytest.fixture
def encodings(model: ARRCOCModel) -> Any:
    """How often the vision tower ran."""
    calls: list[int] = []
    hook = model.base.model.visual.register_forward_hook(lambda *_: calls.append(1))
    yield calls
    hook.remove()


@pytest.mark.parametrize("family", apart(KINDS))
def test_inputs_are_the_processors_own(family: str) -> None:
    built = tiny(family)
    session = ARRCOCModel.wrap(built.model, built.processor).session(IMAGE)
    for question in ("What is the number?", "naïve – 好 <b>\n2nd line"):
        expected = prompts(built, [(question, [IMAGE])])
        inputs = session.inputs(question)
        assert inputs.keys() == expected.keys()
        assert all(
            torch.equal(torch.as_tensor(inputs[name]), torch.as_tensor(expected[name])) for name in inputs
        )


@pytest.mark.parametrize("family", APART)
def test_answer_is_that_of_generate(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of `ask` the guide sees the picture as it came, of `generate` the pixels of the processor: here these.
    monkeypatch.setattr(scoring, "whole_picture", lambda source, original, small: small)
    built = tiny(family)
    model = ARRCOCModel.wrap(built.model, built.processor, budget=9)
    inputs = prompts(built, [("What?", [IMAGE])])
    for mode in ("prune", "full", "weight") if family in ("qwen3_vl", "llava") else ("prune",):
        answer = model.ask(IMAGE, "What?", mode=mode, max_new_tokens=5)
        out = model.generate(**inputs, mode=mode, do_sample=False, max_new_tokens=5)
        new = out[0, inputs["input_ids"].shape[1] :]
        assert answer.text == built.processor.tokenizer.decode(new, skip_special_tokens=True).strip()
        assert answer.kept == (9 if mode == "prune" else answer.total)
        assert answer.mode == mode


class TestAnswer:
    def test_smoke(self, model: ARRCOCModel) -> None:
        answer = model.ask(IMAGE, "What is the number?", max_new_tokens=3)
        assert isinstance(answer, Answer)
        assert answer.magnified is None
        assert (answer.kept, answer.total, answer.grid) == (9, 30, (1, 5, 6))
        assert (answer.mode, answer.budget, answer.fallback) == ("prune", 9, False)
        assert torch.equal(answer.allocation.keep, model.look(IMAGE, "What is the number?").keep)

    def test_milliseconds(self, model: ARRCOCModel) -> None:
        ms = model.ask(IMAGE, "What is the number?", max_new_tokens=8).ms
        assert tuple(ms) == STAGES
        assert all(value > 0 for value in ms.values())
        assert sum(ms[stage] for stage in STAGES[:-1]) == pytest.approx(ms["total"])
        ms = model.session(IMAGE).ask("What is the number?", max_new_tokens=2).ms
        assert sum(ms[stage] for stage in STAGES[:-1]) == pytest.approx(ms["total"])

    def test_one_token_has_no_decoding_to_speak_of(self, model: ARRCOCModel) -> None:
        long, short = (model.ask(IMAGE, "What?", max_new_tokens=n).ms for n in (20, 1))
        assert short["decode"] < long["decode"]

    def test_the_answer_so_far_is_told_after_each_token(self, model: ARRCOCModel) -> None:
        said: list[str] = []
        answer = model.session(IMAGE).ask("What?", max_new_tokens=6, on_text=said.append)
        assert len(said) == 6
        assert said[-1] == answer.text
        assert all(model.processor.tokenizer.decode(model.processor.tokenizer.encode(text)) for text in said)
        assert [len(text) for text in said] == sorted(len(text) for text in said)

    def test_what_is_raised_while_answering_ends_it_and_nothing_else(self, model: ARRCOCModel) -> None:
        session, said = model.session(IMAGE), []

        def enough(text: str) -> None:
            said.append(text)
            if len(said) == 2:
                raise InterruptedError

        before = session.ask("What?", max_new_tokens=6).text
        with pytest.raises(InterruptedError):
            session.ask("What?", max_new_tokens=6, on_text=enough)
        assert len(said) == 2
        assert session.ask("What?", max_new_tokens=6).text == before

    def test_budget_and_mode_of_a_call(self, model: ARRCOCModel) -> None:
        assert model.ask(IMAGE, "What?", budget=4, max_new_tokens=1).kept == 4
        assert model.ask(IMAGE, "What?", budget=0.5, max_new_tokens=1).budget == 0.5
        with model.full():
            answer = model.ask(IMAGE, "What?", max_new_tokens=1)
            assert (answer.mode, answer.kept) == ("full", 30)
            assert model.look(IMAGE, "What?").kept == 9
        with pytest.raises(ValueError, match="mode 'dense' is unknown"):
            model.ask(IMAGE, "What?", mode="dense")

    def test_sampling_settings_of_the_model_neither_matter_nor_warn(
        self, model: ARRCOCModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        plain = model.ask(IMAGE, "What?", max_new_tokens=6).text
        config = model.base.generation_config
        for name, value in {
            "do_sample": True,
            "temperature": 9.0,
            "top_p": 0.5,
            "top_k": 3,
            "num_beams": 2,
        }.items():
            monkeypatch.setattr(config, name, value)
        with caplog.at_level(logging.WARNING):
            assert model.ask(IMAGE, "What?", max_new_tokens=6).text == plain
        assert "temperature" not in caplog.text

    def test_another_question_looks_elsewhere(self, model: ARRCOCModel) -> None:
        maps = [model.look(IMAGE, question).participatory for question in ("What?", "Where is the red ball?")]
        assert not torch.equal(*maps)

    @pytest.mark.parametrize("kind", ["path", "text", "bytes", "pil"])
    def test_kinds_of_images(self, model: ARRCOCModel, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "page.png"
        IMAGE.save(path)
        source = {"path": path, "text": str(path), "bytes": path.read_bytes(), "pil": IMAGE}[kind]
        assert torch.equal(model.look(source, "What?").keep, model.look(IMAGE, "What?").keep)

    @pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (700, 9)])
    def test_odd_sizes(self, model: ARRCOCModel, size: tuple[int, int]) -> None:
        file = io.BytesIO()
        picture(2, size).save(file, "PNG")
        answer = model.ask(file.getvalue(), "What?", budget=0.3, max_new_tokens=1)
        assert 1 <= answer.kept <= answer.total

    def test_fallback_is_said(
        self, model: ARRCOCModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("broken scorer")

        full = model.ask(IMAGE, "What?", mode="full", max_new_tokens=4)
        monkeypatch.setattr(model.layer, "scores", broken)
        session = model.session(IMAGE)
        for mode in (None, None, "sparse"):
            answer = session.ask("What?", mode=mode, max_new_tokens=4)
            assert answer.fallback
            assert (answer.text, answer.kept) == (full.text, 30)
        assert "broken scorer" in caplog.text
        model.strict = True
        with pytest.raises(RuntimeError, match="broken scorer"):
            model.ask(IMAGE, "What?")


class TestSession:
    def test_it_shows_itself_on_one_line(self, model: ARRCOCModel) -> None:
        assert repr(model.session(IMAGE)) == f"Session(48x40 px, model {model.base_name!r})"
        assert repr(model.session([IMAGE, IMAGE])).startswith("Session(48x40, 48x40 px, ")

    def test_images_may_come_from_a_generator(self, model: ARRCOCModel) -> None:
        assert len(model.session(image for image in (IMAGE, IMAGE)).images) == 2
        file = io.BytesIO()
        IMAGE.save(file, "PNG")
        assert len(model.session(file).images) == 1  # an iterator, too
        with pytest.raises(ValueError, match="the list of images is empty"):
            model.session(iter(()))

    def test_a_notebook_shows_it(self, model: ARRCOCModel) -> None:
        html = model.session([IMAGE, IMAGE.resize((960, 400))])._repr_html_()
        assert re.findall(r'width="(\d+)" height="(\d+)"', html) == [("48", "40"), ("192", "80")]
        assert "48 x 40 px, 960 x 400 px" in html
        assert model.base_name in html
        assert len(html) < 30_000

    def test_an_image_is_encoded_once(self, model: ARRCOCModel, encodings: list[int]) -> None:
        session = model.session(IMAGE)
        assert isinstance(session, Session)
        assert encodings == []  # not before it is needed
        questions = ["What?", "Where is the red ball?", "How many are there?"]
        answers = [session.ask(question, max_new_tokens=4) for question in questions]
        session.look("And this?")
        full = session.ask("What?", mode="full", max_new_tokens=4)
        assert encodings == [1]
        assert answers[0].ms["encode"] > 0
        assert answers[1].ms["texture"] < answers[0].ms["texture"]
        for question, answer in zip(questions, answers, strict=True):
            alone = model.ask(IMAGE, question, max_new_tokens=4)
            assert answer.text == alone.text
            assert torch.equal(answer.allocation.keep, alone.allocation.keep)
        assert full.text == model.ask(IMAGE, "What?", mode="full", max_new_tokens=4).text

    def test_sessions_do_not_mix(self, model: ARRCOCModel) -> None:
        other = picture(9, (72, 56))
        one, two = model.session(IMAGE), model.session(other)
        first, second = one.look("What?"), two.look("What?")
        assert torch.equal(one.look("What?").keep, first.keep)
        assert torch.equal(model.look(other, "What?").keep, second.keep)

    def test_no_growth_over_many_questions(self, model: ARRCOCModel) -> None:
        session = model.session(IMAGE)
        session.look("What?")
        before = {name: id(value) for name, value in vars(session).items()}
        for i in range(30):
            session.look(f"Question {i}?")
        assert {name: id(value) for name, value in vars(session).items()} == before


QUESTIONS = ["What?", "Where is the red ball now?", "Is it?"]
ANSWERS = ["left", "a", "a longer answer"]


@pytest.mark.parametrize("family", apart(KINDS))
class TestBatch:
    """Several questions about one image as one batch, without the image."""

    @staticmethod
    def session(family: str) -> Session:
        built = tiny(family)
        return ARRCOCModel.wrap(built.model, built.processor).session(IMAGE)

    def test_rows_are_padded_on_the_left(self, family: str) -> None:
        session = self.session(family)
        batch = session.batch(QUESTIONS)
        assert {"pixel_values", "labels"}.isdisjoint(batch)
        longest = batch["input_ids"].shape[1]
        for row, question in enumerate(QUESTIONS):
            alone = session.inputs(question)
            start = longest - alone["input_ids"].shape[1]
            assert torch.equal(batch["input_ids"][row, start:], alone["input_ids"][0])
            assert (batch["input_ids"][row, :start] == session.model.adapter.padding_id).all()
            assert batch["attention_mask"][row].tolist() == [0] * start + [1] * (longest - start)
            for name in set(alone) - {"pixel_values", "input_ids", "attention_mask"}:
                value = batch[name].chunk(len(QUESTIONS))[row]  # several rows of what is of tiles or cells
                value = value[:, start:] if name in ("mm_token_type_ids", "token_type_ids") else value
                assert torch.equal(value, alone[name]), name  # also LLaVA-NeXT's image_sizes

    def test_labels_are_the_answer_and_the_end_of_the_turn(self, family: str) -> None:
        session = self.session(family)
        words = session.model.processor.tokenizer
        batch, asked = session.batch(QUESTIONS, ANSWERS), session.batch(QUESTIONS)
        for row, answer in enumerate(ANSWERS):
            labels, ids = batch["labels"][row], batch["input_ids"][row]
            said = words(answer, add_special_tokens=False)["input_ids"] + [words.eos_token_id]
            assert labels[-len(said) :].tolist() == ids[-len(said) :].tolist() == said
            assert (labels[: -len(said)] == -100).all()
            question = asked["input_ids"][row][asked["attention_mask"][row].bool()]
            assert torch.equal(ids[batch["attention_mask"][row].bool()][: -len(said)], question)
            assert batch["attention_mask"][row, -len(said) :].all()
            assert not batch.get("mm_token_type_ids", torch.zeros(3, 99))[row, -len(said) :].any()

    @torch.no_grad()
    def test_logits_are_those_of_each_row_alone(self, family: str) -> None:
        session = self.session(family)
        base, adapter = session.model.base, session.model.adapter
        batch = session.batch(QUESTIONS, ANSWERS)
        one = adapter.features(session.inputs("?"))
        del batch["labels"]
        outputs = one.repeat(len(QUESTIONS)).as_encoder_outputs()
        if family == "hunyuan_vl":  # by its own rule the pictures of a batch are numbered through
            batch["position_ids"] = adapter.positions(batch)
        together = base(**batch, mm_encoder_outputs=outputs).logits
        for row, (question, answer) in enumerate(zip(QUESTIONS, ANSWERS, strict=True)):
            alone = session.batch([question], [answer])
            del alone["labels"]
            logits = base(**alone, pixel_values=session.inputs("?")["pixel_values"]).logits[0]
            closeness = 1e-4 if family in MASKABLE else 5e-3  # padding moves the chunks of recurrent layers
            assert (together[row, -len(logits) :] - logits).abs().max() < closeness


@each(
    ("words", "message"),
    [
        ([["What?", " "]], "the question is empty"),
        ([[]], r"the questions are \[\]: give a list of texts, one at least"),
        (["abc"], "the questions are 'abc': give a list of texts"),
        ([["What?", "Where?"], ["There."]], "one for each of the 2 questions"),
    ],
)
def test_a_batch_that_cannot_be_asked_is_refused(model: ARRCOCModel, words: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.session(IMAGE).batch(*words)


class TestQuestions:
    @each("question", ["", " ", "\n\t ", None, b"What?", 7, ["What?"], "half \udc00"])
    def test_what_is_none_is_refused_before_the_image_is_opened(
        self, model: ARRCOCModel, question: Any
    ) -> None:
        session = model.session(IMAGE)
        for call in (session.ask, session.look, session.inputs, session.prompt):
            with pytest.raises(ValueError, match=r"the question (is empty|is None: give|is an? |has half)"):
                call(question)
        for call in (model.ask, model.look):
            with pytest.raises(ValueError, match="the question"):
                call("no-such-file.png", question)

    def test_what_chooses_no_cells_is_no_look(self, model: ARRCOCModel) -> None:
        for mode in ("full", "compress", "weight"):
            with pytest.raises(ValueError, match=f"mode '{mode}' chooses no cells.*prune, sparse, saccade"):
                model.look(IMAGE, "What?", mode=mode)

    def test_placeholder(self, model: ARRCOCModel) -> None:
        with pytest.raises(ValueError, match=r"holds '<\|image_pad\|>', the model's own placeholder"):
            model.ask(IMAGE, "What is <|image_pad|>?")

    @each("count", ["3", 1.5, 2.0, 0, -1, True, None])
    def test_an_answer_is_cut_off_after_a_whole_number_of_tokens(
        self, model: ARRCOCModel, count: Any
    ) -> None:
        for ask in (partial(model.ask, IMAGE), model.session(IMAGE).ask):
            with pytest.raises(ValueError, match=f"max_new_tokens {count!r} is no count of tokens: use"):
                ask("What?", max_new_tokens=count)

    def test_ten_thousand_words(self, model: ARRCOCModel) -> None:
        with pytest.raises(ValueError, match=r"too long: .* positions and the model has 4096; .*10000 words"):
            model.ask(IMAGE, "word " * 10_000)

    def test_long_but_legal(self, model: ARRCOCModel) -> None:
        assert model.ask(IMAGE, "word " * 600, max_new_tokens=1).kept == 9

    def test_any_text_is_legal(self, model: ARRCOCModel) -> None:
        assert model.ask(IMAGE, "\0🙂 <|im_end|>\n<|im_start|>user\n—", max_new_tokens=1).kept == 9

    def test_no_template(self, model: ARRCOCModel) -> None:
        with pytest.raises(ValueError, match="processor with a chat template"):
            ARRCOCModel.wrap(model.base).ask(IMAGE, "What?")

    def test_unreadable_image(self, model: ARRCOCModel) -> None:
        with pytest.raises(ValueError, match="no-such-file"):
            model.ask("no-such-file.png", "What?")
