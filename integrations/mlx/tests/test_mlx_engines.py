"""What MLX-VLM does around a model: batches, a server, caches of prompts and of encoded pictures."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import numpy as np
import pytest
from mlx_vlm import apc, batch_generate, generate, stream_generate
from mlx_vlm.generate import PromptCacheState
from mlx_vlm.server import generation
from mlx_vlm.vision_cache import VisionFeatureCache, processed_image_key

from arr_coc.seam.prompt import chat_prompt
from arr_coc_lab.world.page import draw_page
from arr_coc_mlx import FAMILIES as SERVED
from arr_coc_mlx import WrappedModel, wrap
from arr_coc_mlx.processing import shortened
from arr_coc_mlx.serving import wrapping
from tiny_mlx import FAMILIES, bundled, dropped, inputs_of, patch_size, picture, tiny, wrapped

QUESTIONS = ("What?", "What is the title of the page?", "Who has signed it?")


@pytest.fixture(scope="module")
def reader() -> WrappedModel:
    """The bundled model, with the bundled guide."""
    return wrap(*bundled(), budget=64, mode="sparse")


@pytest.fixture(scope="module")
def pages() -> list:
    return [draw_page(seed, (384, 384), "test") for seed in range(3)]


def prompt(model: WrappedModel, question: str, images: int = 1) -> str:
    return chat_prompt(model.stock_processor, question, images)


def text_of(model: WrappedModel, question: str, image, processor=None, **how) -> str:
    processor = processor or model.stock_processor
    return generate(model, processor, prompt(model, question), image=[image], max_tokens=6, **how).text


@pytest.mark.parametrize("mode", ["prune", "sparse"])
@pytest.mark.parametrize("family", [family for family in FAMILIES if SERVED[family].batches])
def test_a_batch_equals_each_prompt_alone(family, mode):
    built = tiny(family, muted=False)
    model = wrapped(built, mode=mode, more=1)  # longer questions keep more cells
    side = patch_size(built.model)
    images = [picture(seed, (6, 8), side) for seed in range(3)]
    alone = [text_of(model, *pair) for pair in zip(QUESTIONS, images, strict=True)]
    assert len(set(alone)) == 3
    together = batch_generate(
        model, model.processor, images=images, prompts=list(QUESTIONS), max_tokens=6, prefill_step_size=16
    )
    assert together.texts == alone


def test_a_batch_of_a_compass_that_numbers_its_columns_one_by_one_equals_each_alone():
    built = tiny("cohere_compass", seed=2)
    for rotary in built.model.language_model.model.rotary_embeddings.values():
        rotary._position_selector = None  # as of a checkpoint without sections of three axes
    model, images = wrapped(built, more=1), [picture(seed, (4, 4), 16) for seed in range(2)]
    alone = [text_of(model, *pair) for pair in zip(QUESTIONS, images, strict=False)]
    inputs = inputs_of(built, QUESTIONS[1], (4, 4))
    features = model.get_input_embeddings(
        inputs["input_ids"], inputs["pixel_values"], image_grid_thw=inputs["image_grid_thw"]
    )
    stays = np.flatnonzero(~dropped(model, inputs))
    assert features.position_ids.tolist() == [stays.tolist()]
    batch = {"images": images, "prompts": list(QUESTIONS[:2]), "max_tokens": 6}
    assert batch_generate(model, model.processor, **batch).texts == alone


@pytest.mark.parametrize("family", [family for family in FAMILIES if not SERVED[family].batches])
def test_a_batch_that_mlx_vlm_answers_wrongly_is_refused(family):
    built = tiny(family)
    images = [picture(seed, (6, 8), patch_size(built.model)) for seed in range(3)]
    stock = batch_generate(built.model, built.processor, images=images, prompts=list(QUESTIONS), max_tokens=6)
    alone = [text_of(wrapped(built, mode="full"), *pair) for pair in zip(QUESTIONS, images, strict=True)]
    assert stock.texts != alone  # where they agree, the family can be served in batches
    model = wrapped(built)
    with pytest.raises(ValueError, match=rf"several prompts of {family} at once .*: ask one at a time"):
        batch_generate(model, model.processor, images=images, prompts=list(QUESTIONS), max_tokens=6)


def test_both_processors_lead_to_the_same_answer_and_the_wrapped_one_counts_what_is_read(reader, pages):
    for page in pages[:2]:
        question = page.questions[0].text
        stock = generate(reader, reader.stock_processor, prompt(reader, question), image=[page.image])
        own = generate(reader, reader.processor, prompt(reader, question), image=[page.image])
        assert stock.text == own.text == reader.ask(page.image, question).text
        assert stock.prompt_tokens - own.prompt_tokens == 144 - 64
    *_, last = stream_generate(reader, reader.stock_processor, prompt(reader, question), image=[page.image])
    assert last.token_ids == own.token_ids


def test_several_prompts_by_the_stock_processor_are_refused(reader, pages):
    images = [page.image for page in pages[:2]]
    with pytest.raises(ValueError, match=r"pass `model.processor` in the place of the processor"):
        batch_generate(reader, reader.stock_processor, images=images, prompts=["What?", "Who?"], max_tokens=4)


def test_a_conversation_with_pictures_is_read_anew_and_says_so(caplog):
    built = tiny("qwen3_vl")
    model = wrapped(built)
    image = picture(0, (6, 8), 16)
    first, second = QUESTIONS[1:]
    state = PromptCacheState()
    text_of(model, first, image, prompt_cache_state=state)
    with caplog.at_level(logging.WARNING, "mlx_vlm.generate"):
        cached = text_of(model, first, image, prompt_cache_state=state)  # the same ids: all would be found
        other = text_of(model, second, image, prompt_cache_state=state, processor=model.processor)
    assert cached == text_of(model, first, image)
    assert other == text_of(model, second, image)
    assert "one with pictures isn't continued; only the stock model" in caplog.text


def test_a_conversation_without_pictures_is_continued():
    model = wrapped(tiny("qwen3_vl"))
    state, processor = PromptCacheState(), model.stock_processor
    text = prompt(model, "Who are you, and what do you do all day?", 0)
    first = generate(model, processor, text, max_tokens=4, prompt_cache_state=state)
    again = generate(model, processor, text + "And?", max_tokens=4, prompt_cache_state=state)
    assert first.cached_tokens == 0 < again.cached_tokens
    assert again.token_ids == generate(model, processor, text + "And?", max_tokens=4).token_ids


@pytest.mark.parametrize("mode", ["prune", "sparse"])
def test_keys_of_caches_say_what_was_kept(mode):
    built = tiny("qwen3_vl")
    model = wrapped(built, mode=mode)
    made = [
        shortened(model, inputs_of(built, question, (6, 8)))[0] for question in ("Who is it?", "Why is it?")
    ]
    again = shortened(model, inputs_of(built, "Who is it?", (6, 8)))[0]
    ids, pixels, grids = ([one[k] for one in made] for k in ("input_ids", "pixel_values", "image_grid_thw"))
    assert ids[0].shape == ids[1].shape  # the image's part of both is the same to its last id
    assert len({apc.hash_image_payload(pixel_values=one) for one in (*pixels, again["pixel_values"])}) == 2
    assert len({processed_image_key(*one) for one in zip(pixels, grids, strict=True)}) == 2
    other = wrapped(built, mode="sparse" if mode == "prune" else "prune")
    differently = shortened(other, inputs_of(built, "Who is it?", (6, 8)))[0]
    assert bool((differently["input_ids"] == ids[0]).all())
    assert apc.hash_image_payload(pixel_values=differently["pixel_values"]) != apc.hash_image_payload(
        pixel_values=pixels[0]
    )


def test_a_cache_of_vision_features_gets_those_of_whole_pictures_alone():
    built = tiny("qwen3_5")
    cache, inputs = VisionFeatureCache(), inputs_of(built, QUESTIONS[1], (6, 8))
    alone, pruned = wrapped(built, mode="sparse"), wrapped(built, mode="prune")
    key = processed_image_key(inputs["pixel_values"], inputs["image_grid_thw"])

    def embeds(model):
        more = {k: inputs[k] for k in ("image_grid_thw",)} | {"vision_cache": cache, "_image_key": key}
        return model.get_input_embeddings(inputs["input_ids"], inputs["pixel_values"], **more).inputs_embeds

    first = embeds(alone)
    assert cache.get(key) is None
    second = embeds(pruned)
    whole = cache.get(key)
    assert bool(
        (whole == built.model.vision_tower(inputs["pixel_values"], inputs["image_grid_thw"])[0]).all()
    )
    assert bool((embeds(pruned) == second).all())
    assert bool((embeds(alone) == first).all())
    assert not bool((first == second).all())


def served(load, requests, workers: int = 4, manager=None) -> list[list[int]]:
    """The tokens of answers of MLX-VLM's generator of a server, some requests at a time."""
    stock = generation.load_model_resources
    generation.load_model_resources = load
    try:
        server = generation.ResponseGenerator("a tiny model", apc_manager=manager)
        server.wait_until_ready()

        def ask(request):
            question, image = request
            text = prompt(server.model, question)
            how = generation.GenerationArguments(max_tokens=8, temperature=0)
            _, tokens = server.generate(text, images=[image], args=how)
            return [token.token for token in tokens]

        with ThreadPoolExecutor(workers) as pool:
            answers = list(pool.map(ask, requests))
        server.stop_and_join()
    finally:
        generation.load_model_resources = stock
    return answers


def loading(built, mode: str, selector, budget=10):
    def stock(model_path, adapter_path):
        return built.model, built.processor, built.model.config

    return wrapping(stock, selector, budget, mode)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", "qwen3_5", "cohere_compass", "qwen3_omni_moe"])
def test_a_server_answers_requests_of_different_lengths_at_a_time_as_each_alone(family):
    built = tiny(family, muted=False)
    model = wrapped(built, mode="sparse", more=1)
    side = patch_size(built.model)
    sizes = ((6, 8), (4, 4), (5, 7))
    requests = [(q, picture(i, sizes[(i + j) % 3], side)) for i, q in enumerate(QUESTIONS) for j in range(2)]
    alone = [
        generate(model, model.stock_processor, prompt(model, q), image=[i], max_tokens=8) for q, i in requests
    ]
    answers = served(loading(built, "sparse", model.chooser.selector), requests, 6)
    assert answers == [one.token_ids for one in alone]


@pytest.mark.parametrize("family", ["qwen3_vl", "qwen3_5"])
def test_prefix_caching_of_a_server_changes_no_answer(family):
    built = tiny(family, muted=False)
    model, image = wrapped(built, mode="sparse"), picture(0, (6, 8), 16)
    requests = [(question, image) for question in ("Who is it?", "Why is it?", "Who is it?", "Why is it?")]
    load = loading(built, "sparse", model.chooser.selector)
    manager = apc.APCManager(num_blocks=256, block_size=4)
    assert served(load, requests, 1, manager) == served(load, requests, 1)


def test_a_server_reads_pages_as_ask_does(reader, pages):
    requests = [(page.questions[1].text, page.image) for page in pages]
    model, processor = bundled()

    def stock(model_path, adapter_path):
        return model, processor, model.config

    answers = served(wrapping(stock, reader.chooser.selector, 64, "sparse"), requests)
    decode = processor.tokenizer.decode
    texts = [decode(answer, skip_special_tokens=True).strip() for answer in answers]
    assert texts == [reader.ask(image, question).text for question, image in requests]


def test_a_stock_language_model_is_left_as_it_was(reader):
    model, _ = bundled()
    assert reader.unwrap() is model
    assert type(model.vision_tower).__name__ == "VisionModel"
    assert reader.language_model.base is model.language_model


def test_marks_hold_in_half_precision():
    built = tiny("qwen3_vl")
    model, inputs = wrapped(built), inputs_of(built, "What is it?", (6, 8))
    made, choices = shortened(model, inputs)
    half = made | {"pixel_values": made["pixel_values"].astype(mx.bfloat16)}
    features = model.get_input_embeddings(
        half["input_ids"],
        half["pixel_values"],
        mask=half["attention_mask"],
        image_grid_thw=half["image_grid_thw"],
    )
    assert features.inputs_embeds.shape[1] == int((~dropped(model, inputs)).sum())
    assert [len(choice.keep) for choice in choices] == [10]


def test_a_failure_of_choosing_keeps_all_cells(reader, pages, monkeypatch):
    class Broken:
        def decide(self, *_):
            raise RuntimeError("no")

    built = tiny("qwen3_vl")
    model = WrappedModel(built.model, built.processor, Broken(), 10, "sparse")
    answer = model.ask(picture(0, (4, 4), 16), "What is it?")
    assert answer.fallback
    assert answer.kept == answer.total == 16
    assert answer.note == "choosing cells failed, so all were kept: the log says why"
    strict = WrappedModel(built.model, built.processor, Broken(), 10, "sparse", strict=True)
    with pytest.raises(RuntimeError, match="no"):
        strict.ask(picture(0, (4, 4), 16), "What is it?")


def test_a_prompt_without_words_keeps_all_cells():
    built = tiny("qwen3_vl")
    model = wrapped(built)
    inputs = inputs_of(built, "  ", (4, 4))
    choices, _ = model.choices(
        [np.array(inputs["input_ids"][0])], inputs["pixel_values"], inputs["image_grid_thw"]
    )
    assert [len(choice.keep) for choice in choices] == [16]
    assert not model.chooser.selector.asked
