"""The app without a browser: what its handlers yield, refuse and keep apart."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import gc
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

from arr_coc import app
from arr_coc.app import asking, handlers, samples, screen
from arr_coc.app.asking import AskForm, Stopped, Update
from arr_coc.app.components import Problem, StatusLine, TokenCanvas, Upload, UploadClip
from arr_coc.app.handlers import Visits
from arr_coc.app.models import Models
from arr_coc.app.server import OWN_ORIGIN, OwnOriginOnly
from arr_coc.app.state import TABS, Tab
from arr_coc.cli import main
from arr_coc.model import ARRCOCModel
from arr_coc.session import Session
from arr_coc.trace.trace import Trace
from tiny import picture, tiny

HOSTILE = "<script>alert(1)</script> `${x}` {{y}}?"


pytestmark = pytest.mark.usefixtures("files_of_its_own")


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    made = tiny("qwen3_vl")
    return ARRCOCModel.wrap(made.model, made.processor)


@pytest.fixture
def image(tmp_path: Path) -> str:
    picture(1, (64, 48)).save(tmp_path / "photo.png")
    return str(tmp_path / "photo.png")


PROBLEMS = {name: 3 + place for place, name in enumerate(handlers.FIELDS)}
"""Where the problem of a field stands in what `on_ask` yields, behind status, view and staleness."""


def problems(update: list[Any]) -> dict[str, str]:
    """What is wrong with which field, of an update of the form."""
    return {name: update[place] for name, place in PROBLEMS.items() if update[place]}


def last(work: Iterator[Any]) -> Any:
    return list(work)[-1]


def pictures(view: dict[str, Any]) -> list[str]:
    """The pictures in a view."""
    return [picture for strip in view["strips"] for picture in strip["images"]]


def ask(models: Models, tab: Tab, image: Any, question: str = "What is it?", **more: Any) -> dict[str, Any]:
    update = last(asking.ask(models, tab, AskForm(image, question, **{"tokens": 12, "mode": "prune"} | more)))
    assert update.view is not None
    return update.view


class TestBudget:
    @pytest.mark.parametrize("tokens", [1, 273, 273.0, 5000])
    def test_count(self, tokens: float) -> None:
        assert AskForm(None, "", tokens).budget == tokens

    def test_auto(self) -> None:
        assert AskForm(None, "", 6, auto=True).budget == "auto"

    @pytest.mark.parametrize("tokens", [0, -1, 0.5, 10.5, float("nan"), float("inf")])
    def test_refused(self, tokens: float) -> None:
        with pytest.raises(ValueError, match="slider"):
            _ = AskForm(None, "", tokens).budget


class TestAsking:
    @pytest.mark.slow
    def test_what_the_model_says(self, models: Models, model: ARRCOCModel, image: str) -> None:
        tab = Tab()
        view = ask(models, tab, image)
        answer = model.ask(image, "What is it?", budget=0.25)
        assert (view["answer"], view["kept"], view["total"]) == (answer.text, 12, 48)
        assert view["full"]["text"] == model.ask(image, "What is it?", mode="full").text
        assert tab.view == view

    @pytest.mark.slow
    def test_streams(self, models: Models, image: str) -> None:
        updates = list(asking.ask(models, Tab(), AskForm(image, "What is it?", 12, mode="prune")))
        assert len(updates) > 3
        assert [update.view for update in updates[:-1]] == [None] * (len(updates) - 1)
        assert updates[-1].status.startswith("Answered in ")

    def test_full_mode_shows_no_difference(self, models: Models, image: str) -> None:
        view = ask(models, Tab(), image, mode="full")
        assert (view["agree"], view["kept"]) == (True, view["total"])
        assert {view["reason_names"][str(reason)] for reason in view["strips"][0]["reasons"]} == {"all kept"}

    @pytest.mark.slow
    @pytest.mark.parametrize("magnify", ["1", "2", "auto"])
    def test_kept_cells_are_magnified(self, models: Models, model: ARRCOCModel, magnify: str) -> None:
        tab, large = Tab(), picture(1, (512, 384))
        view = ask(models, tab, large, mode="sparse", magnify=magnify)
        answer = model.ask(large, "What is it?", budget=12, mode="sparse", magnify=magnify)
        assert (view["answer"], view["kept"], view["read"]) == (answer.text, answer.kept, answer.read)
        assert tab.trace.magnified == answer.magnified
        assert (view["magnified"] is not None) is (magnify == "2")  # there are few cells to magnify
        ignored = ask(models, tab, large, mode="prune", magnify=magnify)["note"] or ""
        assert ("magnify had no effect in mode prune" in ignored) is (magnify != "1")

    @pytest.mark.parametrize(
        ("asked_for", "why"),
        [
            (AskForm(None, "What?"), "no image"),
            (AskForm("x.png", "  "), "question is empty"),
            (AskForm("missing.png", "What?"), "does not exist"),
        ],
    )
    def test_refused(self, models: Models, asked_for: AskForm, why: str) -> None:
        with pytest.raises(ValueError, match=why):
            list(asking.ask(models, Tab(), asked_for))

    @pytest.mark.slow
    def test_an_image_is_encoded_once(self, models: Models, image: str) -> None:
        tab = Tab()
        ask(models, tab, image)
        session = tab.sessions[0]
        ask(models, tab, image, "Why?")
        assert tab.sessions[0] is session
        ask(models, tab, picture(2, (64, 48)))
        assert tab.sessions[0] is not session

    @pytest.mark.slow
    def test_two_tabs_do_not_mix(self, models: Models, image: str) -> None:
        one, two = Tab(), Tab()
        other = picture(3, (32, 64))
        first = asking.ask(models, one, AskForm(image, "What is it?", 12, mode="prune"))
        second = asking.ask(models, two, AskForm(other, "Why?", 16, mode="prune"))
        views = [update.view for _ in range(2000) for work in (first, second) if (update := next(work, None))]
        a, b = (view for view in views if view is not None)
        a, b = (a, b) if a["question"] == "What is it?" else (b, a)
        assert [one["strips"][0]["grid"] for one in (a, b)] == [[1, 6, 8], [1, 8, 4]]
        assert (one.view, two.view) == (a, b)
        assert (len(one.history), len(two.history)) == (1, 1)
        assert one.sessions[0] is not two.sessions[0]

    @pytest.mark.slow
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
            list(asking.ask(models, tab, AskForm(image, "Why?", 12, mode="prune")))
        monkeypatch.undo()
        assert models.submit(lambda _: len(texts)).result() == 1  # the model's thread is free again
        assert tab.view is before
        tab.stopping = False
        assert ask(models, tab, image, "Why?")["question"] == "Why?"

    def test_what_was_stopped_stays_so_when_the_next_begins(
        self, models: Models, image: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tab, inside, go_on = Tab(), Event(), Event()
        texts: list[str] = []
        whole = Session.ask

        def slow(self: Session, question: str, *, on_text: Callable[[str], None], **more: Any) -> Any:
            inside.set()
            assert go_on.wait(30)  # a long forward pass, which reports nothing
            return whole(self, question, on_text=lambda text: (texts.append(text), on_text(text)), **more)

        monkeypatch.setattr(Session, "ask", slow)
        handlers.begin(7, tab)
        stopped = asking.ask(models, tab, AskForm(image, "Why?", 12, mode="prune"))
        next(stopped)
        assert inside.wait(30)
        handlers.on_stop(tab)
        with pytest.raises(Stopped):
            list(stopped)
        monkeypatch.undo()
        handlers.begin(7, tab)
        go_on.set()
        assert ask(models, tab, image, "When?")["question"] == "When?"
        assert len(texts) == 1  # and ended at its first report

    def test_stop_while_waiting(self, models: Models, image: str) -> None:
        tab = Tab(stopping=True)
        with pytest.raises(Stopped):
            list(asking.ask(models, tab, AskForm(image, "Why?")))
        assert tab.view is None

    @pytest.mark.slow
    def test_swap(self, models: Models, image: str) -> None:
        tab = Tab()
        view = ask(models, tab, image)
        both = last(asking.swap(models, tab, "Why?")).view
        assert both["a"] is view
        assert (both["b"]["question"], both["b"]["budget"], both["b"]["mode"]) == ("Why?", 12, "prune")
        assert tab.view is view

    @pytest.mark.slow
    def test_against_itself(self, models: Models, image: str) -> None:
        tab = Tab()
        ask(models, tab, image)
        both = last(asking.against(models, tab)).view
        assert both["a"]["strips"][0]["keep"] == both["b"]["strips"][0]["keep"]
        assert [label.split(" ")[-1] for label in both["labels"]] == ["(first)", "(second)"]

    @pytest.mark.slow
    def test_a_question_about_another_image_that_failed_changes_nothing(
        self, models: Models, image: str
    ) -> None:
        tab = Tab()
        view = ask(models, tab, image)
        with pytest.raises(ValueError, match="mode 'nope' is unknown"):
            ask(models, tab, picture(2, (32, 64)), mode="nope")
        assert tab.sessions[0].image.size == (32, 64)  # it was begun
        both = last(asking.swap(models, tab, "What is it?")).view
        assert both["a"] is view
        assert (both["b"]["answer"], pictures(both["b"])) == (view["answer"], pictures(view))
        with pytest.raises(ValueError, match="mode 'nope' is unknown"):
            ask(models, tab, picture(2, (32, 64)), mode="nope")
        assert pictures(last(asking.against(models, tab)).view["b"]) == pictures(view)

    @pytest.mark.slow
    def test_true_answers_go_with_their_question(self, models: Models, image: str) -> None:
        tab = Tab()
        tab.truths = {"What is it?": ("a tree",)}
        assert ask(models, tab, image)["true_answers"] == ["a tree"]
        assert ask(models, tab, image, "Why?")["true_answers"] == []
        other = Tab()
        other.open(tab.trace)
        assert other.truths == {"Why?": ()}

    @pytest.mark.parametrize("work", [lambda *a: asking.swap(*a, "Why?"), asking.against])
    def test_before_the_first_answer(self, models: Models, work: Callable[..., Iterator[Update]]) -> None:
        with pytest.raises(ValueError, match="ask a question first"):
            list(work(models, Tab()))


class TestMemory:
    @pytest.mark.slow
    def test_the_least_recently_used_images_are_let_go(self, models: Models) -> None:
        models.encoded.megapixels = 0.5  # two small images
        tabs = [Tab() for _ in range(4)]
        for seed, tab in enumerate(tabs):
            ask(models, tab, picture(seed, (64, 48)), compare=False)
            ask(models, tabs[0], picture(9, (64, 48)), compare=False)
        assert [len(tab.sessions) for tab in tabs] == [1, 0, 0, 1]
        assert all(tab.trace is not None for tab in tabs)

    @pytest.mark.slow
    def test_a_tab_whose_image_was_let_go_answers_as_before(self, models: Models, image: str) -> None:
        tab, other = Tab(), Tab()
        before = ask(models, tab, image)
        models.encoded.megapixels = 0.0
        ask(models, other, picture(1, (64, 48)))
        assert tab.sessions == {}
        assert len(other.sessions) == 1  # the one in use stays, however large
        both = last(asking.swap(models, tab, "What is it?")).view
        assert both["b"]["answer"] == before["answer"]

    @pytest.mark.slow
    def test_both_models_count(self, models: Models, image: str) -> None:
        tab = Tab()
        ask(models, tab, image)
        assert tab.megapixels == 0.25
        last(asking.against(models, tab))
        assert tab.megapixels == 0.5

    @pytest.mark.slow
    def test_a_closed_tab_is_forgotten_with_its_files(self, models: Models, image: str) -> None:
        tab = Tab()
        ask(models, tab, image)
        page, _ = map(Path, tab.export())
        ask(models, Tab(), image)
        del tab
        gc.collect()
        assert not page.parent.exists()

    @pytest.mark.slow
    def test_the_history_has_no_picture(self, models: Models, image: str) -> None:
        tab = Tab()
        for question in ("What?", "Why?"):
            ask(models, tab, image, question)
        assert [entry["question"] for entry in tab.history] == ["What?", "Why?"]
        assert len(json.dumps(tab.history)) < 2000

    @pytest.mark.slow
    def test_visits(self, models: Models, image: str) -> None:
        made = Tab()
        view = ask(models, made, image)
        visits, tabs = Visits(made.trace, view), [Tab(), Tab()]
        for number, tab in enumerate(tabs):
            assert visits.begin(tab, SimpleNamespace(session_hash=str(number))) is tab
            assert tab.trace is made.trace  # one for all
            assert tab.view is view
        ask(models, tabs[0], image)
        visits.end(SimpleNamespace(session_hash="0"))
        assert (tabs[0].stopping, tabs[0].sessions) == (True, {})
        assert tabs[0].trace is not None
        assert not tabs[1].stopping
        visits.end(SimpleNamespace(session_hash="none"))

    def test_gradio_keeps_no_more_tabs(self) -> None:
        assert screen.launch_options()["state_session_capacity"] == TABS


class TestLabels:
    def test_allocators_of_one_base_are_told_apart_by_their_folders(self, tmp_path: Path) -> None:
        for name in ("one/allocator", "two/allocator", "three"):
            (tmp_path / name).mkdir(parents=True)
        one, two, three = (str(tmp_path / name) for name in ("one/allocator", "two/allocator", "three"))
        assert Models(one, three).labels("bundled") == ("allocator", "three")
        assert Models("bundled", three).labels("bundled") == ("bundled", "three")
        assert Models(one, two).labels("bundled") == ("one/allocator", "two/allocator")
        assert Models("bundled", "bundled").labels("bundled") == ("bundled (first)", "bundled (second)")

    def test_an_untrained_one_says_so(self, model: ARRCOCModel) -> None:
        trained = SimpleNamespace(base_name=model.base_name, layer=SimpleNamespace(trained=True))
        models = Models(trained, model)
        for which in range(2):
            models.submit(lambda _: None, which).result()
        names = models.labels(Path(model.base_name).name)
        models.close()
        assert [name.split(" ")[-1] for name in names] == ["(trained)", "(untrained)"]

    def test_a_trace_of_another_model_keeps_its_name(self, models: Models) -> None:
        models.submit(lambda _: None).result()
        assert models.labels("someone/else")[0] == "someone/else"


class TestSources:
    @pytest.mark.slow
    @pytest.mark.parametrize("option", ["--model", "--against"])
    def test_a_folder_that_is_not_there_is_refused_before_the_port_opens(
        self, option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gradio.Blocks.launch", lambda *_, **__: pytest.fail("it serves"))
        assert main(["app", option, "./nosuch"]) == 2
        err = capsys.readouterr().err
        assert "'nosuch' doesn't exist" in err
        assert err.count("\n") == 1

    def test_a_folder_that_is_no_model_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="is not a model folder: it has no config"):
            Models(str(tmp_path)).check()

    def test_what_is_there_passes(self, base: Path) -> None:
        Models("bundled", str(base)).check()

    def test_names_on_the_hub_are_looked_up_unless_traces_are_shown(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def find(name: str, *_: Any) -> Any:
            raise ValueError(f"no {name}")

        monkeypatch.setattr("arr_coc.app.models.find", find)
        Models("someone/model").check(hub=False)
        with pytest.raises(ValueError, match="no someone/model"):
            Models("someone/model").check()


class TestModels:
    @pytest.mark.slow
    def test_models_are_loaded_to_the_device_in_the_dtype(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[tuple[Any, ...]] = []
        warmed: list[Any] = []

        def from_pretrained(*names: str, **settings: Any) -> Any:
            calls.append((*names, settings))
            return SimpleNamespace(ask=lambda *_, mode, **__: warmed.append(mode))

        monkeypatch.setattr(ARRCOCModel, "from_pretrained", from_pretrained)
        blocks = app.build_app(
            model_name="one",
            against="two",
            device="cpu",
            dtype="bfloat16",
            allocator="learned",
            relevance="gaze",
            max_new_tokens=7,
        )
        for which in range(2):
            blocks.models.submit(lambda model: model, which).result()
        blocks.models.close()
        settings = {"device": "cpu", "dtype": "bfloat16", "guide": None}
        assert calls == [
            ("one", settings | {"allocator": "learned", "relevance": "gaze"}),
            ("two", settings | {"allocator": None, "relevance": "auto"}),  # each has its own
        ]
        assert blocks.models.max_new_tokens == 7
        assert warmed == [None, "full"] * 2

    def test_a_device_that_is_not_there_is_refused_at_once(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
        with pytest.raises(ValueError, match="'cuda' can't be used on this machine"):
            app.build_app(device="cuda")
        with pytest.raises(ValueError, match="dtype 'int8' is unknown"):
            app.build_app(dtype="int8")
        assert main(["app", "--port", "70000"]) == 2
        assert "port 70000 is too large" in capsys.readouterr().err
        assert main(["app", "--device", "cuda"]) == 2
        err = capsys.readouterr().err
        assert "'cuda' can't be used on this machine" in err
        assert err.count("\n") == 1


class TestMeasuring:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", asking.PROBES)
    def test_probe(self, models: Models, image: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def probe(
            session: Session, trace: Trace, mode: str, progress: Callable[[float], None]
        ) -> dict[str, Any]:
            progress(0.5)
            return {"about": trace.question, "on": list(session.image.size)}

        monkeypatch.setattr(asking, "plugin", lambda kind, name: probe)
        tab = Tab()
        ask(models, tab, image)
        updates = list(asking.measure(models, tab, name))
        assert "Measuring ... 50%" in [update.status for update in updates]
        found = {"about": "What is it?", "on": [64, 48], "mode": "prune", "note": None}
        assert updates[-1].view["probes"] == {name: found}
        assert len(tab.history) == 1

    @pytest.mark.slow
    def test_it_is_about_the_image_of_the_answer(
        self, models: Models, image: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also where a question about another was refused, and where a trace was opened meanwhile."""
        sizes: list[tuple[int, int]] = []

        def probe(
            session: Session, trace: Trace, mode: str, progress: Callable[[float], None]
        ) -> dict[str, Any]:
            sizes.append(session.image.size)
            progress(0.5)
            return {}

        monkeypatch.setattr(asking, "plugin", lambda kind, name: probe)
        tab, other = Tab(), Tab()
        ask(models, tab, image)
        ask(models, other, picture(2, (32, 64)))
        with pytest.raises(ValueError, match="mode 'nope' is unknown"):
            ask(models, tab, picture(2, (32, 64)), mode="nope")
        last(asking.measure(models, tab, "sweep"))
        work = asking.measure(models, tab, "sweep")
        next(work)
        tab.open(other.trace)
        assert last(work).view["strips"][0]["grid"] == [1, 6, 8]
        last(asking.measure(models, tab, "sweep"))
        assert sizes == [(64, 48)] * 3

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("mode", "measured", "why"),
        [
            ("prune", "prune", None),
            ("sparse", "sparse", None),
            ("saccade", "sparse", "coarse view of saccade"),
            ("weight", "prune", "weight chooses no cells"),
            ("compress", "prune", "compress chooses no cells"),
            ("someone's", "prune", "no mode here"),
        ],
    )
    def test_a_probe_follows_the_mode_or_says_why_not(
        self, models: Models, image: str, mode: str, measured: str, why: str | None
    ) -> None:
        tab = Tab()
        ask(models, tab, image)
        ran, note = asking.probe_mode(dataclasses.replace(tab.trace, mode=mode))
        assert ran == measured
        assert note is None if why is None else why in note

    @pytest.mark.slow
    def test_a_real_one(self, models: Models, image: str) -> None:
        tab = Tab()
        ask(models, tab, image)
        sweep = last(asking.measure(models, tab, "sweep")).view["probes"]["sweep"]
        assert sweep["points"][-1]["kept"] == 48


class TestTraces:
    @pytest.mark.slow
    def test_open_needs_no_model(self, models: Models, image: str, tmp_path: Path) -> None:
        made = Tab()
        ask(models, made, image)
        made.trace.save(tmp_path / "a.safetensors")
        lazy = Models("a model that does not exist")
        chosen = samples.samples([tmp_path / "a.safetensors"])
        built = screen.build(lazy, chosen, None, lazy=True)
        assert not lazy.ready()
        tab = Tab()
        update = handlers.on_open(tab, str(tmp_path / "a.safetensors"))[:-4]
        status, view, stale, *_, picture, question, problem = update
        assert (stale, problem) == ("", "")
        assert (status, view["answer"], question) == ("Opened.", made.view["answer"], "What is it?")
        assert picture.size == (64, 48)
        assert built.models is lazy

    @pytest.mark.slow
    def test_a_measure_of_an_opened_trace_reads_its_picture(self, models: Models, image: str) -> None:
        made, tab = Tab(), Tab()
        ask(models, made, image)
        tab.open(made.trace)
        both = last(asking.swap(models, tab, "Why?")).view
        assert both["b"]["strips"][0]["grid"] == [1, 6, 8]

    def test_no_trace(self, tmp_path: Path) -> None:
        (tmp_path / "<b>.safetensors").write_bytes(b"nope")
        tab = Tab()
        update = handlers.on_open(tab, str(tmp_path / "<b>.safetensors"))
        (message,) = [part for part in update if part != handlers.gr.skip()]
        assert message.startswith("'<b>.safetensors' is not a saved trace")
        assert str(tmp_path) not in message
        assert tab.view is None
        assert Problem().postprocess("<b>") == "&lt;b&gt;"

    @pytest.mark.slow
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
        first = samples.bundled_sample()
        request = AskForm(first.image, first.question)
        assert first.trace is not None
        sample = json.loads(samples.SAMPLE.read_text(encoding="utf-8"))
        assert (first.trace.question, first.trace.answer) == (sample["question"], sample["answer"])
        assert (first.trace.budget, first.trace.mode) == (request.budget, "sparse")
        assert request.mode is None  # the model's own, which is "sparse" for the bundled one
        assert Image.open(first.image).convert("RGB").tobytes() == first.trace.picture.tobytes()

    @pytest.mark.slow
    def test_the_shipped_one_is_what_the_bundled_model_says(self, tmp_path: Path) -> None:
        made, shipped = samples.write_shipped(tmp_path / "a.safetensors"), Trace.load(samples.SHIPPED)
        assert (made.answer, made.allocation.keep.tolist()) == (
            shipped.answer,
            shipped.allocation.keep.tolist(),
        )


class TestScreen:
    def test_a_broken_upload_is_said_beside_the_image(self, tmp_path: Path, image: str) -> None:
        tab, skip = Tab(), handlers.gr.skip()
        assert handlers.on_upload(tab, image) == [skip, "A new image: ask something about it.", "", ""]
        (tmp_path / "<b>.png").write_bytes(b"\x89PNG\r\n\x1a\nnope")
        *unchanged, problem = handlers.on_upload(tab, str(tmp_path / "<b>.png"))
        assert unchanged == [image, skip, skip]
        assert problem.startswith("Image '<b>.png' cannot be opened")

    @pytest.mark.parametrize(
        ("wrong", "field", "why"),
        [
            ({"image": None}, "image", "There is no image"),
            ({"image": "missing.png"}, "image", "does not exist"),
            ({"question": " "}, "question", "The question is empty"),
            ({"question": "long " * 5000}, "question", "too long"),
            ({"tokens": 0}, "budget", "Budget 0 is no number"),
            ({"mode": "nope"}, "form", "Mode 'nope' is unknown"),
            ({"magnify": "9"}, "form", "Magnify '9' is not from 1 to 3"),
        ],
    )
    def test_what_is_refused_is_said_beside_its_field(
        self, models: Models, image: str, wrong: dict[str, Any], field: str, why: str
    ) -> None:
        form = {"image": image, "question": "What?", "tokens": 12, "auto": False, "mode": "prune"}
        form = form | {"compare": False, "magnify": "1"} | wrong
        update = last(handlers.on_ask(models, Tab(), *form.values()))
        assert update[:3] == [handlers.REFUSED, handlers.gr.skip(), handlers.gr.skip()]
        assert list(problems(update)) == [field]
        assert why in problems(update)[field]

    def test_what_breaks_is_said_without_its_reason(
        self, models: Models, image: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("secret")

        monkeypatch.setattr(Session, "ask", broken)
        update = last(handlers.on_ask(models, Tab(), image, "What?", 12, False, "prune", True))
        assert problems(update) == {"form": "That failed (RuntimeError); the log has the reason"}

    def test_a_model_that_cannot_be_loaded(self, image: str) -> None:
        models = Models("./nowhere")
        update = last(handlers.on_ask(models, Tab(), image, "What?", 12, False, "prune", True))
        models.close()
        assert "nowhere" in problems(update)["form"]
        assert handlers.on_headline(models).startswith("Model ./nowhere can't be loaded")

    def test_what_the_model_is_stands_above(
        self, models: Models, model: ARRCOCModel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = models.name(0)
        assert handlers.on_headline(models) == f"Model: {name}, loading ..."
        assert handlers.on_headline(models, lazy=True) == f"Model: {name}, loaded with the first question."
        models.start()
        models.submit(lambda _: None).result()
        assert handlers.on_headline(models) == f"Model: {name}"
        monkeypatch.setattr(type(model), "about", "A model of nothing.")
        assert handlers.on_headline(models) == f"Model: {name}, A model of nothing."

    @pytest.mark.slow
    def test_the_answer_of_another_image_is_stale(self, models: Models, image: str) -> None:
        tab = Tab()
        form = (12, False, "prune", False)
        assert last(handlers.on_ask(models, tab, image, "What?", *form))[2] == ""
        other = picture(5, (64, 48))
        assert handlers.on_clear(tab) == [handlers.STALE, ""]
        assert handlers.on_upload(tab, image)[2] == handlers.STALE
        assert last(handlers.on_ask(models, tab, None, "What?", *form))[2] == handlers.gr.skip()
        chosen = [samples.AppSample(other, "Why?")]
        assert handlers.on_pick(chosen[0], tab)[2] == handlers.STALE
        assert last(handlers.on_ask(models, tab, other, "Why?", *form))[2] == ""
        assert not tab.moved

    @pytest.mark.slow
    def test_the_answer_of_other_settings_is_stale(self, models: Models, image: str) -> None:
        tab = Tab()
        moved = partial(handlers.on_settings, tab)
        assert moved(12, False, "prune") == handlers.gr.skip()  # no answer yet
        last(handlers.on_ask(models, tab, image, "What?", 12, False, "prune", False))
        assert moved(12, False, "prune") == ""
        for other in ((13, False, "prune"), (12, True, "prune"), (12, False, ""), (12, False, "prune", "2")):
            assert moved(*other) == handlers.MOVED
        assert moved(12, False, "prune") == ""
        handlers.on_clear(tab)
        assert moved(13, False, "prune") == handlers.gr.skip()  # the image is another, which is said already

    @pytest.mark.slow
    def test_the_side_that_streams_is_named(self, models: Models, image: str) -> None:
        work = asking.ask(models, Tab(), AskForm(image, "What is it?", 12, mode="prune"))
        sides = [update.status.split(":")[0] for update in work if ":" in update.status]
        assert list(dict.fromkeys(sides)) == ["From 12 tokens", "From all tokens"]

    @pytest.mark.slow
    def test_what_is_known_to_be_true(self, models: Models, image: str) -> None:
        tab = Tab()
        chosen = [samples.AppSample(image, "Why?", true_answers=("42",))]
        handlers.on_pick(chosen[0], tab)
        view = last(handlers.on_ask(models, tab, image, "Why?", 12, False, "prune", False))[1]
        assert (view["true_answers"], view["is_true"]) == (["42"], False)
        handlers.on_upload(tab, image)
        update = last(handlers.on_ask(models, tab, image, "Why?", 12, False, "prune", False))
        assert update[1]["is_true"] is None

    @pytest.mark.slow
    def test_a_sample_with_a_trace_needs_no_model(self, models: Models, image: str) -> None:
        made, tab = Tab(), Tab()
        ask(models, made, image)
        chosen = [samples.AppSample(image, "What is it?", made.trace), samples.AppSample(image, "Why?")]
        update = handlers.on_pick(chosen[0], tab)
        assert update[1]["answer"] == made.view["answer"]
        assert handlers.on_settings(tab, asking.TOKENS, False, "") == ""
        assert handlers.on_settings(tab, 16, False, "") == handlers.MOVED
        update = handlers.on_pick(chosen[1], tab)
        assert (update[1], update[2]) == (handlers.gr.skip(), "")  # the same picture

    def test_buttons(self, models: Models, image: str) -> None:
        tab = Tab(stopping=True)
        _, *updates, problem = handlers.begin(4, tab, problems=1)
        assert problem == ""
        assert [update["interactive"] for update in updates] == [False, True, True, False]
        assert not tab.stopping
        handlers.on_stop(tab)
        assert tab.stopping
        said, *failed = handlers.fail(4, tab)
        assert said == handlers.FAILED
        updates = handlers.finish(4, tab)[:4]
        assert failed[:4] == updates
        assert [update["interactive"] for update in updates] == [True, False, False, True]

    @pytest.mark.slow
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
        tab.open(samples.bundled_sample().trace)
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

    def test_samples_are_served_wherever_the_app_is_started(self) -> None:
        allowed = screen.launch_options()["allowed_paths"]
        pictures = [Path(str(sample.image)) for sample in samples.samples()]
        assert len(pictures) > 1
        assert all(any(picture.is_relative_to(path) for path in allowed) for picture in pictures)

    def test_nothing_is_fetched_from_elsewhere(self) -> None:
        settings = screen.launch_options()
        assert settings["theme"]._stylesheets == []
        assert "http" not in OWN_ORIGIN
        assert "//fonts" not in settings["head"]


class TestServing:
    @pytest.mark.slow
    def test_few_uploads_are_decoded_at_once(self, models: Models) -> None:
        limits = {
            event.concurrency_id: event.concurrency_limit
            for event in app.build_app(models).fns.values()
            if event.queue and any(isinstance(part, Upload | UploadClip) for part in event.inputs)
        }
        assert None not in limits.values()
        assert sum(limits.values()) <= 4

    def test_policy(self) -> None:
        sent: list[Any] = []

        async def inner(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "headers": [(b"a", b"b")]})
            await send({"type": "http.response.body"})

        async def send(message: Any) -> None:
            sent.append(message)

        asked = {"type": "http", "headers": [(b"host", b"localhost:7860")]}
        asyncio.run(OwnOriginOnly(inner)(asked, None, send))
        assert dict(sent[0]["headers"])[b"content-security-policy"] == OWN_ORIGIN.encode()
        assert sent[1] == {"type": "http.response.body"}

    def test_without_gradio(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(app, "find_spec", lambda name: None)
        with pytest.raises(ValueError, match=r"pip install 'gradio>=6.27,<7'"):
            app.build_app()
        assert main(["app"]) == 2
        err = capsys.readouterr().err
        assert err == "arr-coc: the app needs Gradio, which is not installed: pip install 'gradio>=6.27,<7'\n"

    def test_a_bad_trace_is_refused_before_anything_is_loaded(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["app", str(tmp_path / "none.safetensors")]) == 2
        assert "is not a saved trace" in capsys.readouterr().err
