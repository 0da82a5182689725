"""Sessions and the command line about clips, with the bundled model."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont
from transformers.utils import logging

from arr_coc import ARRCOCModel
from arr_coc.modes import MODES
from arr_coc.trace.trace import Trace
from arr_coc.video import FrameSource, open_clip, write_clip
from command_line import run, run_json


def frames(count: int = 8, blink: tuple[int, int] = (4, 6)) -> list[Image.Image]:
    """A white picture with words, in which a red disc appears and goes."""
    made = []
    for i in range(count):
        image = Image.new("RGB", (256, 192), "white")
        draw = ImageDraw.Draw(image)
        draw.text((20, 20), "Berlin station", fill="black", font=ImageFont.load_default(20))
        if blink[0] <= i < blink[1]:
            draw.ellipse((140, 100, 200, 160), fill=(220, 40, 40))
        made.append(image)
    return made


@pytest.fixture(scope="module")
def model() -> ARRCOCModel:
    return ARRCOCModel.from_pretrained(strict=True)


@pytest.fixture(scope="module")
def clip() -> FrameSource:
    return open_clip(frames(), fps=2.0)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("av")
    path = tmp_path_factory.mktemp("clips") / "station.mp4"
    write_clip(frames(), path, 2.0)
    return path


class TestSessions:
    @pytest.mark.parametrize("mode", MODES)
    def test_every_mode_answers(self, model: ARRCOCModel, clip: FrameSource, mode: str) -> None:
        answer = model.ask(clip, "What colour is the circle?", budget=0.25, mode=mode, max_new_tokens=3)
        assert answer.grid[0] == 4
        assert answer.text
        assert not answer.fallback
        assert answer.show().width > 300

    @pytest.mark.slow
    def test_more_frames_of_fewer_cells_each_are_noted(self, model: ARRCOCModel) -> None:
        many, few = (
            open_clip([im.resize((448, 448)) for im in frames(count)], fps=fps, rate=fps)
            for count, fps in ((64, 8.0), (16, 2.0))
        )
        options = {"budget": 16, "max_new_tokens": 1}
        dense, plain = (model.ask(one, "Which station?", **options) for one in (many, few))
        cells = [answer.grid[1] * answer.grid[2] for answer in (dense, plain)]
        assert cells[0] < cells[1]
        assert f"each of the 32 steps has {cells[0]} cells, at 2 it has {cells[1]}" in str(dense.note)
        assert "frames per second" not in str(plain.note)

    def test_a_session_processes_the_clip_once(self, model: ARRCOCModel, clip: FrameSource) -> None:
        session = model.session(clip)
        first = session.ask("What colour is the circle?", budget=0.1)
        again = session.ask("What colour is the circle?", budget=0.1)
        assert first.text == again.text
        assert session.ask("What is the title?", budget=0.1).allocation.keep.tolist()
        assert "8 frames" in repr(session)
        assert "<img" in session._repr_html_()

    def test_an_image_beside_a_clip(self, model: ARRCOCModel, clip: FrameSource) -> None:
        answer = model.ask([frames()[4], clip], "What colour is the circle?", budget=16)
        assert [allocation.grid[0] for allocation in answer.allocations] == [1, 4]
        assert [allocation.kept for allocation in answer.allocations] == [16, 16]

    def test_fps_is_of_paths_of_videos(self, model: ARRCOCModel, clip: FrameSource, file: Path) -> None:
        assert len(model.session(file, fps=1.0).images[0]) == 4
        assert model.look(file, "Which station?", budget=0.5, fps=1.0).grid[0] == 2
        for other in (clip, frames()[0]):
            with pytest.raises(ValueError, match="is of paths of videos"):
                model.session(other, fps=1.0)

    def test_the_bundled_processor_warns_of_nothing(
        self, model: ARRCOCModel, clip: FrameSource, caplog: pytest.LogCaptureFixture
    ) -> None:
        """transformers asks to be told whether to cap the pixels of frames; it says so once a process."""
        reader = model.processor.video_processor
        assert reader.cap_pixels_per_frame is False
        logging.get_logger("transformers").addHandler(caplog.handler)
        logging.warning_once.cache_clear()
        verbosity = logging.get_verbosity()  # which the command line lowers
        logging.set_verbosity_warning()
        try:
            model.session(clip)
            assert "cap_pixels_per_frame" not in caplog.text
            reader.cap_pixels_per_frame = None
            logging.warning_once.cache_clear()
            model.session(clip)
            assert "cap_pixels_per_frame" in caplog.text
        finally:
            reader.cap_pixels_per_frame = False
            logging.set_verbosity(verbosity)
            logging.get_logger("transformers").removeHandler(caplog.handler)

    def test_all_of_a_clip_can_be_kept_for_later_questions(
        self, model: ARRCOCModel, clip: FrameSource
    ) -> None:
        session = model.session(clip, keep_image_after=0)
        kept = session.ask("What colour is the circle?")
        assert kept.mode == "full"
        assert kept.text == model.ask(clip, "What colour is the circle?", mode="full").text


class TestCommandLine:
    def test_ask(self, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        strip = tmp_path / "strip.png"
        words = ("ask", str(file), "What colour is the circle?", "--budget", "0.25", "--out", str(strip))
        code, out, _ = run(capsys, *words)
        assert code == 0
        assert "of 4 steps" in out
        assert Image.open(strip).width > 900

    def test_a_trace_becomes_a_page(
        self, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        saved, page = tmp_path / "a.safetensors", tmp_path / "a.html"
        words = ("ask", str(file), "What colour is the circle?", "--budget", "0.25", "--trace", str(saved))
        said = run_json(capsys, *words)
        trace = Trace.load(saved)
        assert (trace.answer, trace.kept) == (said["answer"], said["kept"])
        assert trace.strips[0].spans == ((0.0, 0.5), (1.0, 1.5), (2.0, 2.5), (3.0, 3.5))
        assert run_json(capsys, "view", str(saved), "--out", str(page))["traces"] == 1
        assert "arr-coc view 2" in page.read_text(encoding="utf-8")

    def test_look(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        record = run_json(capsys, "look", str(file), "Which station is it?", "--budget", "0.25")
        assert record["grid"] == [4, 6, 8]

    @pytest.mark.parametrize("command", ["ask", "look"])
    def test_fps(self, file: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        words = (command, str(file), "Which station is it?", "--budget", "0.5", "--fps", "1")
        assert run_json(capsys, *words)["grid"][0] == 2

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            (["FILE", "--fps", "0"], "fps 0.0 is out of range"),
            (["FILE", "--fps", "nan"], "fps nan is out of range"),
            (["page.png", "--fps", "2"], "--fps is of videos"),
            ([".", "--fps", "2"], "--fps is"),
        ],
    )
    def test_fps_of_what_has_none(
        self, file: Path, words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        name, *rest = [str(file) if word == "FILE" else word for word in words]
        code, _, err = run(capsys, "look", name, "Which station?", *rest)
        assert code == 2
        assert reason in err
        assert err.count("\n") == 1

    @pytest.mark.parametrize("option", [["--evidence", "1,2,30,40"], ["--page", "2"]])
    def test_what_is_of_images_is_refused(
        self, file: Path, option: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, _, err = run(capsys, "look", str(file), "Which station?", *option)
        assert code == 2
        assert option[0] in err

    def test_a_clip_that_is_none(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "none.mp4"
        path.write_bytes(b"no video")
        code, _, err = run(capsys, "look", str(path), "What?")
        assert code == 2
        assert err.count("\n") == 1
