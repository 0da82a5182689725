"""The selector that goes by the guide: no model anywhere, a page looked at once, an even grid on noise."""

from __future__ import annotations

import io
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from arr_coc import Reason, Selector
from arr_coc.choose.texture import generate_texture_array
from arr_coc.files.images import open_image
from arr_coc.files.saved import BUNDLED
from arr_coc.guide.coupling import GuideSource, couple
from arr_coc.guide.guide import Guide, GuidePage, Search
from arr_coc.guide.head import Judgement
from arr_coc.guide.question import Reading
from arr_coc.relevance.boxes import BoxSource, GivenBox
from arr_coc.selector import MAX_QUESTIONS, _kept_bytes
from each import each

QUESTION = "What is the invoice number?"


@cache
def selector(allocator: str | None = None) -> Selector:
    return Selector.from_pretrained(*([allocator] if allocator else []))


either = pytest.mark.parametrize("allocator", [None, "bundled"], ids=["guide", "stem"])
"""That of the guide, and that of an allocator."""


def sample(size: tuple[int, int]) -> Image.Image:
    with Image.open(BUNDLED / "sample.png") as image:
        return image.convert("RGB").resize(size)


@each("size", [(320, 256), (256, 333), (64, 700)])
@each("grid", [None, (9, 13), (24, 24)])
def test_any_picture_and_grid(size: tuple[int, int], grid: tuple[int, int] | None) -> None:
    image = sample(size)
    for budget in (1, 0.25, "auto"):
        one, again = (selector()(image, QUESTION, budget, grid) for _ in range(2))
        assert one.grid == again.grid == (1, *(grid or (round(size[1] / 32), round(size[0] / 32))))
        assert torch.equal(one.keep, again.keep)
        assert torch.equal(one.balanced, again.balanced)


def test_it_keeps_the_words_that_are_asked_for() -> None:
    allocation = selector()(BUNDLED / "sample.png", QUESTION, 64)
    assert allocation.mask()[0, 7:9, 1:5].float().mean() > 0.7, "Invoice"


def test_auto_spends_little_on_one_circle_of_another_colour() -> None:
    image = Image.new("RGB", (1024, 1024), "white")
    pen = ImageDraw.Draw(image)
    for y in range(34, 1024, 128):
        for x in range(34, 1024, 128):
            pen.ellipse((x, y, x + 60, y + 60), fill="red" if (x, y) == (674, 546) else "blue")
    for question in ("Where is the red circle?", "Find the red circle", "the red circle", "red"):
        allocation = selector()(image, question, "auto")
        assert allocation.kept == 64, question
        assert allocation.mask()[0, 17:19, 21:23].all()


@either
def test_paths_bytes_and_pictures_are_one(allocator: str | None, tmp_path: Path) -> None:
    image, path, file = sample((320, 256)), tmp_path / "page.png", io.BytesIO()
    image.save(path)
    image.save(file, "PNG")
    kept = [selector(allocator)(picture, QUESTION, 16).keep for picture in (image, path, file.getvalue())]
    assert torch.equal(kept[0], kept[1])
    assert torch.equal(kept[0], kept[2])


def test_a_page_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    encode = Guide.encode

    def noted(self: Guide, pictures: torch.Tensor):
        looks.append(1)
        return encode(self, pictures)

    monkeypatch.setattr(Guide, "encode", noted)
    own, image = Selector(), sample((256, 256))
    for question in (QUESTION, "Who?", "What is the total?"):
        own(image, question, 8)
        own(image.copy(), question, 8, (5, 5))
    assert len(looks) == 1
    own(sample((256, 224)), QUESTION, 8)
    assert len(looks) == 2


def test_a_question_is_asked_of_the_guide_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    judge = Guide.weigh

    def noted(self: Guide, page: GuidePage, search: Search, reading: Reading) -> Judgement:
        judged.append(1)
        return judge(self, page, search, reading)

    monkeypatch.setattr(Guide, "weigh", noted)
    own, image = Selector(), sample((256, 256))
    first = own(image, QUESTION, 8)
    once = len(judged)
    assert once > 0
    own.cues(image, QUESTION)
    assert torch.equal(own(image, QUESTION, 8).keep, first.keep)
    assert len(judged) == once
    for number in range(MAX_QUESTIONS):
        own(image, f"Where is line {number}?", 8)
    (record,) = own._records.values()
    assert len(record.couplings) == MAX_QUESTIONS
    assert torch.equal(own(image, QUESTION, 8).keep, first.keep)
    assert len(judged) > once + MAX_QUESTIONS


def test_few_pages_are_kept() -> None:
    own = Selector()
    for shade in range(12):
        own(Image.new("RGB", (64, 64), (shade, 0, 0)), "Who?", 1)
    assert len(own._records) == 8


def test_large_pages_are_kept_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Selector()
    small, large = (Image.new("RGB", (side, side), "red") for side in (256, 512))
    own(small, "Who?", 1)
    (record,) = own._records.values()
    monkeypatch.setattr("arr_coc.selector.MAX_KEPT_BYTES", 4 * _kept_bytes(record))
    for shade in range(6):
        own(Image.new("RGB", (256, 256), (shade, 0, 0)), "Who?", 1)
    assert len(own._records) == 4
    own(large, "Who?", 1)
    assert [record.view.size for record in own._records.values()] == [(512, 512)]
    own(small, "Who?", 1)
    assert [record.view.size for record in own._records.values()] == [(256, 256)]


def test_large_pictures_shrink_before_they_become_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texture and guide take up to 60 bytes a pixel, a picture three."""
    monkeypatch.setattr("arr_coc.guide.coupling.MAX_PIXELS", 128**2)
    sizes: list[tuple[int, ...]] = []

    def texture(image: torch.Tensor, *args: Any, **more: Any) -> torch.Tensor:
        sizes.append(tuple(image.shape[-2:]))
        return generate_texture_array(image, *args, **more)

    monkeypatch.setattr("arr_coc.relevance.deciding.generate_texture_array", texture)
    own = Selector()
    assert own(sample((512, 256)), QUESTION, 4).grid == (1, 8, 16)  # by its own size
    assert sizes == [(91, 181)]
    (record,) = own._records.values()
    assert record.view.size == (91, 181)


def test_another_source_sees_a_large_picture_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arr_coc.guide.coupling.MAX_PIXELS", 128**2)
    half = BoxSource([GivenBox((0, 0, 256, 256), score=0.9)])  # in px of it
    allocation = Selector(relevance=half)(sample((512, 256)), QUESTION, 32, grid=(4, 16))
    assert sorted(allocation.keep.tolist()) == [16 * row + column for row in range(4) for column in range(8)]


def test_what_counts_are_the_bytes_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the px of pictures, which are encoded smaller: of two photographs each is encoded once."""
    monkeypatch.setattr("arr_coc.guide.coupling.MAX_PIXELS", 128**2)
    own = Selector()
    photos = [Image.new("RGB", (1024, 768), colour) for colour in ("red", "blue")]
    own(photos[0], "Who?", 4)
    (record,) = own._records.values()
    monkeypatch.setattr("arr_coc.selector.MAX_KEPT_BYTES", int(2.5 * _kept_bytes(record)))
    for question in ("Who?", "What is the total?", "Where?"):
        for photo in photos:
            own(photo, question, 4)
    assert len(own._records) == 2
    kept = list(own._records.values())
    tensors = [t for one in kept for t in (*one.view.tensors(), *one.textures.values())]
    couplings = [coupling for one in kept for coupling in one.couplings.values()]
    tensors += [tensor for one in couplings for tensor in (one.logits, one.question)]
    assert all(one.units is None and not one.parts for one in couplings), "one source, without an OCR"
    assert sum(map(_kept_bytes, kept)) == sum(tensor.nbytes for tensor in tensors)


@pytest.mark.slow
def test_two_photographs_of_a_phone_are_both_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    views: list[int] = []
    view = GuideSource.view_all
    monkeypatch.setattr(
        GuideSource, "view_all", lambda self, some: views.extend(map(id, some)) or view(self, some)
    )
    own = Selector()
    photos = [Image.effect_noise((100, 75), n).resize((4000, 3000)).convert("RGB") for n in (40, 60)]
    for question in ("Who?", "What is the total?"):
        for photo in photos:
            own(photo, question, 64)
    assert len(views) == 2


def test_no_pixels_are_kept() -> None:
    own, side = Selector(), 1024
    own(sample((side, side)), QUESTION, 8)
    (record,) = own._records.values()
    tensors = [*record.view.prints, record.view.features, *record.textures.values()]
    assert sum(tensor.untyped_storage().nbytes() for tensor in tensors) < 6 * side**2


def test_what_the_guide_says_comes_with_it() -> None:
    decision = selector().decide(sample((320, 256)), QUESTION, 16)
    (coupling,) = decision.couplings
    record = selector().encode(sample((320, 256)))
    assert torch.equal(coupling.logits, couple(selector().guide, record.view, QUESTION, (8, 10)).logits)
    assert [match.word for match in coupling.best(0.0)] == ["invoice", "number"]


@pytest.mark.parametrize("kind", ["blank", "noise", "splatter"])
def test_nothing_to_prefer(kind: str) -> None:
    image = Image.new("RGB", (768, 768), "white")
    draws = np.random.default_rng(1)
    if kind == "noise":
        image = Image.fromarray(draws.integers(0, 256, (768, 768, 3), dtype=np.uint8))
    elif kind == "splatter":
        pen = ImageDraw.Draw(image)
        for x, y, dx, dy, *colour in draws.integers(0, 256, (1000, 7)):
            start = (3 * int(x), 3 * int(y))
            end = (start[0] + int(dx) // 5 - 25, start[1] + int(dy) // 5 - 25)
            pen.line([start, end], fill=tuple(map(int, colour)), width=4)
    allocation = selector()(image, QUESTION, 64)
    assert allocation.void
    assert (allocation.reasons == Reason.VOID).all()
    assert allocation.note is None


def test_it_needs_no_transformers() -> None:
    code = (
        "import sys\nfrom arr_coc import Selector\n"
        "from arr_coc.relevance import sums\nsums.ocr_installed = lambda: False\n"
        "for names in ([], ['bundled']):\n"
        f"    choose, page = Selector.from_pretrained(*names), {str(BUNDLED / 'sample.png')!r}\n"
        "    assert choose(page, 'What is the title?', budget=64).kept == 64\n"
        "    assert names or 'tokenizers' not in sys.modules\n"
        "heavy = {'transformers', 'peft', 'huggingface_hub', 'accelerate'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


TEXT = r"the question (is empty|is None: give|is an? \w+: give a text|has half of)"
REFUSED = [
    *((question, 1, None, TEXT) for question in ("", " \n", None, 7, b"What?", ["What?"], "What\ud83d?")),
    *(("What?", budget, None, "budget") for budget in (0, -1, 1.5, float("nan"), True, "many")),
    *(
        ("What?", 4, grid, r"grid is .* give \(rows, columns\)")
        for grid in ((2.5, 3), (8.0, 8), (True, True), (0, 4), (4,), (1, 2, 3), "32x32", "88", 32)
    ),
    ("What?", 4, (10**6, 10**6), r"grid is \(1000000, 1000000\): give .* at most 1,048,576 cells"),
    ("What?", 4, [1, 2**20 + 1], "at most 1,048,576 cells"),
]


@either
@each(("question", "budget", "grid", "message"), REFUSED)
def test_refused(allocator: str | None, question: Any, budget: Any, grid: Any, message: str) -> None:
    picture = "no-such.png" if message == "budget" else sample((64, 64))  # before the picture is opened
    with pytest.raises(ValueError, match=message):
        selector(allocator)(picture, question, budget, grid)


def test_a_grid_may_be_a_list() -> None:
    one, other = (selector()(sample((64, 64)), QUESTION, 4, grid) for grid in ((3, 5), [3, 5]))  # ty: ignore
    assert torch.equal(one.keep, other.keep)


@pytest.mark.slow
def test_a_turned_picture_is_never_silent() -> None:
    """Where the shape doesn't tell that boxes are asked for of another picture than was chosen from."""
    for size, orientation, tells in (((320, 256), 6, True), ((320, 256), 3, False), ((256, 256), 8, False)):
        exif, file = Image.Exif(), io.BytesIO()
        exif[0x0112] = orientation
        sample(size).save(file, "PNG", exif=exif)
        picture = Image.open(file)
        kept = selector()(picture, "What is the total?", 8)
        assert ("upright" in (kept.note or "")) != tells
        if tells:
            with pytest.raises(ValueError, match="upright"):
                kept.boxes(picture.size)
        assert len(kept.boxes(picture)) == 8
        assert "upright" not in (selector()(open_image(picture), "What is the total?", 8).note or "")


def test_what_is_made_of_pictures_is_kept_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Image.Image] = []

    def half(image: Image.Image) -> np.ndarray:
        made.append(image)
        return np.zeros(1000, dtype=np.uint8)

    monkeypatch.setattr("arr_coc.selector.MAX_KEPT_BYTES", 2500)
    own = Selector()
    pictures = [own.known(Image.new("RGB", (64, 64), colour)) for colour in ("red", "green", "blue")]
    for picture in (*pictures[:2], pictures[0]):
        own.beside(picture, half)
    assert len(made) == 2
    own.beside(pictures[2], half)  # the second one has to go
    own.beside(pictures[0], half)
    assert len(made) == 3
    own.beside(pictures[1], half)
    assert len(made) == 4
