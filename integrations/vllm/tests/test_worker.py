"""Cells chosen beside the model: the same as in the API server, and the same answers."""

from __future__ import annotations

from types import SimpleNamespace

import httpx
import pytest
import torch

import arr_coc_vllm.worker as worker_module
from arr_coc.choose.attending import even_grid
from arr_coc.selector import Selector
from arr_coc_lab.world.page import draw_page
from arr_coc_vllm.choosing import chooser_for
from arr_coc_vllm.settings import Settings, read_settings
from arr_coc_vllm.worker import COUNT, KEEP, NAME, QUESTION, Item, WorkerChooser, check_worker, in_worker
from conftest import FOLDER, engine, prompt
from live import body, counter, data_url, server
from parity import agrees, by_transformers, distance, run

OVERRIDES = {"architectures": ["ARRCOCQwen3VL"], "arr_coc": {"budget": 64, "choose": "worker"}}
SIZES = ((512, 512), (1000, 777), (333, 900), (1024, 1024), (200, 130))
"""Some are resized; the last has fewer cells than most budgets."""
BUDGETS = (64, 273, 0.25)


@pytest.fixture(scope="module")
def llm():
    """An engine that chooses in its worker."""
    return engine(hf_overrides=OVERRIDES)


@pytest.fixture(scope="module")
def worker(llm) -> WorkerChooser:
    """What chooses in it."""
    return llm.apply_model(lambda model: model.worker)[0]


@pytest.fixture(scope="module")
def drawn():
    """Pages of all sizes."""
    return [draw_page(40 + i, size, "test", void=False) for i, size in enumerate(SIZES)]


def forget(llm, worker) -> None:
    """Drop all that engine and choosers remember; they share a process here, and so a chooser."""
    llm.reset_prefix_cache()
    llm.reset_mm_cache()
    llm.llm_engine.reset_encoder_cache()
    worker._kept.clear()
    worker.chooser._records.clear()
    worker.chooser.selector._records.clear()


def items_of(llm, text, images, **own) -> list[dict[str, torch.Tensor]]:
    """The fields of each image of a prompt, as the API server sends them."""
    processor = llm.llm_engine.renderer.get_mm_processor()
    data = processor.info.parse_mm_data({"image": images})
    made = processor(llm.get_tokenizer().encode(text), data, hf_processor_mm_kwargs={"arr_coc": own})
    return [{name: elem.data for name, elem in item.items()} for item in made["mm_kwargs"]["image"]]


def is_open(item) -> bool:
    """Whether an image's cells are left to the worker."""
    return Item.read(item[NAME], item[QUESTION], item[COUNT]) is not None


def results(llm, worker, cases, processor, monkeypatch, here: bool):
    """Of each case the kept cells of all images, the prompt's length and the answer, chosen here or there."""
    forget(llm, worker)
    maker = llm.llm_engine.renderer.get_mm_processor()
    monkeypatch.setattr(maker, "in_worker", here)
    gathered = []
    for images, question, budget in cases:
        text = prompt(processor, (len(images), question))
        output = run(llm, text, images, budget=budget)
        items = items_of(llm, text, images, budget=budget)
        for item in items:  # where all cells are kept, nobody has to choose
            assert is_open(item) == (here and int(item[COUNT]) < int(item["image_grid_thw"].prod()) // 4)
        kept = [worker._kept[bytes(i[NAME].tolist())] if is_open(i) else i[KEEP] for i in items]
        answer = list(output.outputs[0].token_ids)
        gathered.append(([k.tolist() for k in kept], len(output.prompt_token_ids), answer))
    return gathered


def test_both_ways_keep_the_same_cells_and_give_the_same_answers(
    llm, worker, wrapped, drawn, monkeypatch
) -> None:
    cases = [
        ([page.image], question.text, budget)
        for page in drawn
        for question in page.questions[:2]
        for budget in BUDGETS
    ]
    question = drawn[1].questions[0].text
    cases += [([drawn[0].image, drawn[1].image], question, b) for b in (64, 273)]
    cases += [([drawn[4].image, drawn[0].image], question, 64)]  # all cells of the first, some of the second
    here, there = (
        results(llm, worker, cases, wrapped.processor, monkeypatch, where) for where in (True, False)
    )
    assert here == there
    sizes = [len(cells) for kept, _, _ in here for cells in kept]
    assert {64, 273} <= set(sizes)
    assert min(sizes) < 64  # of the last page


def test_the_cells_are_those_of_a_selector_on_the_picture_that_the_model_reads(
    llm, worker, wrapped, pages
) -> None:
    page = pages[1]
    question = page.questions[0].text
    (item,) = items_of(llm, prompt(wrapped.processor, (1, question)), [page.image])
    _, h, w = item["image_grid_thw"].tolist()
    picture = worker_module.picture_of(item["pixel_values"], (h, w), worker.vision)
    original = torch.tensor(list(page.image.tobytes())).view(h * 16, w * 16, 3).permute(2, 0, 1)
    assert picture.dtype == torch.uint8  # sent raw, so that nothing was rounded
    assert torch.equal(picture.long(), original)  # its sides are whole cells
    expected = Selector()(page.image, question, 64, (h // 2, w // 2)).keep
    forget(llm, worker)
    assert torch.equal(worker.keep(read(item), item["pixel_values"], (h, w)), expected.long())


def read(item) -> Item:
    found = Item.read(item[NAME], item[QUESTION], item[COUNT])
    assert found is not None
    return found


def test_normalised_patches_give_the_same_picture(llm, wrapped, drawn) -> None:
    """Where a server's pixels aren't raw, the API server undoes what was done to them."""
    maker = llm.llm_engine.renderer.get_mm_processor()
    (item,) = items_of(llm, prompt(wrapped.processor, (1, "What is it?")), [drawn[1].image])
    _, h, w = item["image_grid_thw"].tolist()
    raw = item["pixel_values"]
    normal = (raw.float() / 255 - 0.5) / 0.5
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert torch.equal(maker.picture_of(normal.to(dtype), (h, w)), maker.picture_of(raw, (h, w)))


def test_answers_are_those_of_transformers(llm, wrapped, pages) -> None:
    for page, budget in ((pages[1], 64), (pages[2], 100), (pages[3], 0.5)):
        assert agrees(llm, wrapped, page.questions[0].text, [page.image], budget)
    assert agrees(llm, wrapped, pages[5].questions[0].text, [pages[0].image, pages[5].image], 64)


def counted(monkeypatch) -> list[str]:
    """The questions by which workers are made to choose from now on."""
    names, choose = [], WorkerChooser.choose

    def counting(self, item, rows, patches):
        names.append(item.question)
        return choose(self, item, rows, patches)

    monkeypatch.setattr(WorkerChooser, "choose", counting)
    return names


def test_a_choice_is_made_once_and_no_question_has_anothers(llm, worker, wrapped, pages, monkeypatch) -> None:
    forget(llm, worker)
    chosen, page = counted(monkeypatch), pages[4]
    first, second = page.questions[0].text, page.questions[1].text
    assert agrees(llm, wrapped, first, [page.image], 64)
    assert chosen == [first]  # for positions and tower
    assert agrees(llm, wrapped, second, [page.image], 64)  # from caches of the first it would not
    assert chosen == [first, second]
    again = run(llm, prompt(wrapped.processor, (1, first)), [page.image], budget=64)
    assert again.num_cached_tokens >= 64
    assert agrees(llm, wrapped, first, [page.image], 100)
    assert chosen == [first, second, first]


def test_a_name_without_the_question_is_noticed(llm, worker, wrapped, pages, monkeypatch) -> None:
    """The negative control: were the worker's choices remembered by pixels alone, answers would differ."""
    forget(llm, worker)
    page = pages[6]
    first, second = page.questions[0].text, page.questions[1].text
    keep = WorkerChooser.keep
    monkeypatch.setattr(
        WorkerChooser, "keep", lambda self, item, *more: keep(self, item._replace(name=b"x"), *more)
    )
    run(llm, prompt(wrapped.processor, (1, first)), [page.image], budget=64)
    output = run(llm, prompt(wrapped.processor, (1, second)), [page.image], budget=64)
    assert distance(by_transformers(wrapped, second, [page.image], 64)[0], output) > 2e-3
    forget(llm, worker)


def test_patches_that_vllm_drops_for_its_prefix_cache_are_not_missed(
    llm, worker, wrapped, pages, monkeypatch
) -> None:
    """They are dropped where all tokens of the image are in cached blocks, of 32 tokens here."""
    forget(llm, worker)
    page, processor, own = pages[7], wrapped.processor, {"follow": "first", "budget": 40}
    question = page.questions[0].text + " Please answer in one word, as it is printed on the page."
    later = prompt(processor, (1, question), "It is 12.", (0, "And what else is there?"))
    fresh = run(llm, later, [page.image], **own).outputs[0]
    forget(llm, worker)
    run(llm, prompt(processor, (1, question)), [page.image], **own)
    worker._kept.clear()  # as after many other images
    chosen = counted(monkeypatch)
    output = run(llm, later, [page.image], **own)
    assert output.num_cached_tokens >= 64
    assert chosen == []
    assert output.outputs[0].token_ids == fresh.token_ids
    values = [
        {token: one.logprob for token, one in o.logprobs[0].items()} for o in (fresh, output.outputs[0])
    ]
    assert values[0] == pytest.approx(values[1], abs=1e-3)


def test_what_the_api_server_chooses_itself(llm, wrapped, pages) -> None:
    image, processor = pages[0].image, wrapped.processor  # of 256 cells
    one = prompt(processor, (1, "What is the total?"))
    two = prompt(processor, (1, "What is the total?"), "12", (0, "Who paid?"))
    for text, own, open_ in (
        (one, {}, True),
        (one, {"budget": 0.25}, True),
        (one, {"budget": "auto"}, False),
        (one, {"budget": 256}, False),
        (one, {"mode": "full"}, False),
        (prompt(processor, (1, "")), {}, False),
        (two, {}, True),
        (two, {"follow": "last"}, True),
    ):
        (item,) = items_of(llm, text, [image], **own)
        assert is_open(item) == open_, own
        assert len(item[KEEP]) == (0 if open_ else int(item[COUNT]))
        assert len(item["pixel_values"]) == 4 * (256 if open_ else int(item[COUNT]))


def test_where_choosing_fails_cells_are_spread_evenly(llm, worker, wrapped, drawn, monkeypatch) -> None:
    forget(llm, worker)
    monkeypatch.setattr(chooser_for(Settings()).selector, "decide", None)
    text = prompt(wrapped.processor, (1, "Where?"))
    output = run(llm, text, [drawn[0].image], budget=64)
    assert output.outputs[0].token_ids
    (item,) = items_of(llm, text, [drawn[0].image], budget=64)
    assert torch.equal(worker._kept[bytes(item[NAME].tolist())], even_grid((16, 16), 64))
    forget(llm, worker)


def config(pipeline: int = 1, transfer: object = None, raw: bool = True) -> SimpleNamespace:
    """Of a server, as far as it is read."""
    media = SimpleNamespace(mm_device_do_normalize=raw)
    return SimpleNamespace(
        model_config=SimpleNamespace(get_multimodal_config=lambda: media),
        parallel_config=SimpleNamespace(pipeline_parallel_size=pipeline),
        ec_transfer_config=transfer,
    )


def test_where_cells_are_chosen(monkeypatch) -> None:
    def routes(model) -> list[bool]:
        settings = (
            {},
            {"choose": "front"},
            {"choose": "worker"},
            {"relevance": "guide"},
            {"relevance": "guide+ocr"},
        )
        return [in_worker(read_settings(one), model) for one in settings]

    assert routes(config().model_config) == [False, False, True, False, False]
    monkeypatch.setattr(worker_module.current_platform, "is_cuda_alike", lambda: True)
    assert routes(config().model_config) == [True, False, True, True, False]
    assert routes(config(raw=False).model_config) == [False, False, True, False, False]
    assert Settings(choose="worker").print() == Settings(choose="front").print()  # results are the same


def test_a_server_that_cannot_choose_in_its_worker_is_refused() -> None:
    check_worker(Settings(choose="worker"), config())
    check_worker(Settings(choose="front"), config(pipeline=2, raw=False))
    for wrong, reason in (
        (config(pipeline=2), "pipeline-parallel-size"),
        (config(transfer=object()), "ec-transfer-config"),
        (config(raw=False), "mm-device-do-normalize"),
    ):
        with pytest.raises(ValueError, match=f'{reason}.*"choose": "front"'):
            check_worker(Settings(choose="worker"), wrong)
    with pytest.raises(ValueError, match="not for relevance 'guide\\+ocr': use choose 'front'"):
        read_settings({"choose": "worker", "relevance": "guide+ocr"})
    with pytest.raises(ValueError, match="choose 'gpu' is unknown: use 'auto', 'front' or 'worker'"):
        read_settings({"choose": "gpu"})


def test_a_server_answers_counts_and_says_what_its_worker_chooses(wrapped, pages, tmp_path) -> None:
    with server(FOLDER, OVERRIDES, tmp_path / "log", VLLM_PLUGINS="arr_coc") as url:
        for page in pages[:3]:
            question = page.questions[0].text
            request = body(question, data_url(page.image))
            reply = httpx.post(url + "/v1/chat/completions", json=request, timeout=120).json()
            answer = wrapped.session(page.image).ask(question, budget=64, max_new_tokens=8).text
            assert reply["choices"][0]["message"]["content"].strip() == answer.strip()
            assert reply["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": 64}
        assert counter(url, "arr_coc_images_total") == 3
        assert counter(url, "arr_coc_cells_encoded_total") == 3 * 64
        assert counter(url, "arr_coc_selection_seconds_total") == 0  # of the API server
        reply = httpx.post(url + "/arr_coc/trace", json=request, timeout=60)
        (image,) = reply.json()["images"]
        expected = wrapped.session(pages[2].image).plan(question, budget=64).allocations[0]
        assert (image["cells"], image["question"]) == (expected.keep.tolist(), question)
        assert image["allocation"]["keep"] == image["cells"]
        reply = httpx.post(url + "/arr_coc/trace/1", json=request, timeout=60)
        assert reply.status_code == 200, reply.text


def test_a_chunked_prefill_answers_the_same(wrapped, pages) -> None:
    """The last test of the file: a second engine in a process ends the first."""
    small = engine(
        hf_overrides=OVERRIDES, max_num_batched_tokens=96, max_num_seqs=4, enable_prefix_caching=False
    )
    for page in pages[:3]:
        assert agrees(small, wrapped, page.questions[0].text, [page.image], 150)
