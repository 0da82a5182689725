"""The plugin in vLLM beside the same model by way of transformers, and what is cached of it."""

from __future__ import annotations

import pytest

from conftest import engine, prompt
from parity import agrees, by_transformers, distance, run

CASES = [(page, number) for page in range(10) for number in range(5)]
BUDGETS = (64, 100, 0.5, "auto", 1024)


@pytest.mark.parametrize(("page", "number"), CASES)
def test_answers_are_those_of_transformers(llm, wrapped, pages, page, number) -> None:
    questions = pages[page].questions
    budget = BUDGETS[number]
    assert agrees(llm, wrapped, questions[number % len(questions)].text, [pages[page].image], budget)


def test_several_images_share_a_prompt(llm, wrapped, pages) -> None:
    images = [pages[0].image, pages[1].image]
    assert agrees(llm, wrapped, pages[1].questions[0].text, images, 64)


def test_shifted_positions_are_noticed(llm, wrapped, pages, monkeypatch) -> None:
    import arr_coc_vllm.models as models

    right = models.prompt_positions
    monkeypatch.setattr(models, "prompt_positions", lambda n, images: right(n, images) * 2)
    question = "What stands at the very top of this page?"
    output = run(llm, prompt(wrapped.processor, (1, question)), [pages[2].image])
    assert distance(by_transformers(wrapped, question, [pages[2].image], 64)[0], output) > 2e-2


def hashes(llm, text, images, **more) -> list[str]:
    """The names under which results about the images of a prompt are cached."""
    processor = llm.llm_engine.renderer.get_mm_processor()
    items = processor.info.parse_mm_data({"image": images})
    kwargs = {"arr_coc": more} if more else {}
    ids = llm.get_tokenizer().encode(text)
    return processor(ids, items, hf_processor_mm_kwargs=kwargs)["mm_hashes"]["image"]


def test_names_in_caches(llm, wrapped, pages) -> None:
    image, processor = pages[0].image, wrapped.processor
    one = prompt(processor, (1, "What is the total?"))
    (first,) = hashes(llm, one, [image])
    assert hashes(llm, one, [image]) == [first]
    assert hashes(llm, prompt(processor, (1, "Who paid?")), [image]) != [first]
    assert hashes(llm, one, [pages[1].image]) != [first]
    assert hashes(llm, one, [image], budget=100) != [first]
    later = prompt(processor, (1, "What is the total?"), "12", (0, "Thanks!"))
    assert hashes(llm, later, [image], follow="first") == [first]
    other = prompt(processor, (1, "What is the total?"), "12", (0, "Who paid?"))
    assert hashes(llm, other, [image], follow="last") == hashes(
        llm, prompt(processor, (1, "Who paid?")), [image]
    )
    beside = prompt(processor, (1, "What is the total?"), "12", (1, "And there?"))
    assert hashes(llm, beside, [image, pages[1].image], follow="first")[0] == first


def test_the_images_of_a_tool_are_asked_about_by_the_user(llm, wrapped, pages) -> None:
    page, crop = pages[0].image, pages[1].image
    one = prompt(wrapped.processor, (1, "What is the total?"))
    mark = "<|vision_start|><|image_pad|><|vision_end|>"
    replied = f"{one}Let me see.<|im_end|>\n<|im_start|>tool\nWho paid? {mark}<|im_end|>\n"
    names = hashes(llm, one, [page]) + hashes(llm, one, [crop])
    assert hashes(llm, replied + "<|im_start|>assistant\n", [page, crop]) == names


def test_a_name_without_the_question_is_noticed(llm, wrapped, pages, monkeypatch) -> None:
    """The negative control of the law above: with vLLM's own hashes two questions share an entry."""
    from vllm.model_executor.models.qwen3_vl import Qwen3VLMultiModalProcessor

    from arr_coc_vllm.processor import SelectingProcessor, parted

    def unaware(self, inputs):
        from dataclasses import replace

        plain, _ = parted(inputs.hf_processor_mm_kwargs)
        return Qwen3VLMultiModalProcessor._get_mm_hashes(self, replace(inputs, hf_processor_mm_kwargs=plain))

    monkeypatch.setattr(SelectingProcessor, "_get_mm_hashes", unaware)
    questions = ("What is the total?", "Who paid?")
    texts = [prompt(wrapped.processor, (1, question)) for question in questions]
    image = pages[3].image
    assert hashes(llm, texts[0], [image]) == hashes(llm, texts[1], [image])
    run(llm, texts[0], [image])
    output = run(llm, texts[1], [image])
    assert distance(by_transformers(wrapped, questions[1], [image], 64)[0], output) > 2e-3


def test_an_image_is_hashed_and_cut_into_patches_once_for_a_request(llm, wrapped, pages, monkeypatch) -> None:
    """Also where questions are compared, and not at all where vLLM and the chooser remember it."""
    from vllm.model_executor.models.qwen3_vl import Qwen3VLMultiModalProcessor
    from vllm.multimodal.processing import ProcessorInputs

    import arr_coc.selector

    counted = []

    def counting(owner, name) -> None:
        own = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda self, *args: counted.append(name) or own(self, *args))

    counting(ProcessorInputs, "get_mm_hashes")
    counting(Qwen3VLMultiModalProcessor, "_apply_hf_processor_main")
    monkeypatch.setattr(arr_coc.selector, "picture_digest", None)  # nobody else looks at its pixels
    page, processor = pages[8], wrapped.processor
    first, second = (question.text for question in page.questions[:2])
    later = prompt(processor, (1, first), "12", (0, second))
    hashes(llm, later, [page.image])
    assert sorted(counted) == ["_apply_hf_processor_main", "get_mm_hashes"]
    counted.clear()
    hashes(llm, later, [page.image])
    assert "get_mm_hashes" in counted
    assert len(counted) <= 2


def test_what_a_prefix_cache_keeps(llm, wrapped, pages) -> None:
    image, processor = pages[4].image, wrapped.processor
    first, second = pages[4].questions[0].text, pages[4].questions[1].text
    one = prompt(processor, (1, first))
    output = run(llm, one, [image])
    length = len(output.prompt_token_ids)
    again = run(llm, one, [image])
    assert again.num_cached_tokens >= (length - 1) // 32 * 32
    later = prompt(processor, (1, first), output.outputs[0].text or "-", (0, "Thanks!"))
    assert run(llm, later, [image], follow="first").num_cached_tokens >= length // 32 * 32
    other = run(llm, prompt(processor, (1, second)), [image])
    assert other.num_cached_tokens < 32


def test_what_is_refused(llm, wrapped, pages) -> None:
    text = prompt(wrapped.processor, (1, "What is it?"))
    for wrong in ({"budget": 0}, {"mode": "saccade"}, {"allocator": "/"}, {"colour": 1}):
        with pytest.raises(ValueError, match=r"arr_coc|budget"):
            run(llm, text, [pages[0].image], **wrong)
    assert run(llm, text, [pages[0].image]).outputs[0].token_ids


def test_an_image_without_a_question_is_read_whole(llm, wrapped, pages) -> None:
    image = pages[5].image
    output = run(llm, prompt(wrapped.processor, (1, "")), [image])
    assert len(output.prompt_token_ids) > image.width * image.height // 1024


def test_a_chunked_prefill_answers_the_same(wrapped, pages) -> None:
    """The last test of the file: a second engine in a process ends the first."""
    small = engine(max_num_batched_tokens=96, max_num_seqs=4, enable_prefix_caching=False)
    for page in pages[:4]:
        assert agrees(small, wrapped, page.questions[0].text, [page.image], 150)
