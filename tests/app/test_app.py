"""The app without a browser: what its handlers yield, refuse and keep apart. Run: pytest tests/test_app.py"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

from arr_coc import app
from arr_coc.app import asking, handlers, measuring, samples, screen
from arr_coc.app.asking import Request, Stopped, Update
from arr_coc.app.canvas import StatusLine, TokenCanvas
from arr_coc.app.models import Models
from arr_coc.app.server import OWN_ORIGIN, OwnOriginOnly
from arr_coc.app.tab import Tab
from arr_coc.cli import main
from arr_coc.inspect.trace import Trace
from arr_coc.model import ARRCOCModel
from arr_coc.session import Session
from tiny import picture, tiny

HOSTILE = "<script>alert(1)</script> `${x}` {{y}}?"


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    made = tiny("qwen3_vl")
    return ARRCOCModel.wrap(made.model, made.processor)


@pytest.fixture
def models(model: ARRCOCModel) -> Iterator[Models]:
    made = Models(model, model)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))


@pytest.fixture
def image(tmp_path: Path) -> str:
    picture(1, (64, 48)).save(tmp_path / "photo.png")
    return str(tmp_path / "photo.png")


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages that would appear on the page."""
    texts: list[str] = []
    monkeypatch.setattr(handlers.gr, "Warning", texts.append)
    return texts


def last(work: Iterator[Any]) -> Any:
    return list(work)[-1]


def ask(models: Models, tab: Tab, image: Any, question: str = "What is it?", **more: Any) -> dict[str, Any]:
    update = last(
        asking.ask(models, tab, Request(image, question, **{"percent": 25.0, "mode": "prune"} | more))
    )
    assert update.view is not None
    return update.view


class TestBudget:
    @pytest.mark.parametrize(("percent", "budget"), [(6, 0.06), (100, 1.0), (0.5, 0.005)])
    def test_percent(self, percent: float, budget: float) -> None:
        assert Request(None, "", percent).budget == pytest.approx(budget)

    def test_auto(self) -> None:
        assert Request(None, "", 6, auto=True).budget == "auto"

    @pytest.mark.parametrize("percent", [0, -1, 101, float("nan")])
    def test_refused(self, percent: float) -> None:
        with pytest.raises(ValueError, match="slider"):
            _ = Request(None, "", percent).budget


class TestAsking:
    def test_what_the_model_says(self, models: Models, model: ARRCOCModel, image: str) -> None:
        tab = Tab()
        view = ask(models, tab, image)
        answer = model.ask(image, "What is it?", budget=0.25)
        assert (view["answer"], view["kept"], view["total"]) == (answer.text, 12, 48)
        assert view["full"]["text"] == model.ask(image, "What is it?", mode="full").text
        assert tab.view == view

    def test_streams(self, models: Models, image: str) -> None:
        updates = list(asking.ask(models, Tab(), Request(image, "What is it?", 25, mode="prune")))
        assert len(updates) > 3
        assert [update.view for update in updates[:-1]] == [None] * (len(updates) - 1)
        assert updates[-1].status.startswith("Answered in ")

    def test_full_mode_shows_no_difference(self, models: Models, image: str) -> None:
        view = ask(models, Tab(), image, mode="full")
        assert (view["agree"], view["kept"]) == (True, view["total"])
        assert {view["reason_names"][str(reason)] for reason in view["reasons"]} == {"all kept"}

    @pytest.mark.parametrize(
        ("asked_for", "why"),
        [
            (Request(None, "What?"), "no image"),
            (Request("x.png", "  "), "question is empty"),
            (Request("missing.png", "What?"), "does not exist"),
        ],
    )
    def test_refused(self, models: Models, asked_for: Request, why: str) -> None:
        with pytest.raises(ValueError, match=why):
            list(asking.ask(models, Tab(), asked_for))

    def test_an_image_is_encoded_once(self, models: Models, image: str) -> None:
        tab = Tab()
        ask(models, tab, image)
        session = tab.sessions[0]
        ask(models, tab, image, "Why?")
        assert tab.sessions[0] is session
        ask(models, tab, picture(2, (64, 48)))
        assert tab.sessions[0] is not session

    def test_two_tabs_do_not_mix(self, models: Models, image: str) -> None:
        one, two = Tab(), Tab()
        other = picture(3, (32, 64))
        first = asking.ask(models, one, Request(image, "What is it?", 25, mode="prune"))
        second = asking.ask(models, two, Request(other, "Why?", 50, mode="prune"))
        views = [update.view for _ in range(2000) for work in (first, second) if (update := next(work, None))]
        a, b = (view for view in views if view is not None)
        a, b = (a, b) if a["question"] == "What is it?" else (b, a)
        assert (a["grid"], b["grid"]) == ([6, 8], [8, 4])
        assert (one.view, two.view) == (a, b)
        assert (len(one.history), len(two.history)) == (1, 1)
        assert one.sessions[0] is not two.sessions[0]

    def test_stop(self, models: Models, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
        tab = Tab()
        before = ask(models, tab, image)
        texts: list[str] = []
        whole = Session.ask

        def slow(self: Session, question: str, *, on_text: Callable[[str], None], **more: Any) -> Any:
            def stop(text: str) -> None:
                texts.append(text)
                tab.stopping = True
                on_text(text)

            return whole(self, question, on_text=stop, **more)

        monkeypatch.setattr(Session, "ask", slow)
        with pytest.raises(Stopped):
            list(asking.ask(models, tab, Request(image, "Why?", 25, mode="prune")))
        monkeypatch.undo()
        assert models.submit(lambda _: len(texts)).result() == 1  # the model's thread is free again
        assert tab.view is before
        tab.stopping = False
        assert ask(models, tab, image, "Why?")["question"] == "Why?"

    def test_stop_while_waiting(self, models: Models, image: str) -> None:
        tab = Tab(stopping=True)
        with pytest.raises(Stopped):
            list(asking.ask(models, tab, Request(image, "Why?")))
        assert tab.view is None

    def test_swap(self, models: Models, image: str) -> None:
        tab = Tab()
        view = ask(models, tab, image)
        both = last(asking.swap(models, tab, "Why?")).view
        assert both["a"] is view
        assert (both["b"]["question"], both["b"]["budget"], both["b"]["mode"]) == ("Why?", 0.25, "prune")
        assert tab.view is view

    def test_against_itself(self, models: Models, image: str) -> None:
        tab = Tab()
        ask(models, tab, image)
        both = last(asking.against(models, tab)).view
        assert both["a"]["keep"] == both["b"]["keep"]

    @pytest.mark.parametrize("work", [lambda *a: asking.swap(*a, "Why?"), asking.against])
    def test_before_the_first_answer(self, models: Models, work: Callable[..., Iterator[Update]]) -> None:
        with pytest.raises(ValueError, match="ask a question first"):
            list(work(models, Tab()))


class TestModels:
    def test_models_are_loaded_to_the_device_in_the_dtype(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[tuple[Any, ...]] = []
        monkeypatch.setattr(
            ARRCOCModel, "from_pretrained", lambda *names, **settings: calls.append((*names, settings))
        )
        blocks = app.build_app(model_name="one", against="two", device="cpu", dtype="bfloat16")
        for which in range(2):
            blocks.models.submit(lambda model: model, which).result()
        blocks.models.close()
        settings = {"device": "cpu", "dtype": "bfloat16"}
        assert calls == [("one", settings), ("two", settings)]

    def test_a_device_that_is_not_there_is_refused_at_once(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        with pytest.raises(ValueError, match="'cuda' can't be used on this machine"):
            app.build_app(device="cuda")
        with pytest.raises(ValueError, match="dtype 'int8' is unknown"):
            app.build_app(dtype="int8")
        assert main(["app", "--device", "cuda"]) == 2
        err = capsys.readouterr().err
        assert "'cuda' can't be used on this machine" in err
        assert err.count("\n") == 1


class TestMeasuring:
    @pytest.mark.parametrize("name", measuring.PROBES)
    def test_probe(self, models: Models, image: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def probe(session: Session, trace: Trace, progress: Callable[[float], None]) -> dict[str, Any]:
            progress(0.5)
            return {"about": trace.question, "on": list(session.image.size)}

        monkeypatch.setitem(measuring.PROBES, name, ("title", probe))
        tab = Tab()
        ask(models, tab, image)
        updates = list(measuring.measure(models, tab, name))
        assert "Measuring ... 50%" in [update.status for update in updates]
        assert updates[-1].view["probes"] == {name: {"about": "What is it?", "on": [64, 48]}}
        assert len(tab.history) == 1

    def test_a_real_one(self, models: Models, image: str) -> None:
        tab = Tab()
        ask(models, tab, image)
        sweep = last(measuring.measure(models, tab, "sweep")).view["probes"]["sweep"]
        assert sweep["points"][-1]["kept"] == 48


class TestTraces:
    def test_open_needs_no_model(self, models: Models, image: str, tmp_path: Path) -> None:
        made = Tab()
        ask(models, made, image)
        made.trace.save(tmp_path / "a.safetensors")
        lazy = Models("a model that does not exist")
        chosen = samples.samples([tmp_path / "a.safetensors"])
        built = screen.build(lazy, chosen, None, lazy=True)
        assert not lazy.ready()
        tab = Tab()
        status, view, picture, question, *_ = handlers.on_open(tab, str(tmp_path / "a.safetensors"))
        assert (status, view["answer"], question) == ("Opened.", made.view["answer"], "What is it?")
        assert picture.size == (64, 48)
        assert built.models is lazy

    def test_a_measure_of_an_opened_trace_reads_its_picture(self, models: Models, image: str) -> None:
        made, tab = Tab(), Tab()
        ask(models, made, image)
        tab.open(made.trace)
        both = last(asking.swap(models, tab, "Why?")).view
        assert both["b"]["grid"] == [6, 8]

    def test_no_trace(self, tmp_path: Path, messages: list[str]) -> None:
        (tmp_path / "<b>.safetensors").write_bytes(b"nope")
        tab = Tab()
        handlers.on_open(tab, str(tmp_path / "<b>.safetensors"))
        assert len(messages) == 1
        assert messages[0].startswith("&#x27;&lt;b&gt;.safetensors&#x27; is not a saved trace")
        assert str(tmp_path) not in messages[0]
        assert tab.view is None

    def test_export(self, models: Models, image: str) -> None:
        tab = Tab()
        with pytest.raises(ValueError, match="nothing to export"):
            tab.export()
        ask(models, tab, image, HOSTILE)
        page, record = map(Path, tab.export())
        assert "alert(1)</script>" not in page.read_text(encoding="utf-8")
        assert Trace.load(record).question == HOSTILE
        tab.close()
        assert not page.parent.exists()

    def test_the_shipped_one_is_of_the_first_sample(self) -> None:
        first, *others = samples.samples()
        request = Request(first.image, first.question)
        assert first.trace is not None
        sample = json.loads(samples.SAMPLE.read_text(encoding="utf-8"))
        assert (first.trace.question, first.trace.answer) == (sample["question"], sample["answer"])
        assert (first.trace.budget, first.trace.mode) == (request.budget, request.mode)
        assert Image.open(first.image).convert("RGB").tobytes() == first.trace.picture.tobytes()
        assert len(others) == 3

    @pytest.mark.slow
    def test_the_shipped_one_is_what_the_bundled_model_says(self, tmp_path: Path) -> None:
        made, shipped = samples.write_shipped(tmp_path / "a.safetensors"), Trace.load(samples.SHIPPED)
        assert (made.answer, made.allocation.keep.tolist()) == (
            shipped.answer,
            shipped.allocation.keep.tolist(),
        )


class TestScreen:
    def test_a_broken_upload_is_a_message(self, tmp_path: Path, image: str, messages: list[str]) -> None:
        tab = Tab()
        assert handlers.on_upload(tab, image)[1] == "Ask something about it."
        (tmp_path / "<b>.png").write_bytes(b"\x89PNG\r\n\x1a\nnope")
        assert handlers.on_upload(tab, str(tmp_path / "<b>.png")) == [image, handlers.UNCHANGED]
        assert len(messages) == 1
        assert messages[0].startswith("Image &#x27;&lt;b&gt;.png&#x27; is not an image")

    def test_what_is_refused_is_a_message(self, models: Models, messages: list[str]) -> None:
        *_, (status, view) = handlers.on_ask(models, Tab(), None, "What?", 6, False, "prune", True)
        assert status == handlers.UNCHANGED
        assert view == handlers.gr.skip()
        assert messages == ["There is no image: upload one, paste one or choose a sample"]

    def test_what_breaks_is_a_message(
        self, models: Models, image: str, messages: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("secret")

        monkeypatch.setattr(Session, "ask", broken)
        list(handlers.on_ask(models, Tab(), image, "What?", 25, False, "prune", True))
        assert messages == ["That failed (RuntimeError); the log has the reason"]

    def test_a_model_that_cannot_be_loaded_is_a_message(self, image: str, messages: list[str]) -> None:
        models = Models("./nowhere")
        list(handlers.on_ask(models, Tab(), image, "What?", 25, False, "prune", True))
        models.close()
        assert len(messages) == 1
        assert "nowhere" in messages[0]

    def test_a_sample_with_a_trace_needs_no_model(self, models: Models, image: str) -> None:
        made, tab = Tab(), Tab()
        ask(models, made, image)
        chosen = [samples.Sample(image, "What is it?", made.trace), samples.Sample(image, "Why?")]
        (update,) = handlers.on_pick(Models("nowhere"), chosen, tab, 0, 25, False, "prune", True)
        assert update[1]["answer"] == made.view["answer"]
        *_, update = handlers.on_pick(models, chosen, tab, 1, 25, False, "prune", True)
        assert update[1]["question"] == "Why?"

    def test_buttons(self, models: Models, image: str) -> None:
        tab = Tab(stopping=True)
        _, *updates = handlers.begin(4, tab)
        assert [update["interactive"] for update in updates] == [False, True, True, False]
        assert not tab.stopping
        handlers.on_stop(tab)
        assert tab.stopping
        updates = handlers.finish(4, tab)[:4]
        assert [update["interactive"] for update in updates] == [True, False, False, True]

    def test_the_microscope_follows_only_when_open(self, models: Models, image: str) -> None:
        tab = Tab()
        view = ask(models, tab, image)
        assert handlers.finish(1, tab)[1:] == [handlers.gr.skip()] * 4
        assert handlers.on_closer(tab)[0] is view
        assert handlers.finish(1, tab)[1] is view
        handlers.on_closed(tab)
        assert not tab.closer
        tab.close()

    def test_a_tab_can_be_copied(self) -> None:
        tab = Tab()
        tab.open(samples.samples()[0].trace)
        other = copy.deepcopy(tab)
        assert other.view == tab.view
        assert other.trace is not tab.trace

    def test_results(self, models: Models, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="nothing"):
            screen.build(models, samples.samples(), tmp_path / "nothing.jsonl", lazy=True)


class TestComponents:
    def test_text_is_text(self) -> None:
        line = StatusLine()
        assert line.postprocess(HOSTILE) == "&lt;script&gt;alert(1)&lt;/script&gt; `${x}` {{y}}?"
        canvas = TokenCanvas(kind="full")
        assert json.loads(canvas.postprocess({"question": HOSTILE}) or "") == {"question": HOSTILE}
        assert canvas.postprocess(None) is None

    def test_no_file_is_written_beside_the_source(self) -> None:
        assert not list(Path(screen.__file__).parent.glob("*.pyi"))

    def test_nothing_is_fetched_from_elsewhere(self) -> None:
        settings = screen.look()
        assert settings["theme"]._stylesheets == []
        assert "http" not in OWN_ORIGIN
        assert "//fonts" not in settings["head"]


class TestServing:
    def test_policy(self) -> None:
        sent: list[Any] = []

        async def inner(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "headers": [(b"a", b"b")]})
            await send({"type": "http.response.body"})

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(OwnOriginOnly(inner)({}, None, send))
        assert dict(sent[0]["headers"])[b"content-security-policy"] == OWN_ORIGIN.encode()
        assert sent[1] == {"type": "http.response.body"}

    def test_without_gradio(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(app, "find_spec", lambda name: None)
        with pytest.raises(ValueError, match=r"pip install 'arr-coc\[app\]'"):
            app.build_app()
        assert main(["app"]) == 2
        err = capsys.readouterr().err
        assert err == "arr-coc: the app needs Gradio, which is not installed: pip install 'arr-coc[app]'\n"

    def test_a_bad_trace_is_refused_before_anything_is_loaded(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["app", str(tmp_path / "none.safetensors")]) == 2
        assert "is not a saved trace" in capsys.readouterr().err
