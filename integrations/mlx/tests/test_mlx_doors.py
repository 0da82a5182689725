"""What a user calls: `wrap`, `ask`, the command line; and what is refused."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
import time
from base64 import b64encode
from io import BytesIO
from pathlib import Path

import httpx
import mlx.core as mx
import numpy as np
import pytest
from mlx_vlm import generate
from transformers import AutoModelForImageTextToText, Qwen3VLProcessor

from arr_coc import ARRCOCModel, Selector
from arr_coc.files.saved import BUNDLED
from arr_coc.seam.prompt import chat_prompt
from arr_coc_lab.world.page import draw_page
from arr_coc_mlx import FAMILIES, cli, serving, wrap
from arr_coc_mlx.families import REFUSED, find_family
from arr_coc_mlx.wrapped import MODES
from tiny_mlx import bundled, bundled_folder, inputs_of, picture, tiny, wrapped

SIZE = (384, 384)  # px, 144 cells


@pytest.fixture(scope="module")
def reader():
    return wrap(*bundled(), budget=64, mode="sparse")


@pytest.fixture(scope="module")
def page():
    return draw_page(0, SIZE, "test")


@pytest.mark.parametrize("mode", ["full", "prune", "sparse"])
def test_it_chooses_and_answers_as_the_model_wrapped_with_transformers(reader, mode):
    folder = str(BUNDLED / "model")
    base = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager")
    # mlx_vlm puts processors of its own into AutoProcessor.
    other = ARRCOCModel.wrap(
        base.eval(), Qwen3VLProcessor.from_pretrained(folder), budget=64, relevance="guide"
    )
    right = 0
    for seed in range(
        3 if mode == "sparse" else 1
    ):  # MLX is slow on a CPU, and a whole page its largest work
        drawn = draw_page(seed, SIZE, "test")
        for question in drawn.questions[: 2 if mode == "sparse" else 1]:
            own = reader.ask(drawn.image, question.text, mode=mode)
            theirs = other.ask(drawn.image, question.text, mode=mode)
            assert own.text == theirs.text
            assert own.allocation.keep.tolist() == theirs.allocation.keep.tolist()
            facts = ("kept", "total", "read", "mode", "note", "fallback", "budget")
            assert [getattr(own, name) for name in facts] == [getattr(theirs, name) for name in facts]
            right += own.text.strip().lower() == question.answer.strip().lower()
    assert right >= (4 if mode == "sparse" else 0)


def test_an_answer_says_what_was_read(reader, page):
    answer = reader.ask(page.image, page.questions[1].text, budget=32)
    assert (answer.kept, answer.total, answer.read, answer.mode) == (32, 144, 32, "sparse")
    assert answer.question == page.questions[1].text
    assert len(answer.couplings) == 1
    assert answer.show().size == page.image.size
    assert answer.ms["total"] == pytest.approx(sum(v for k, v in answer.ms.items() if k != "total"))
    assert min(answer.ms.values()) >= 0
    two = reader.ask([page.image, page.image], page.questions[1].text, budget=0.25)
    assert [one.kept for one in two.allocations] == [36, 36]
    part = page.image.crop((0, 0, 128, 128))
    small = reader.ask(part, page.questions[1].text, budget=1000)
    assert small.note == "budget 1000 is more than the image has: all 16 cells were kept"
    full = reader.ask(part, page.questions[1].text, mode="full", budget=64)
    assert full.note == "budget had no effect in mode full"
    assert full.kept == 16


def test_the_budget_and_mode_of_a_model_can_be_changed(page):
    model = wrap(*bundled())
    assert (model.budget, model.mode, model.chooses) == (273, "prune", True)
    part = page.image.crop((0, 0, 128, 128))
    assert model.ask(part, "What is the title?").kept == 16
    model.budget, model.mode = "auto", "sparse"
    kept = model.ask(page.image, "What is the title?").kept
    assert 64 <= kept < 144
    again = wrap(model, model.stock_processor, budget=16)
    assert again.unwrap() is model.unwrap()
    model.mode = "full"
    text = chat_prompt(model.stock_processor, "What is the title?", 1)
    stock = generate(*bundled(), text, image=[part], max_tokens=8)
    assert generate(model, model.processor, text, image=[part], max_tokens=8).token_ids == stock.token_ids


def test_sampling_options_of_mlx_vlm_are_handed_on(reader, page):
    first, second = (reader.ask(page.image, "What?", temperature=5.0, seed=seed).text for seed in (1, 2))
    assert first != second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "saccade"}, "mode 'saccade' doesn't run with MLX: use one of full, prune, sparse"),
        ({"mode": "sprase"}, "mode 'sprase' doesn't run with MLX"),
        ({"budget": "many"}, "budget 'many' is not a number; use a count (273)"),
        ({"budget": 0}, "budget 0"),
        ({"relevance": "gaze"}, "relevance 'gaze' is of a model wrapped with transformers: use 'auto'"),
        ({"allocator": "nowhere"}, "nowhere"),
    ],
)
def test_what_can_not_be_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        wrap(*bundled(), **arguments)


def test_what_was_not_loaded_by_mlx_vlm_is_not_wrapped():
    model, processor = bundled()
    for pair in ((processor, model), (model, None), (model, processor.tokenizer)):
        with pytest.raises(ValueError, match="can't be wrapped: pass the model and the processor"):
            wrap(*pair)


def test_a_wrapped_pair_is_wrapped_anew():
    built = tiny("qwen3_vl")
    first = wrap(built.model, built.processor, budget=4)
    again = wrap(first, first.processor, budget=6)
    assert again.stock_processor is built.processor
    assert again.ask(picture(0, (4, 4), 16), "What is it?", max_tokens=1).kept == 6


def test_ask_takes_arrays_and_refuses_lengths_and_empty_lists():
    built = tiny("qwen3_vl")
    model, image = wrapped(built), picture(0, (4, 4), 16)
    texts = [model.ask(one, "What is it?", max_tokens=3).text for one in (image, mx.array(np.asarray(image)))]
    assert texts[0] == texts[1] == model.ask(image, "What is it?", max_new_tokens=3).text
    with pytest.raises(ValueError, match="list of images is empty: give one image or more"):
        model.ask([], "What is it?")
    for length in (0, -1, "3", None):
        with pytest.raises(ValueError, match=rf"max_new_tokens {length!r} is no count of tokens"):
            model.ask(image, "What is it?", max_new_tokens=length)


def test_other_families_are_refused_by_name():
    model = tiny("qwen3_vl").model
    config, model.config = model.config, type("Config", (), {"model_type": "llava"})()
    try:
        with pytest.raises(
            ValueError, match=r"model_type 'llava' is not served with MLX: .* use one of qwen2_vl"
        ):
            wrap(model, tiny("qwen3_vl").processor)
    finally:
        model.config = config


def test_videos_and_pixels_that_do_not_fit_are_refused(reader, page):
    built = tiny("qwen3_vl")
    model, inputs = wrapped(built), inputs_of(built, "What is it?", (4, 4))
    with pytest.raises(
        ValueError, match="can't choose in videos with MLX yet: send images, or use mode 'full'"
    ):
        model.get_input_embeddings(inputs["input_ids"], None, pixel_values_videos=inputs["pixel_values"])
    with pytest.raises(ValueError, match="can't choose in videos"):
        model.chooser.choose(np.array([1]), np.zeros((2, 4), dtype=np.float32), [(2, 1, 1)], 4)
    other = inputs_of(built, "What is it?", (4, 6))
    with pytest.raises(
        ValueError, match=r"the images of \[24\] tokens don't fill the image tokens of the 1 prompts"
    ):
        model.get_input_embeddings(
            inputs["input_ids"], other["pixel_values"], image_grid_thw=other["image_grid_thw"]
        )
    with pytest.raises(ValueError, match="the model's own placeholder"):
        reader.ask(page.image, "What is <|image_pad|>?")
    with pytest.raises(ValueError, match="question"):
        reader.ask(page.image, "")


def test_which_question_of_a_conversation_decides():
    built = tiny("qwen3_vl")
    model = wrapped(built)
    turns = [("Who is it?", "A clerk."), ("Where?", "Here.")]
    text = chat_prompt(built.processor, "When does the shop open?", 1, turns)
    generate(model, built.processor, text, image=[picture(0, (4, 4), 16)], max_tokens=1)
    assert [asked[1:] for asked in model.chooser.selector.asked] == [("When does the shop open?", 10, (4, 4))]


def test_the_picture_is_that_which_the_model_reads():
    built = tiny("qwen2_vl")
    model, inputs = wrapped(built), inputs_of(built, "What is it?", (4, 6))
    seen = model.chooser.picture(np.array(inputs["pixel_values"]), (1, 8, 12))
    assert (seen.permute(1, 2, 0).numpy() == np.asarray(picture(0, (4, 6), 14))).all()


# ---- the command line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "/nowhere"], "the model '/nowhere' can't be read"),
        (["serve", "{}", "--mode", "saccade"], "mode 'saccade' doesn't run with MLX: use one of"),
        (["serve", "{}", "--budget", "many"], "budget 'many' is not a number"),
        (["serve", "{}", "--relevance", "tea"], "tea"),
    ],
)
def test_wrong_arguments_end_in_a_line_with_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([one.format(bundled_folder()) for one in arguments])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("arr-coc-mlx: ")
    assert message in line


def test_a_folder_of_another_family_is_refused(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma4"}))
    with pytest.raises(SystemExit):
        cli.main(["serve", str(tmp_path)])
    assert "model_type 'gemma4' is not served with MLX" in capsys.readouterr().err


@pytest.mark.parametrize("name", REFUSED)
def test_families_with_positions_are_refused_for_the_reason_found(name):
    with pytest.raises(
        ValueError, match=rf"'{name}' is not served with MLX: {re.escape(REFUSED[name])}; use"
    ):
        find_family(name)
    assert name not in FAMILIES


def test_options_of_mlx_vlms_server_are_handed_on(monkeypatch, tmp_path):
    from mlx_vlm.server import cli as stock
    from mlx_vlm.server import generation

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_vl"}))
    monkeypatch.setattr(generation, "load_model_resources", generation.load_model_resources)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(stock, "main", lambda: None)
    cli.main(["serve", str(tmp_path), "--port", "9000", "--max-tokens", "7"])
    given = ["--model", str(tmp_path), "--host", "127.0.0.1", "--port", "9000", "--max-tokens", "7"]
    assert sys.argv[1:] == [*given, "--max-num-seqs", "1"]  # Qwen2-VL: one request at a time
    assert generation.load_model_resources.__module__ == serving.__name__


def test_the_page_of_the_documentation_runs_as_it_is_written(monkeypatch, tmp_path, page):
    text = (Path(__file__).parents[3] / "docs" / "mlx.md").read_text("utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.S | re.M)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mlx_vlm.load", lambda name: bundled())
    page.image.save("page.png")
    names = {}
    for _, block in (one for one in blocks if one[0] == "python"):
        exec(compile(block, "docs/mlx.md", "exec"), names)
    assert names["answer"].kept == 64
    (served,) = (line for _, block in blocks for line in block.splitlines() if line.startswith("arr-coc-mlx"))
    how, more = cli.parser().parse_known_args(shlex.split(served)[1:])
    assert (how.command, how.budget, how.mode, more) == ("serve", "64", "sparse", [])
    families = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]*)\| yes", text, re.M)))
    assert sorted(families) == sorted(FAMILIES)
    refused = re.findall(r"`(\w+)`", text.partition("why it is refused")[2].partition("\n\n")[0])
    assert sorted(refused) == sorted(REFUSED)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_a_server_answers_over_http(page, reader, tmp_path):
    port, folder = free_port(), bundled_folder()
    command = [sys.executable, "-m", "arr_coc_mlx.cli", "serve", folder, "--budget", "64", "--mode", "sparse"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen([*command, "--port", str(port)], stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(240):
            assert server.poll() is None, (tmp_path / "log").read_text()
            try:
                httpx.get(f"{address}/health", timeout=5)
                break
            except httpx.TransportError:
                time.sleep(0.25)
        held = BytesIO()
        page.image.save(held, "PNG")
        url = "data:image/png;base64," + b64encode(held.getvalue()).decode()
        question = page.questions[1].text
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
        body = {
            "model": folder,
            "max_tokens": 16,
            "temperature": 0,
            "messages": [{"role": "user", "content": content}],
        }
        reply = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=120).json()
        assert reply["choices"][0]["message"]["content"].strip() == reader.ask(page.image, question).text
        assert reply["usage"]["prompt_tokens"] < 100  # 64 of 256 cells, and the text
    finally:
        server.terminate()
        server.wait(30)


def test_a_request_for_a_model_of_another_family_gets_status_400():
    from fastapi import HTTPException

    class Other:
        config = type("Config", (), {"model_type": "llava", "image_token_id": 1})()

    load = serving.wrapping(lambda *_: (Other(), None, None), Selector.from_pretrained(), 64, "sparse")
    with pytest.raises(HTTPException) as refusal:
        load("other", None)
    assert refusal.value.status_code == 400
    assert "'llava' is not served with MLX" in refusal.value.detail


def test_modes_are_those_of_the_library_by_name():
    from arr_coc.modes.mode import MODES as LIBRARY

    assert all(LIBRARY[name] is mode for name, mode in MODES.items())
    assert mx.default_device() == mx.cpu
