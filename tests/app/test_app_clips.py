"""Clips in the app, without a browser: limits, refusals, answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")
pytest.importorskip("av", reason="clips are an extra: pip install 'arr-coc[video]'")

import gradio as gr

from arr_coc import app
from arr_coc.app import api, asking, clips, handlers, samples
from arr_coc.app.asking import AskForm
from arr_coc.app.models import Models
from arr_coc.app.state import Tab
from arr_coc.model import ARRCOCModel
from arr_coc.trace.trace import Trace
from arr_coc.video import open_clip, write_clip
from clip_models import clip_model, clip_strip, clip_trace, drawn_clip, frame
from tiny import picture, tiny

QUESTION = "When is the disc red?"


pytestmark = pytest.mark.usefixtures("files_of_its_own")


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return clip_model()


@pytest.fixture
def video(tmp_path: Path) -> str:
    """Four seconds, 2 frames of a second."""
    path = tmp_path / "disc.mp4"
    write_clip([frame(i) for i in range(8)], path, 2.0)
    return str(path)


def last(work: Iterator[Any]) -> Any:
    return list(work)[-1]


class TestUpload:
    def test_a_clip_takes_the_images_place(self, video: str) -> None:
        tab = Tab(form_image="old.png", view={"kept": 1})
        skip, frames, image, status, stale, problem = handlers.on_clip(tab, video)
        assert (skip, image, problem) == (gr.skip(), None, "")
        assert frames.count("<img") == clips.THUMBNAILS
        assert "64 x 48 px, 8 frames of 4.0 s" in frames
        assert status == "A new clip: ask something about it."
        assert stale == handlers.STALE
        assert (tab.form_image, len(tab.clip)) == (None, 8)
        assert handlers.on_no_clip(tab) == [gr.skip()] * 3
        tab.take("new.png")
        assert handlers.on_no_clip(tab) == [None, "", ""]

    @pytest.mark.slow
    def test_of_a_pdf_the_first_page_is_the_image(self, tmp_path: Path) -> None:
        pytest.importorskip("pypdfium2", reason="PDFs are an extra: pip install 'arr-coc[pdf]'")
        sheets = [picture(number, (100, 50)) for number in range(3)]
        sheets[0].save(tmp_path / "paper.pdf", save_all=True, append_images=sheets[1:])
        (tmp_path / "cut.pdf").write_bytes((tmp_path / "paper.pdf").read_bytes()[:200])
        tab = Tab(form_image="old.png", view={"kept": 1})
        clip, frames, image, status, stale, problem = handlers.on_clip(tab, str(tmp_path / "paper.pdf"))
        assert (clip, frames, image.size, problem) == (None, "", (200, 100), "")
        assert (status, stale) == ("Page 1 of 3: ask something about it.", handlers.STALE)
        assert tab.form_image is image
        self.refused(str(tmp_path / "cut.pdf"), "'cut.pdf' is a PDF that cannot be read")

    def test_taken_out(self, video: str) -> None:
        tab = Tab()
        handlers.on_clip(tab, video)
        assert handlers.on_clip_clear(tab) == ["", "", ""]
        assert tab.clip is None

    def test_refusals_are_one_line_and_leave_the_form(
        self, video: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "<b>.mp4").write_bytes(b"no video")
        (tmp_path / "empty.mp4").write_bytes(b"")
        whole = Path(video).read_bytes()
        (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])
        for name, why in (
            ("<b>.mp4", "is no video that can be read"),
            ("empty.mp4", "is empty"),
            ("cut.mp4", "download it again"),
            ("gone.mp4", "does not exist"),
        ):
            self.refused(str(tmp_path / name), why)
        monkeypatch.setattr(clips, "MAX_SECONDS", 3)
        self.refused(video, "'disc.mp4' is 4 s long, and at most 3 s are taken: cut it")
        monkeypatch.setattr(clips, "MAX_SECONDS", 300)
        monkeypatch.setattr(clips, "MAX_PIXELS", 8 * 64 * 48 - 1)
        self.refused(video, "has 8 frames of 64x48 px, which take too long to read: scale it down or cut it")
        monkeypatch.setattr(clips, "MAX_MB", 0)
        self.refused(video, "at most 0 are taken: cut it")

    @staticmethod
    def refused(path: str, why: str) -> None:
        tab = Tab(form_image="old.png")
        clip, frames, *unchanged, problem = handlers.on_clip(tab, path)
        assert (clip, frames, unchanged) == (None, "", [gr.skip()] * 3)
        assert why in problem
        assert "\n" not in problem
        assert str(Path(path).parent) not in problem
        assert (tab.form_image, tab.clip) == ("old.png", None)

    def test_large_and_long_ones_are_read_as_few_small_frames(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(clips, "MAX_FRAMES", 5)
        monkeypatch.setattr(clips, "LONGEST", 32)
        write_clip([frame(i % 6) for i in range(40)], tmp_path / "a.mp4", 4.0)
        clip = clips.open_upload(str(tmp_path / "a.mp4"))
        assert (len(clip), clip.size) == (5, (32, 24))
        assert {image.size for image in clip} == {(32, 24)}

    @pytest.mark.slow
    def test_without_the_extra_a_dropped_clip_says_how_to_get_it(
        self, video: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "av", None)
        assert "pip install" in handlers.on_clip(Tab(), video)[-1]


class TestAnswer:
    @pytest.mark.slow
    def test_the_view_is_of_the_clip(self, models: Models, video: str) -> None:
        tab = Tab()
        handlers.on_clip(tab, video)
        form = (None, QUESTION, 48, False, "prune", True)
        *lines, update = handlers.on_ask(models, tab, *form)
        assert any(str(line[0]).startswith("From 48 tokens: ") for line in lines)
        view = update[1]
        assert (view["format"], view["kept"], view["total"]) == ("arr-coc view 2", 48, 192)
        assert view["strips"][0]["grid"] == [4, 6, 8]
        session = tab.sessions[0]
        last(handlers.on_ask(models, tab, None, "What moves?", *form[2:-1], False))
        assert tab.sessions[0] is session
        assert [entry["question"] for entry in tab.history] == [QUESTION, "What moves?"]
        assert tab.megapixels == pytest.approx(0.25)
        image = picture(1, (64, 48))
        handlers.on_pick(samples.AppSample(image, "Why?"), tab)
        update = last(handlers.on_ask(models, tab, image, "Why?", *form[2:]))
        assert (tab.clip, update[1]["strips"][0]["grid"]) == (None, [1, 6, 8])

    @pytest.mark.slow
    def test_what_is_of_images_is_refused_in_a_line(self, models: Models, video: str) -> None:
        tab = Tab()
        handlers.on_clip(tab, video)
        last(handlers.on_ask(models, tab, None, QUESTION, 48, False, "prune", False))
        for work in (
            asking.swap(models, tab, "Why?"),
            asking.against(models, tab),
            asking.measure(models, tab, "sweep"),
        ):
            with pytest.raises(ValueError, match="the one here is about a clip"):
                list(work)

    def test_a_model_that_takes_no_clips(self, video: str) -> None:
        made = tiny("llava")
        models, tab = Models(ARRCOCModel.wrap(made.model, made.processor)), Tab()
        handlers.on_clip(tab, video)
        update = last(handlers.on_ask(models, tab, None, QUESTION, 48, False, "prune", False))
        models.close()
        problems = dict(zip(handlers.FIELDS, update[3:], strict=True))
        assert "takes no clips" in problems.pop("clip")
        assert set(problems.values()) == {""}

    @pytest.mark.slow
    def test_a_path_of_a_video_has_the_same_limits(
        self, models: Models, video: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert api.answer(models, video, QUESTION, "8", "prune")["kept"] == 8
        monkeypatch.setattr(clips, "MAX_SECONDS", 3)
        with pytest.raises(gr.Error, match=r"'disc\.mp4' is 4 s long"):
            api.answer(models, video, QUESTION, "8", "prune")
        with pytest.raises(ValueError, match="4 s long"):
            list(asking.ask(models, Tab(), AskForm(video, QUESTION)))


class TestTraces:
    def test_export_and_open(self, models: Models, tmp_path: Path) -> None:
        tab = Tab()
        tab.show(clip_trace())
        page, saved = map(Path, tab.export())
        assert "arr-coc view 2" in page.read_text(encoding="utf-8")
        assert Trace.load(saved).answer == "at the start"
        other = Tab(form_image="old.png")
        status, view, *_, image, question, problem = handlers.on_open(other, str(saved))[:-4]
        assert (status, image, question, problem) == ("Opened.", None, "When is the disc red?", "")
        assert view["strips"][0]["cuts"] == [0, 3]
        update = handlers.on_pick(samples.samples([saved])[0], Tab())
        assert update[-5:-3] == [None, "When is the disc red?"]
        assert update[1]["format"] == "arr-coc view 2"
        assert json.dumps(tab.history)

    @pytest.mark.slow
    def test_the_app_opens_with_one(self) -> None:
        blocks = app.build_app(model_name="nowhere", traces=[clip_trace(clip_strip())])
        parts = {part["props"].get("elem_id"): part["props"] for part in blocks.config["components"]}
        blocks.models.close()
        assert parts["image"].get("value") is None
        assert "arr-coc view 2" in parts["canvas"]["value"]


def test_a_preview_of_one_frame() -> None:
    assert clips.preview(open_clip([frame(0)], fps=2.0)).count("<img") == 1
    assert clips.megapixels(drawn_clip(4)) == pytest.approx(4 * 64 * 48 / 1e6)
    assert clips.megapixels(frame(0)) == pytest.approx(64 * 48 / 1e6)
