"""Drawn clips: deterministic, true to what is drawn, honest about their evidence."""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np
import pytest
from PIL import Image

from arr_coc_lab.world.clips import STORIES, Clip, ClipQuestion, Evidence, Span, draw_clip
from arr_coc_lab.world.clips.stage import MIN_TEXT
from arr_coc_lab.world.clips.vocabulary import (
    CAPTION_WHO,
    HELD_OUT_COLOURS,
    HELD_OUT_FIRST,
    HELD_OUT_SECOND,
    HELD_OUT_WHO,
    SLIDE_FIRST,
    SLIDE_SECOND,
    TRAIN_COLOURS,
)
from each import each

SIZE = (320, 256)
COLOURS = TRAIN_COLOURS | HELD_OUT_COLOURS
EFFECTS = {"noise", "flicker"}


@lru_cache(maxsize=256)
def clip(seed: int, *stories: str, split: str = "train", seconds: float = 8.0, fps: float = 4.0) -> Clip:
    return draw_clip(seed, SIZE, seconds, fps, split, stories or None)


@lru_cache(maxsize=1)
def many() -> tuple[Clip, ...]:
    return tuple(clip(seed, split=split) for seed in range(25) for split in ("train", "test"))


def crop(image: Image.Image, evidence: Evidence, frame: int) -> np.ndarray:
    return np.asarray(image.crop(evidence.box(frame)))


def share(pixels: np.ndarray, colour: str) -> float:
    """The share of pixels of a colour."""
    return float((np.abs(pixels.astype(int) - COLOURS[colour]).max(-1) < 6).mean())


def by_family(drawn: Clip, family: str) -> list[ClipQuestion]:
    return [question for question in drawn.questions if question.family == family]


class TestDrawing:
    def test_the_same_seed_the_same_clip(self) -> None:
        for stories in (None, ("noise", "move", "caption"), ("scroll", "clock", "flicker"), ("slides",)):
            a, b, c = (draw_clip(seed, SIZE, stories=stories) for seed in (3, 3, 4))
            assert a.questions == b.questions
            assert a.spans == b.spans
            assert [f.tobytes() for f in a.frames[::11]] == [f.tobytes() for f in b.frames[::11]]
            assert a.frames[9].tobytes() == a.frames[9].tobytes()  # in any order, as often as wanted
            assert a.frames[5].tobytes() != c.frames[5].tobytes()

    def test_frames_and_times(self) -> None:
        drawn = clip(1, seconds=5.0, fps=3.0)
        assert len(drawn.frames) == len(drawn.times) == 15
        assert drawn.times[-1] == pytest.approx(14 / 3)
        assert {(f.mode, f.size) for f in drawn.frames} == {("RGB", SIZE)}
        assert drawn.frames[-1].tobytes() == drawn.frames[14].tobytes()
        with pytest.raises(IndexError):
            drawn.frames[15]

    def test_a_clip_of_one_frame(self) -> None:
        for seed in range(12):
            drawn = clip(seed, seconds=0, fps=2.0)
            assert len(drawn.frames) == 1
            assert all(item.frames == range(1) for q in drawn.questions for item in q.evidence)
        assert any(clip(seed, seconds=0, fps=2.0).questions for seed in range(12))

    @pytest.mark.slow
    def test_every_story_comes_by_itself_and_by_the_seed(self) -> None:
        assert {name for drawn in many() for name in drawn.stories} == set(STORIES)
        for name in STORIES:
            drawn = clip(2, name)
            assert drawn.stories == (name,)
            assert drawn.frames[3].size == SIZE
            assert bool(drawn.questions) == (name not in EFFECTS)

    def test_a_pan_of_thirty_frames(self) -> None:
        drawn = draw_clip(5, (224, 224), seconds=3.75, fps=8, stories=("scroll",))
        frames = [np.asarray(f)[..., 1].astype(np.int16) for f in drawn.frames]
        assert len(frames) == 30
        steps = []
        for a, b in itertools.pairwise(frames):
            errors = [np.abs(a[shift:] - b[: len(b) - shift]).mean() for shift in range(21)]
            steps.append(int(np.argmin(errors)))
            assert min(errors) == 0  # the page is the same, moved
        assert max(steps) - min(steps) <= 1
        assert min(steps) > 0

    def test_hard_cuts_between_slides(self) -> None:
        drawn = clip(1, "slides")
        starts = [span.evidence.first for span in drawn.spans][1:]
        assert starts
        frames = [np.asarray(f).astype(int) for f in drawn.frames]
        changes = [i for i in range(1, len(frames)) if np.abs(frames[i] - frames[i - 1]).max() > 0]
        assert changes == starts

    @each("size", [(2048, 128), (1920, 200), (1024, 160), (128, 2048)])
    def test_slides_of_any_shape(self, size: tuple[int, int]) -> None:
        for seed in range(6):
            drawn = draw_clip(seed, size, 4, 2, "test", ("slides", "caption", "counter"))
            assert drawn.frames[3].size == size
            for item in (item for question in drawn.questions for item in question.evidence):
                x0, y0, x1, y1 = item.box(item.first)
                assert 0 <= x0 < x1 <= size[0]
                assert 0 <= y0 < y1 <= size[1]

    def test_nothing_changes_in_a_static_clip(self) -> None:
        assert len({f.tobytes() for f in clip(4, "static").frames}) == 1

    def test_effects_change_every_frame(self) -> None:
        assert len({f.tobytes() for f in clip(4, "static", "noise").frames}) == 32
        plain, dim = clip(3, "move"), clip(3, "move", "flicker")
        levels = [np.asarray(f).mean() for f in dim.frames]
        assert np.std(levels) > 5 * np.std([np.asarray(f).mean() for f in plain.frames])

    @each(
        ("arguments", "words"),
        [
            ({"size": (64, 448)}, "out of range"),
            ({"fps": 0}, "fps 0"),
            ({"fps": float("nan")}, "fps nan"),
            ({"seconds": -1}, "-1 seconds"),
            ({"seconds": 1e9}, "100,000 frames"),
            ({"split": "dev"}, "split 'dev'"),
            ({"seed": -1}, "seed -1"),
            ({"stories": ("dance",)}, "'dance' is unknown"),
            ({"stories": ()}, "empty"),
            ({"stories": ("static", "move")}, "don't go together"),
            ({"stories": ("clock", "counter")}, "too many"),
            ({"stories": ("blink", "blink")}, "at most 1"),
            ({"stories": ("slides",), "seconds": 0.25}, "takes 4 frames"),
        ],
    )
    def test_refusals(self, arguments: dict, words: str) -> None:
        with pytest.raises(ValueError, match=words) as error:
            draw_clip(**{"seed": 1, **arguments})
        assert "\n" not in str(error.value)


class TestSplits:
    def test_they_share_no_clip(self) -> None:
        frames = {split: {clip(i, split=split).frames[6].tobytes() for i in range(8)}
                  for split in ("train", "validation", "test")}  # fmt: skip
        assert not frames["train"] & frames["test"]
        assert not frames["train"] & frames["validation"]

    @pytest.mark.slow
    def test_words_and_colours_are_held_out(self) -> None:
        assert not set(TRAIN_COLOURS) & set(HELD_OUT_COLOURS)
        assert not set(SLIDE_FIRST + SLIDE_SECOND) & set(HELD_OUT_FIRST + HELD_OUT_SECOND)
        assert not set(CAPTION_WHO) & set(HELD_OUT_WHO)
        for seed in range(8):
            train, test = (clip(seed, "slides", "caption", split=split) for split in ("train", "test"))
            for drawn, new in ((train, False), (test, True)):
                captions = [span.name for span in drawn.spans if span.kind == "caption"]
                assert all((c.startswith(HELD_OUT_WHO)) == new for c in captions)
                slides = [span.name for span in drawn.spans if span.kind == "slide"]
                assert all(any(word in s for word in HELD_OUT_FIRST) == new for s in slides)
        colours = {split: {span.colour for i in range(40) for span in clip(i, "appear", split=split).spans}
                   for split in ("train", "test")}  # fmt: skip
        assert not colours["train"] & set(HELD_OUT_COLOURS)
        assert colours["test"] & set(HELD_OUT_COLOURS)


class TestEvidence:
    def test_every_question_has_evidence_inside_the_frames(self) -> None:
        questions = 0
        for drawn in many():
            texts = [question.text for question in drawn.questions]
            assert len(texts) == len(set(texts))
            for question in drawn.questions:
                questions += 1
                assert question.evidence
                assert question.answer
                for item in question.evidence:
                    assert 0 <= item.first <= item.last < len(drawn.frames)
                    for frame in item.frames:
                        x0, y0, x1, y1 = item.box(frame)
                        assert 0 <= x0 < x1 <= SIZE[0], (question, drawn.stories)
                        assert 0 <= y0 < y1 <= SIZE[1], (question, drawn.stories)
        assert questions > 300

    def test_text_is_large_enough(self) -> None:
        for seed in range(6):
            for stories in (("slides", "caption"), ("counter", "static"), ("clock", "static")):
                drawn = draw_clip(seed, (448, 448), stories=stories)
                for span in drawn.spans:
                    _, y0, _, y1 = span.evidence.box(span.evidence.first)
                    assert y1 - y0 >= 0.65 * MIN_TEXT  # the height of capitals or digits alone

    @pytest.mark.slow
    def test_a_caption_stands_in_its_box_as_long_as_it_says(self) -> None:
        for seed in range(8):
            drawn = clip(seed, "slides", "caption")
            spans = [span for span in drawn.spans if span.kind == "caption"]
            for span in spans:
                crops = {crop(drawn.frames[i], span.evidence, i).tobytes() for i in span.evidence.frames}
                assert len(crops) == 1
                after = span.evidence.last + 1
                if after < len(drawn.frames):
                    image = drawn.frames[after].crop(span.evidence.box(span.evidence.last))
                    assert np.asarray(image).tobytes() not in crops

    def test_a_reading_changes_when_it_says(self) -> None:
        for name in ("counter", "clock"):
            drawn = clip(3, name, "static")
            spans = [span for span in drawn.spans if span.kind == name]
            first, last = spans[0].evidence.frames, spans[-1].evidence.frames
            assert (first[0], last[-1]) == (0, 31)
            frames = [np.asarray(f) for f in drawn.frames]
            changes = [i for i in range(1, 32) if (frames[i] != frames[i - 1]).any()]
            assert changes == [span.evidence.first for span in spans[1:]]

    def test_a_page_that_scrolls_is_the_same_in_its_boxes(self) -> None:
        for split in ("train", "test"):
            for seed in range(4):
                drawn = clip(seed, "scroll", split=split)
                for question in by_family(drawn, "page"):
                    for item in question.evidence:
                        crops = {crop(drawn.frames[i], item, i).tobytes() for i in item.frames}
                        assert len(crops) == 1, question


class TestAnswers:
    """Answers against pixels, on clips of things."""

    def things(self, drawn: Clip) -> list[Span]:
        return [span for span in drawn.spans if span.kind in ("thing", "flash")]

    @each("stories", [("appear",), ("appear", "appear"), ("move", "appear"), ("blink",)])
    def test_things_are_there_when_they_say_and_only_then(self, stories: tuple[str, ...]) -> None:
        for seed in range(6):
            drawn = clip(seed, *stories)
            frames = [np.asarray(f) for f in drawn.frames]
            names = {span.name for span in self.things(drawn)}
            for name in names:
                runs = [span.evidence for span in self.things(drawn) if span.name == name]
                colour = name.split()[0]
                for i, frame in enumerate(frames):
                    item = next((run for run in runs if i in run.frames), None)
                    if item is not None:
                        x0, y0, x1, y1 = item.box(i)
                        assert share(frame[y0:y1, x0:x1], colour) > 0.25
                    else:
                        x0, y0, x1, y1 = runs[0].box(runs[0].first)
                        assert share(frame[y0:y1, x0:x1], colour) < 0.02

    @pytest.mark.slow
    @pytest.mark.parametrize(("seconds", "fps"), [(2.0, 2.0), (4.0, 2.0), (8.0, 1.0), (8.0, 0.5), (8.0, 4.0)])
    def test_flashes_never_touch(self, seconds: float, fps: float) -> None:
        counts = set()
        for seed in range(40):
            drawn = clip(seed, "blink", seconds=seconds, fps=fps)
            runs, colour = [span.evidence for span in drawn.spans], drawn.spans[0].colour
            ink = [share(crop(frame, runs[0], runs[0].first), colour) > 0.25 for frame in drawn.frames]
            starts = [i for i in range(1, len(ink)) if ink[i] and not ink[i - 1]]
            assert starts == [run.first for run in runs]
            assert sum(ink) == len(starts)
            assert not ink[0] | ink[-1]
            (answer,) = {q.answer for q in by_family(drawn, "count") if " flash" in q.text}
            assert answer == str(len(starts))
            counts.add(len(starts))
        assert counts == {1, 2, 3} if seconds * fps >= 8 else {1}

    def test_counts(self) -> None:
        checked = 0
        for seed in range(10):
            drawn = clip(seed, "appear", "move")
            for question in by_family(drawn, "count"):
                checked += 1
                assert len(question.evidence) == int(question.answer)
                for item in question.evidence:
                    frame, colours = item.first, set(COLOURS)
                    pixels = crop(drawn.frames[frame], item, frame)
                    assert max(share(pixels, colour) for colour in colours) > 0.25
        assert checked > 10

    def test_times_and_order(self) -> None:
        for seed in range(10):
            drawn = clip(seed, "appear", "recolour")
            spans = {span.name: span.evidence for span in self.things(drawn)}
            for question in drawn.questions:
                name = next((n for n in spans if n in question.text and " " in n), None)
                if question.family == "when" and name and "appear?" in question.text.split(".")[0]:
                    if "disappear" in question.text:
                        assert float(question.answer) == drawn.times[spans[name].last] + 0.25
                    else:
                        assert float(question.answer) == drawn.times[spans[name].first]
                if question.family == "order":
                    early, late = question.evidence
                    assert early.last < late.first
                    assert spans[question.answer].first == early.first

    def test_colours_of_a_thing_that_changes(self) -> None:
        for seed in range(8):
            drawn = clip(seed, "recolour")
            for question in by_family(drawn, "colour"):
                item = question.evidence[-1]
                for frame in (item.first, item.last):
                    assert share(crop(drawn.frames[frame], item, frame), question.answer) > 0.2
            (count,) = by_family(drawn, "count")[:1] or [None]
            assert count is not None

    def test_directions(self) -> None:
        ways = set()
        for seed in range(16):
            (question,) = by_family(clip(seed, "move"), "direction")
            start, end = question.evidence
            a, b = start.box(start.first), end.box(end.last)
            moved = (b[0] - a[0], b[1] - a[1])
            want = {
                "right": moved[0] > 20,
                "left": moved[0] < -20,
                "down": moved[1] > 20,
                "up": moved[1] < -20,
            }
            assert want[question.answer]
            assert sum(want.values()) == 1
            ways.add(question.answer)
        assert ways == {"left", "right", "up", "down"}

    def test_while_and_when_name_what_overlaps(self) -> None:
        families = set()
        for seed in range(20):
            drawn = clip(seed, "appear", "caption", "counter")
            for question in drawn.questions:
                if question.family == "while" or " as the " in question.text or " when the " in question.text:
                    families.add(question.family)
                    a, b = question.evidence
                    assert a.frames == b.frames
        assert families == {"while", "reading"}
