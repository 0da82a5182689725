"""Screenshots of one session: what counts as a change, what is said of it, and that it is true."""

from __future__ import annotations

import io
import random
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from arr_coc.pixels.frames import (
    MAX_AGE,
    MAX_FRAME_PIXELS,
    MAX_PARTS,
    MAX_UNCHANGED,
    UNCHANGED,
    FrameHistory,
    ShownFrame,
    differing,
    next_file,
    next_frame,
    open_frame,
    touching_blocks,
)
from arr_coc.pixels.rules import find_rule
from each import each

RULE = find_rule("claude")
SIZE = (1280, 860)
PLACES = re.compile(r"x (\d+) to (\d+), y (\d+) to (\d+)")


def page(seed: int, scroll: int = 0, size: tuple[int, int] = SIZE) -> Image.Image:
    """A header, a bar at the side, and lines of marks for print between them, which can be scrolled."""
    rng = np.random.default_rng(seed)
    tall = np.full((3 * size[1], size[0], 3), 255, np.uint8)
    for y in range(20, len(tall) - 30, 34):
        width = int(rng.integers(200, size[0] - 300))
        marks = rng.integers(0, 2, (14, width // 2)).astype(np.uint8).repeat(2, 1) * 200
        tall[y : y + 14, 240 : 240 + marks.shape[1]] = 255 - marks[..., None]
    shown = tall[scroll : scroll + size[1]].copy()
    shown[:56] = (30, 90, 180)
    shown[56:, :210] = 244
    return Image.fromarray(shown)


def with_box(image: Image.Image, box: tuple[int, int, int, int], colour: Any = "red") -> Image.Image:
    """A copy with a filled rectangle, its end excluded."""
    made = image.copy()
    ImageDraw.Draw(made).rectangle((box[0], box[1], box[2] - 1, box[3] - 1), fill=colour)
    return made


def with_dialog(image: Image.Image, seed: int = 0) -> Image.Image:
    """A copy behind a black veil, with a dialog on it."""
    made = Image.blend(image, Image.new("RGB", image.size), 0.5)
    made.paste(page(seed).crop((240, 60, 560, 180)), (image.width // 3, image.height // 3))
    return made


def decided(
    images: list[Image.Image], way: str = "parts", history: FrameHistory | None = None
) -> tuple[list[ShownFrame], list[FrameHistory]]:
    """What is sent of screenshots one after another, and the histories with them."""
    shown, histories = [], []
    for image in images:
        one, history = next_frame(history, open_frame(image), way, RULE.tokens)
        shown.append(one)
        histories.append(history)
    return shown, histories


def kinds(images: list[Image.Image], way: str = "parts") -> list[str]:
    return [one.kind for one in decided(images, way)[0]]


FIRST = page(1)


class TestWhatCounts:
    @each("way", ["unchanged", "parts"])
    def test_equal_ones_are_a_sentence(self, way: str) -> None:
        shown, _ = decided([FIRST, FIRST.copy()], way)
        assert shown[0] == ShownFrame("whole", "first")
        assert [part.caption for part in shown[1].parts] == [UNCHANGED]
        assert shown[1].kind == "unchanged"

    @each(
        "box,colour",
        [
            ((300, 400, 302, 418), "black"),  # a cursor that appears
            ((300, 400, 301, 424), "black"),
            ((300, 400, 800, 700), (253, 254, 255)),  # within the tolerance
        ],
    )
    def test_no_change(self, box: tuple[int, int, int, int], colour: Any) -> None:
        blank = with_box(FIRST, (240, 380, 900, 720), "white")
        shown = decided([blank, with_box(blank, box, colour), blank], "unchanged")[0]
        assert [one.kind for one in shown] == ["whole", "unchanged", "unchanged"]
        assert shown[1].parts[0].caption.startswith(UNCHANGED)
        assert shown[2].parts[0].caption == UNCHANGED

    @each(
        "box,colour",
        [
            ((300, 400, 313, 413), "black"),  # a box that is checked
            ((300, 400, 380, 432), (245, 245, 245)),  # hover
            ((300, 400, 380, 402), "blue"),  # a focus line
            ((300, 400, 302, 404), "black"),  # a dot
            ((300, 400, 306, 424), "black"),  # too thick for a cursor
            ((0, 0, 1, 1), "black"),
            ((1279, 859, 1280, 860), "black"),
        ],
    )
    def test_a_change(self, box: tuple[int, int, int, int], colour: Any) -> None:
        blank = with_box(FIRST, (240, 380, 900, 720), "white")
        changed = with_box(blank, box, colour)
        assert kinds([blank, changed], "unchanged") == ["whole", "whole"]
        shown = decided([blank, changed])[0][1]
        assert shown.kind == "parts"
        ((_, place),) = shown.parts
        assert place is not None
        assert (np.minimum(place[:2], box[:2]) == place[:2]).all()
        assert (np.maximum(place[2:], box[2:]) == place[2:]).all()

    def test_a_cursor_in_another_field_is_a_change(self) -> None:
        blank = with_box(FIRST, (240, 380, 900, 720), "white")
        one, other = (with_box(blank, (300, y, 302, y + 18), "black") for y in (400, 600))
        assert kinds([one, other], "unchanged") == ["whole", "whole"]

    def test_a_clock_and_a_spinner_are_known_after_three_changes(self) -> None:
        images = []
        for number in range(6):
            image = with_box(FIRST, (1200, 16, 1216 + 5 * number, 30), "white")
            images.append(with_box(image, (1100 + 6 * number, 16, 1110 + 6 * number, 30), "yellow"))
        shown = decided(images, "unchanged")[0]
        assert [one.kind for one in shown] == ["whole"] * 3 + ["unchanged"] * 3
        ((caption, _),) = shown[3].parts
        assert caption.startswith(UNCHANGED + " Not counted is what changes by itself")
        for x in (1118, 1228):
            assert any(int(x0) <= x < int(x1) for x0, x1, _, _ in PLACES.findall(caption))

    def test_a_number_that_grows_with_other_things_counts(self) -> None:
        images = []
        for number in range(8):
            image = with_box(FIRST, (1200, 16, 1204 + 6 * number, 30), "white")
            images.append(with_box(image, (300 + 100 * number, 500, 360 + 100 * number, 560)))
        shown, histories = decided(images)
        assert [one.kind for one in shown] == ["whole"] + ["parts"] * 7
        for image, history in zip(images, histories, strict=True):
            assert not differing(history.canvas, open_frame(image).pixels).any()

    def test_what_goes_to_and_fro_counts(self) -> None:
        on = with_box(FIRST, (300, 300, 313, 313), "black")
        assert kinds([FIRST, on] * 4, "unchanged") == ["whole"] * 8

    def test_another_size_is_a_new_screen(self) -> None:
        shown = decided([FIRST, FIRST.crop((0, 0, 1280, 720)), FIRST])[0]
        assert [(one.kind, one.why) for one in shown] == [
            ("whole", "first"), ("whole", "size"), ("whole", "size"),
        ]  # fmt: skip

    def test_pixels_come_again(self) -> None:
        """After some sentences in a row, and of parts after some screenshots."""
        once = ["whole"] + ["unchanged"] * MAX_UNCHANGED
        assert kinds([FIRST] * (2 * MAX_UNCHANGED + 4)) == [*once, *once, *once[:2]]
        images = [with_box(FIRST, (300 + 20 * n, 300, 310 + 20 * n, 310)) for n in range(MAX_AGE + 2)]
        shown = decided(images)[0]
        assert [one.kind for one in shown] == ["whole"] + ["parts"] * MAX_AGE + ["whole"]
        assert shown[-1].why == "age"


class TestWhatIsSaid:
    @each("shift", [40, 137, 400, -40, -300])
    def test_scrolling(self, shift: int) -> None:
        before, after = page(2, 400), page(2, 400 + shift)
        shown, histories = decided([before, after])
        assert (shown[1].kind, shown[1].why) == ("parts", "scroll")
        caption = shown[1].parts[0].caption
        x0, x1, y0, y1 = map(int, PLACES.findall(caption)[0])
        assert f"was {abs(shift)} px further {'down' if shift > 0 else 'up'} before" in caption
        moved = np.asarray(before)[y0 + shift : y1 + shift, x0:x1]
        same = (moved == np.asarray(after)[y0:y1, x0:x1]).all(2)
        assert same.mean() > 0.95
        area = sum((b[2] - b[0]) * (b[3] - b[1]) for _, b in shown[1].parts if b)
        assert area < (abs(shift) + 120) * 1280
        assert not differing(histories[1].canvas, open_frame(after).pixels).any()

    @each("gain", [0.3, 0.5, 0.8])
    def test_a_dialog_that_darkens_all(self, gain: float) -> None:
        dark = Image.blend(FIRST, Image.new("RGB", SIZE, (10, 0, 0)), 1 - gain)
        box = (430, 300, 850, 540)
        opened = with_box(with_box(dark, box, "white"), (460, 330, 700, 350), "black")
        shown, histories = decided([FIRST, opened, opened, FIRST, with_box(FIRST, (300, 300, 330, 330))])
        assert [(one.kind, one.why) for one in shown[1:]] == [
            ("parts", "opened"), ("unchanged", ""), ("parts", "closed"), ("parts", ""),
        ]  # fmt: skip
        ((_, place),) = shown[1].parts
        assert place is not None
        assert place[0] in range(400, 431)
        assert place[3] in range(540, 571)
        assert shown[3].parts[0].box is None  # nothing has to be seen again
        assert not differing(histories[1].canvas, open_frame(opened).pixels).any()

    def test_another_page_goes_whole(self) -> None:
        shown = decided([FIRST, page(9)])[0]
        assert shown[1] == ShownFrame("whole", "much")

    def test_parts_are_few_and_say_where_they_are(self) -> None:
        rng = random.Random(3)
        image = FIRST
        for _ in range(200):
            x, y = rng.randrange(0, 300), rng.randrange(60, 300)
            image = with_box(image, (x, y, x + 3, y + 3))
        far = with_box(image, (1200, 800, 1240, 840))
        shown = decided([FIRST, far])[0][1]
        assert shown.kind == "parts"
        assert 2 <= len(shown.parts) <= MAX_PARTS
        for caption, box in shown.parts:
            assert box is not None
            assert f"x {box[0]} to {box[2]}, y {box[1]} to {box[3]} of the screen of 1280 x 860" in caption
            assert f"add {box[0]} to x and {box[1]} to y" in caption


LITTLE = (640, 430)


def happening(rng: random.Random, image: Image.Image, before: list[Image.Image]) -> Image.Image:
    """The next screenshot of a session of a little screen."""
    kind = rng.randrange(9)
    x, y = rng.randrange(0, 600), rng.randrange(0, 400)
    if kind == 0:
        return image
    if kind == 1:
        return page(rng.randrange(2), rng.choice((0, 60, 133)), LITTLE)
    if kind == 2:
        return with_dialog(image, rng.randrange(3))
    if kind == 3:
        return rng.choice(before)
    if kind == 4:
        return with_box(image, (x, y, x + 2, y + 18), "black")
    if kind == 5:
        return with_box(image, (560, 16, 560 + rng.randrange(1, 60), 30), "white")
    if kind == 6:
        noise = np.random.default_rng(rng.randrange(99)).integers(0, 256, (60, 80, 3)).astype(np.uint8)
        made = image.copy()
        made.paste(Image.fromarray(noise), (x, y))
        return made
    x1, y1 = x + rng.randrange(1, 200), y + rng.randrange(1, 100)
    return with_box(image, (x, y, x1, y1), rng.choice(("red", "teal")))


@each("seed", range(6))
def test_what_was_shown_is_the_screen(seed: int) -> None:
    """But for what is named as moving by itself. Parts cost less than the whole; nothing else counts."""
    rng = random.Random(seed)
    images = [page(0, 0, LITTLE)]
    for _ in range(24):
        images.append(happening(rng, images[-1], images))
    shown, histories = decided(images)
    for image, one, history in zip(images, shown, histories, strict=True):
        wrong = differing(history.canvas, open_frame(image).pixels)
        for caption, _ in one.parts:
            told = caption.partition("Not counted")[2].partition("This is")[0]
            for x0, x1, y0, y1 in PLACES.findall(told):
                wrong[int(y0) : int(y1), int(x0) : int(x1)] = False
        assert not wrong.any()
        boxes = [box for _, box in one.parts if box is not None]
        assert sum(RULE.tokens(b[2] - b[0], b[3] - b[1]) for b in boxes) <= 0.6 * RULE.tokens(*LITTLE)
        assert all(0 <= b[0] < b[2] <= LITTLE[0] and 0 <= b[1] < b[3] <= LITTLE[1] for b in boxes)
    assert len({one.kind for one in shown}) == 3
    for cut in (1, 13):
        assert decided(images[cut:], history=histories[cut - 1])[0] == shown[cut:]


def test_touching_are_what_touches() -> None:
    blocks = np.zeros((12, 10), bool)
    for place in ((0, 0), (1, 1), (2, 0), (2, 2), (5, 5), (5, 6), (6, 7), (9, 0), (9, 9), (10, 9)):
        blocks[place] = True
    boxes = [(0, 0, 24, 24), (40, 40, 64, 56), (0, 72, 8, 80), (72, 72, 80, 88)]
    assert touching_blocks(blocks) == boxes


class TestFiles:
    def png(self, image: Image.Image, kind: str = "PNG") -> bytes:
        file = io.BytesIO()
        image.save(file, kind)
        return file.getvalue()

    def test_parts_are_pixels_of_the_screen(self) -> None:
        changed = with_box(FIRST, (500, 500, 600, 540))
        sent, history = next_file(None, self.png(FIRST), "parts", RULE)
        assert (sent.size, sent.frame.kind, sent.files) == (SIZE, "whole", ())
        sent, history = next_file(history, self.png(changed), "parts", RULE)
        ((_, box),) = sent.frame.parts
        part = Image.open(io.BytesIO(sent.files[0]))
        assert (np.asarray(part) == np.asarray(changed.crop(box))).all()
        sent, _ = next_file(history, self.png(changed), "parts", RULE)
        assert (sent.frame.kind, sent.files) == ("unchanged", (b"",))

    def test_a_model_that_reads_less_gets_no_parts(self) -> None:
        """Its clicks are in other px than the screen's; so are those of one whose server scales it down."""
        large = Image.new("RGB", (2560, 1720), "white")
        changed = with_box(large, (900, 900, 990, 960))
        for rule, kind in (("claude-4.6", "whole"), ("32", "parts")):
            _, history = next_file(None, self.png(large), "parts", find_rule(rule))
            assert next_file(history, self.png(changed), "parts", find_rule(rule))[0].frame.kind == kind
        for side, kind in ((2000, "whole"), (2560, "parts")):
            _, history = next_file(None, self.png(large), "parts", find_rule("32"), side)
            assert next_file(history, self.png(changed), "parts", find_rule("32"), side)[0].frame.kind == kind

    def test_photographs_of_a_screen(self) -> None:
        first, changed = self.png(FIRST, "JPEG"), self.png(with_box(FIRST, (500, 500, 600, 540)), "JPEG")
        _, history = next_file(None, first, "parts", RULE)
        assert next_file(history, first, "parts", RULE)[0].frame.kind == "unchanged"
        sent, _ = next_file(history, changed, "parts", RULE)
        ((_, box),) = sent.frame.parts
        assert box is not None
        assert (box[2] - box[0]) * (box[3] - box[1]) < 200 * 140

    def test_others_are_whole(self) -> None:
        _, history = next_file(None, self.png(FIRST), "parts", RULE)
        sent, history = next_file(history, self.png(Image.new("RGB", (2000, 4))), "parts", RULE)
        assert (sent.frame, history) == (ShownFrame("whole", "other"), None)
        file, turned = io.BytesIO(), Image.Exif()
        turned[0x0112] = 3  # by 180 degrees, as some readers do
        FIRST.save(file, "JPEG", exif=turned)
        assert next_file(None, file.getvalue(), "parts", RULE) == (sent._replace(size=SIZE), None)
        with pytest.raises(ValueError, match="pixels"):
            next_file(None, self.png(Image.new("L", (MAX_FRAME_PIXELS // 1000 + 1, 1000))), "parts", RULE)
        for content in (b"", b"no picture", self.png(FIRST)[:900]):
            with pytest.raises(ValueError, match=r"image|damaged|empty"):
                next_file(None, content, "parts", RULE)
