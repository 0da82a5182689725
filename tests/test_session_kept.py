"""Many questions about one image that is read once and kept; conversations."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from arr_coc.families.registry import is_served
from arr_coc.model import ARRCOCModel
from arr_coc.seam.decoding import CACHE, KeptPrompts, unread
from each import each
from tiny import APART, EVERY, MASKABLE, TABLE, apart, picture, prompts, tiny

IMAGE = picture(1, (48, 40))
KEEPING = [family for family in EVERY if TABLE[family].trait("prefix") is not True]
QUESTIONS = ["What is the number?", "What is the colour?", "Where is the red ball?", "Is it?"]


def wrapped(family: str = "qwen3_vl") -> ARRCOCModel:
    built = tiny(family)
    return ARRCOCModel.wrap(built.model, built.processor, budget=9).eval()


@pytest.fixture
def model() -> ARRCOCModel:
    return wrapped()


@pytest.fixture
def widths(model: ARRCOCModel) -> Any:
    """Columns that the language model read, call by call."""
    calls: list[int] = []

    def note(module: Any, args: Any, kwargs: Any) -> None:
        calls.append(kwargs["inputs_embeds"].shape[1])

    hook = model.base.model.language_model.register_forward_pre_hook(note, with_kwargs=True)
    yield calls
    hook.remove()


@pytest.mark.skipif(not is_served("paligemma"), reason="not in this release of transformers")
def test_an_image_that_sees_the_question_is_not_kept() -> None:
    built = tiny("paligemma")
    model = ARRCOCModel.wrap(built.model, built.processor)
    refusal = "paligemma reads an image together with each question"
    with pytest.raises(ValueError, match=refusal):
        model.session(picture(1), keep_image_after=1)
    session = model.session(picture(1))
    with pytest.raises(ValueError, match=refusal):
        session.keep_image()
    batch = session.batch(["What?"], ["That."])  # an answer sees what stands before it, no more
    assert batch["token_type_ids"][0].tolist() == (batch["labels"][0] != -100).int().tolist()


each_number = each("images", [IMAGE, [IMAGE, picture(2, (56, 56))]], ids=["one", "two"])


class TestAnswers:
    """They are those of the stock model, in any order."""

    @each_number
    @pytest.mark.parametrize("family", [family for family in APART if family in KEEPING])
    def test_questions_by_themselves(self, family: str, images: Any) -> None:
        model = wrapped(family)
        session = model.session(images, keep_image_after=0)
        for question in (*QUESTIONS[:2], QUESTIONS[0]):
            answer = session.ask(question, max_new_tokens=4)
            assert answer.text == model.ask(images, question, mode="full", max_new_tokens=4).text
            assert (answer.mode, answer.kept) == ("full", answer.total)

    @each_number
    @pytest.mark.parametrize("family", apart(KEEPING))
    def test_a_conversation(self, family: str, images: Any) -> None:
        model = wrapped(family)
        session, history = model.session(images, keep_image_after=0), []
        for question in QUESTIONS[:3]:
            answer = session.ask(question, max_new_tokens=4, history=history)
            whole = model.session(images).ask(question, mode="full", max_new_tokens=4, history=history)
            assert answer.text == whole.text
            history.append((question, answer.text))

    @each_number
    @pytest.mark.parametrize("family", apart(KEEPING))
    def test_logits(self, family: str, images: Any) -> None:
        model = wrapped(family)
        session, prompts_kept = model.session(images), KeptPrompts()
        with torch.no_grad():
            for question in QUESTIONS[:3]:
                whole = model.prepare(session.inputs(question), mode="full")
                if not prompts_kept.columns:
                    prompts_kept.read_image(model.base, model.adapter, whole.compacted)
                kwargs = unread(prompts_kept.continued(model.adapter, whole.compacted))
                start = kwargs[CACHE].get_seq_length()
                assert kwargs["input_ids"].shape[1] + start == whole.compacted.columns.shape[1]
                logits = model.base(**kwargs).logits
                stock = model.base(**session.inputs(question)).logits[:, start:]
                closeness = 1e-4 if family in MASKABLE else 5e-3  # chunks of recurrent layers begin elsewhere
                assert (logits - stock).abs().max() < closeness


@pytest.mark.parametrize("family", apart(KEEPING))
def test_three_pictures_and_two_questions(family: str) -> None:
    """Also where the words beside an image depend on pixels, or attend to all of it."""
    model, wrong = wrapped(family), []
    for seed in range(3):
        kept, whole = (model.session(picture(seed, (64, 48)), keep_image_after=n) for n in (0, None))
        for question in ("Where?", "What is the number on the door?"):
            texts = [one.ask(question, mode="full", max_new_tokens=4).text for one in (kept, whole)]
            wrong += [(seed, question, *texts)] if texts[0] != texts[1] else []
    assert not wrong


@each("family, end", [("ovis2", "<IMG_END>"), ("molmo2", "<im_end>")])
def test_what_is_read_with_an_image_is_kept_with_it(family: str, end: str) -> None:
    """The words that Ovis2 embeds with an image's features; those that attend to all of it in Molmo 2."""
    if not is_served(family):
        pytest.skip("not in this release of transformers")
    session = wrapped(family).session(IMAGE, keep_image_after=0)
    session.keep_image()
    kept = session._kept._image.ids.tolist()
    tokenizer = tiny(family).processor.tokenizer
    assert tokenizer.convert_ids_to_tokens(kept[-1:]) == [end]
    every = session.inputs("?")["input_ids"][0].tolist()
    assert kept[-1] not in every[len(kept) :]
    with pytest.raises(ValueError, match=f"holds '{end}', which the model reads with an image"):
        session.ask(f"What is {end}?", mode="full", max_new_tokens=1)


class TestPolicy:
    def test_the_first_questions_are_chosen_for(self, model: ARRCOCModel) -> None:
        session = model.session(IMAGE, keep_image_after=2)
        answers = [session.ask(question, max_new_tokens=3) for question in QUESTIONS]
        assert [answer.mode for answer in answers] == ["prune", "prune", "full", "full"]
        assert [answer.kept for answer in answers] == [9, 9, 30, 30]
        session.forget()
        assert session.ask("What?", max_new_tokens=3).mode == "prune"

    def test_never_without_it(self, model: ARRCOCModel) -> None:
        session = model.session(IMAGE)
        assert {session.ask(question, max_new_tokens=2).mode for question in QUESTIONS} == {"prune"}

    def test_a_named_mode_runs(self, model: ARRCOCModel) -> None:
        session = model.session(IMAGE, keep_image_after=0)
        assert session.ask("What?", mode="prune", max_new_tokens=2).kept == 9
        answer = session.ask("What?", budget=5, max_new_tokens=2)
        assert (answer.kept, answer.note) == (30, "budget had no effect in mode full")

    @pytest.mark.parametrize("count", [True, False, -1, 1.5, "2"])
    def test_what_is_no_count_is_refused(self, model: ARRCOCModel, count: Any) -> None:
        with pytest.raises(ValueError, match=r"keep_image_after .* is no number of questions: use 0, 1"):
            model.session(IMAGE, keep_image_after=count)

    def test_the_stock_model_without_it_is_bit_for_bit(self, model: ARRCOCModel, widths: list[int]) -> None:
        session = model.session(IMAGE)
        for question in QUESTIONS[:2]:
            session.ask(question, mode="full", max_new_tokens=1)
        assert widths == [session.inputs(question)["input_ids"].shape[1] for question in QUESTIONS[:2]]


class TestWhatIsRead:
    def test_an_image_once_and_words_alone_after(self, model: ARRCOCModel, widths: list[int]) -> None:
        session = model.session(IMAGE, keep_image_after=0)
        length = {q: session.inputs(q)["input_ids"].shape[1] for q in QUESTIONS}
        image = int((session.inputs("?")["input_ids"][0] == model.adapter.image_token_id).nonzero()[-1]) + 1
        session.ask(QUESTIONS[0], max_new_tokens=1)
        assert widths == [image, length[QUESTIONS[0]] - image]
        widths.clear()
        session.ask(QUESTIONS[2], max_new_tokens=1)
        assert len(widths) == 1
        assert widths[0] <= length[QUESTIONS[2]] - image

    def test_what_two_questions_share_is_not_read_again(self, model: ARRCOCModel, widths: list[int]) -> None:
        session = model.session(IMAGE, keep_image_after=0)
        session.ask("What is the number?", max_new_tokens=1)
        widths.clear()
        session.ask("What is the colour?", max_new_tokens=1)
        behind = session.prompt("What is the colour?").partition("What is the ")[2]
        assert widths == [len(model.processor.tokenizer(behind)["input_ids"])]

    def test_a_turn_reads_what_is_new(self, model: ARRCOCModel, widths: list[int]) -> None:
        session = model.session(IMAGE, keep_image_after=0)
        answer = session.ask("What?", max_new_tokens=2).text
        before = session.prompt("What?") + answer
        widths.clear()
        history = [("What?", answer)]
        session.ask("And?", max_new_tokens=1, history=history)
        new = session.prompt("And?", history).removeprefix(before)
        assert (
            widths[0] <= len(model.processor.tokenizer(new)["input_ids"]) + 2
        )  # it was cut off, or odd bytes

    def test_it_can_be_read_while_nobody_waits(self, model: ARRCOCModel, widths: list[int]) -> None:
        session = model.session(IMAGE, keep_image_after=1)
        session.ask("What?", max_new_tokens=1)
        session.keep_image()
        widths.clear()
        session.keep_image()
        session.ask("Is it?", max_new_tokens=1)
        assert len(widths) == 1
        assert widths[0] < 30

    def test_an_answer_that_was_stopped_leaves_no_trace(self, model: ARRCOCModel) -> None:
        session = model.session(IMAGE, keep_image_after=0)
        expected = [session.ask(question, max_new_tokens=5).text for question in QUESTIONS]

        def stop(text: str) -> None:
            raise InterruptedError

        for question, text in zip(QUESTIONS, expected, strict=True):
            with pytest.raises(InterruptedError):
                session.ask(question, max_new_tokens=5, on_text=stop)
            assert session.ask(question, max_new_tokens=5).text == text

    def test_one_copy_is_held(self, model: ARRCOCModel) -> None:
        session = model.session(IMAGE, keep_image_after=0)
        for question in QUESTIONS:
            session.ask(question, max_new_tokens=2)
        kept = session._kept
        assert kept is not None
        assert kept._image is not None
        assert kept._last is not None
        pairs = zip(kept._image.cache.layers, kept._last.cache.layers, strict=True)
        assert all(a.keys.data_ptr() == b.keys.data_ptr() for a, b in pairs)
        assert kept.columns == len(kept._last.ids)

    def test_a_prompt_about_another_image_is_refused(self, model: ARRCOCModel) -> None:
        kept = KeptPrompts()
        one, two = (model.session(picture(1, size)) for size in ((48, 40), (96, 96)))
        kept.read_image(model.base, model.adapter, model.prepare(two.inputs("?"), mode="full").compacted)
        with pytest.raises(ValueError, match="doesn't begin with images that are kept"):
            kept.continued(model.adapter, model.prepare(one.inputs("?"), mode="full").compacted)

    def test_threads(self, model: ARRCOCModel) -> None:
        session = model.session(IMAGE, keep_image_after=0)
        expected = {q: model.ask(IMAGE, q, mode="full", max_new_tokens=5).text for q in QUESTIONS}
        every = list(QUESTIONS) * 4
        with ThreadPoolExecutor(len(QUESTIONS)) as pool:
            texts = list(pool.map(lambda q: session.ask(q, max_new_tokens=5).text, every))
        assert texts == [expected[q] for q in every]


class TestConversation:
    @pytest.mark.parametrize(
        ("family", "mode"),
        [("qwen3_vl", "prune"), ("qwen3_vl", "full"), ("llava", "prune"), ("llava_next", "full")],
    )
    def test_the_answer_is_that_of_generate(self, family: str, mode: str) -> None:
        model, built = wrapped(family), tiny(family)
        history = [("What?", "A ball."), ("Where?", "")]
        session = model.session(IMAGE)
        answer = session.ask("Which colour?", mode=mode, max_new_tokens=5, history=history)
        text = session.prompt("Which colour?", history)
        inputs = built.processor(images=[IMAGE], text=[text], return_tensors="pt")
        assert text.index("A ball.") < text.index("Which colour?")
        out = model.generate(**inputs, mode=mode, do_sample=False, max_new_tokens=5)
        new = out[0, inputs["input_ids"].shape[1] :]
        assert answer.text == built.processor.tokenizer.decode(new, skip_special_tokens=True).strip()

    def test_the_last_question_chooses(self) -> None:
        built = tiny("qwen3_vl")
        model = ARRCOCModel.wrap(built.model, built.processor, budget=9, relevance="guide")
        session = model.session(IMAGE)
        history = [(QUESTIONS[2], "left")]
        alone = session.ask(QUESTIONS[0], max_new_tokens=1).allocation
        later = session.ask(QUESTIONS[0], max_new_tokens=1, history=history).allocation
        other = session.ask(QUESTIONS[2], max_new_tokens=1).allocation
        assert torch.equal(alone.participatory, later.participatory)
        assert not torch.equal(alone.participatory, other.participatory)

    def test_a_question_that_leans_on_the_one_before_chooses_with_it(self) -> None:
        built = tiny("qwen3_vl")
        model = ARRCOCModel.wrap(built.model, built.processor, budget=9, relevance="guide")
        session = model.session(IMAGE)
        later = session.look("And its left?", history=[(QUESTIONS[2], "red")])
        assert torch.equal(later.participatory, session.look(f"{QUESTIONS[2]} And its left?").participatory)
        assert not torch.equal(later.participatory, session.look("And its left?").participatory)

    @pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
    def test_it_changes_no_question_by_itself(self, family: str) -> None:
        model = wrapped(family)  # goes by the model's own attention, beside that of a neutral question
        session = model.session(IMAGE)
        session.ask(QUESTIONS[0], max_new_tokens=1, history=[(QUESTIONS[2], "left, at the edge")])
        for question in QUESTIONS:
            alone = model.ask(IMAGE, question, max_new_tokens=1)
            assert torch.equal(
                session.ask(question, max_new_tokens=1).allocation.order, alone.allocation.order
            )

    def test_no_history_is_the_plain_prompt(self, model: ARRCOCModel) -> None:
        built = tiny("qwen3_vl")
        ours, own = model.session(IMAGE).inputs("What?", []), prompts(built, [("What?", [IMAGE])])
        assert torch.equal(ours["input_ids"], own["input_ids"])

    @pytest.mark.parametrize(
        ("history", "message"),
        [
            ("What?", "the history is a str: give a list of pairs"),
            (None, "the history is None"),
            (["ab"], "the history holds 'ab': give pairs"),
            ([("What?",)], "give pairs"),
            ([("What?", None)], "an answer in the history is None"),
            ([("", "a")], "the question is empty"),
            ([("What?", "\udc00")], "the history has half of a character"),
            ([("What?", "<|image_pad|>")], "the history holds '<|image_pad|>', the model's own placeholder"),
        ],
    )
    def test_what_is_no_history_is_refused(self, model: ARRCOCModel, history: Any, message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            model.session(IMAGE).ask("What?", history=history)

    def test_a_long_one_is_refused_with_the_remedy(self, model: ARRCOCModel) -> None:
        with pytest.raises(ValueError, match=r"history, question take .* leave out the oldest turns"):
            model.session(IMAGE).ask("What?", history=[("word " * 2_000, "a")])
