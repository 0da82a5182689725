"""The laws of packing, on pictures, choices, rules and budgets that are drawn at random."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as draw
from PIL import Image

from arr_coc.choose.allocation import Allocation, is_transposed
from arr_coc.pixels import LAYOUTS, Packed, Rule, find_rule, pack, pack_legibly
from arr_coc.pixels.lines import line_heights, print_height
from arr_coc.pixels.packing import LETTERS
from arr_coc.pixels.page import find_page
from arr_coc.pixels.planning import MIN_SIDE, Spend, crops, reading_scale, shrunk
from arr_coc.relevance.deciding import best_kept

RULES = tuple("16 28 32 claude gpt-5.4 gpt-4o gemini-low qwen gemma-4 mistral gemini-2.5".split())
CUTTING = ("crop", "crops", "overview+crops", "strip")
MOST = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


class Case(NamedTuple):
    image: Image.Image
    allocation: Allocation
    rule: str
    tokens: int
    lines: tuple[tuple[float, float, float, float], ...]


@draw.composite
def cases(take: draw.DrawFn) -> Case:
    """A page with bars for lines of print, cells that are kept on it, a rule, and a budget of it."""
    width, height = take(draw.integers(16, 900)), take(draw.integers(16, 900))
    seed = take(draw.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    pixels = np.full((height, width, 3), rng.integers(120, 256), dtype=np.uint8)
    lines = []
    for _ in range(take(draw.integers(0, 25))):
        x0, y0 = int(rng.integers(0, width)), int(rng.integers(0, height))
        x1, y1 = min(width, x0 + int(rng.integers(4, 400))), min(height, y0 + int(rng.integers(4, 30)))
        lines.append((float(x0), float(y0), float(x1), float(y1)))
        pixels[y0:y1, x0:x1] = rng.integers(0, 256, (y1 - y0, x1 - x0, 3))
    grid = (1, take(draw.integers(1, 30)), take(draw.integers(1, 30)))
    assume(not is_transposed(grid, (width, height)))  # that of the picture turned by 90 degrees is refused
    total = grid[1] * grid[2]
    count = take(draw.integers(1, total))
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(total, generator=generator)
    if take(draw.booleans()):  # of cells near to one another
        y, x = torch.meshgrid(torch.linspace(0, 1, grid[1]), torch.linspace(0, 1, grid[2]), indexing="ij")
        scores = (scores.view(grid[1:]) * 0.2 - (y - 0.3).abs() - (x - 0.6).abs()).flatten()
    name = take(draw.sampled_from(RULES))
    rule = find_rule(name)
    least, most = rule.cheapest, 2 * max(rule.cheapest, rule.tokens(width, height))
    return Case(Image.fromarray(pixels), best_kept(grid, scores, count), name,
                take(draw.integers(least, most)), tuple(lines))  # fmt: skip


def packed(case: Case, layout: str = "auto") -> Packed:
    return pack(case.image, case.allocation, case.tokens, case.rule, layout, case.lines)


@MOST
@given(cases(), draw.sampled_from(LAYOUTS))
def test_never_above_the_budget(case: Case, layout: str) -> None:
    result = packed(case, layout)
    rule = find_rule(case.rule)
    spent = sum(rule.tokens(*picture.size) for picture in result.pictures)
    assert spent == result.tokens <= case.tokens
    assert result.whole_tokens == rule.tokens(*case.image.size)
    assert 1 <= len(result.pictures) == len(result.captions) <= 9
    assert result.layout in (layout, "whole", "crops", "crop") or layout == "auto"
    assert all(picture.mode == "RGB" for picture in result.pictures)


@MOST
@given(cases(), draw.sampled_from(CUTTING))
def test_every_pixel_of_a_kept_cell_is_shown(case: Case, layout: str) -> None:
    result = packed(case, layout)
    shown = np.zeros((case.image.height, case.image.width), dtype=bool)
    for place in result.places[: -1 if result.layout == "overview+crops" else None]:  # the overview is last
        x0, y0, x1, y1 = map(int, place.origin)
        shown[y0:y1, x0:x1] = True
    for x0, y0, x1, y1 in case.allocation.boxes(case.image.size).tolist():
        assert shown[y0:y1, x0:x1].all()


@MOST
@given(cases(), draw.sampled_from(LAYOUTS), draw.floats(0, 1), draw.floats(0, 1))
def test_points_return(case: Case, layout: str, across: float, down: float) -> None:
    result = packed(case, layout)
    for place in result.places:
        x0, y0, x1, y1 = place.origin
        x, y = x0 + across * (x1 - x0), y0 + down * (y1 - y0)
        shown = result.to_packed((x, y, x, y))
        assert place.picture in {picture for picture, _ in shown}
        for picture, box in shown:
            assert 0 <= box[0] <= result.pictures[picture].width
            assert 0 <= box[1] <= result.pictures[picture].height
            back = result.to_original(box[0], box[1], picture)
            assert back is not None
            assert max(abs(back[0] - x), abs(back[1] - y)) <= 0.5


@MOST
@given(cases(), draw.sampled_from(CUTTING))
def test_no_line_of_print_is_cut_lengthwise(case: Case, layout: str) -> None:
    for place in packed(case, layout).places:
        x0, y0, x1, y1 = place.origin
        for left, top, right, bottom in case.lines:
            if left < x1 and right > x0:
                assert not any(top < edge < bottom for edge in (y0, y1))


@MOST
@given(cases(), draw.sampled_from(LAYOUTS))
def test_the_same_again(case: Case, layout: str) -> None:
    one, two = packed(case, layout), packed(case, layout)
    assert one.json() == two.json()
    assert [picture.tobytes() for picture in one.pictures] == [picture.tobytes() for picture in two.pictures]


@MOST
@given(cases(), draw.sampled_from([name for name in LAYOUTS if name != "mask"]))
def test_the_budget_of_the_picture_gives_the_picture(case: Case, layout: str) -> None:
    rule = find_rule("32")
    result = pack(case.image, case.allocation, rule.tokens(*case.image.size), 32, layout)
    assert (result.layout, len(result.pictures), result.tokens) == ("whole", 1, result.whole_tokens)
    assert result.pictures[0].tobytes() == case.image.tobytes()


@MOST
@given(cases())
def test_a_mask_shows_the_kept_cells_alone(case: Case) -> None:
    tokens = find_rule("16").tokens(*case.image.size)
    result = pack(case.image, case.allocation, tokens, 16, "mask", case.lines)
    assert result.pictures[0].size == case.image.size
    pixels, original = np.asarray(result.pictures[0]), np.asarray(case.image)
    for x0, y0, x1, y1 in case.allocation.boxes(case.image.size).tolist():
        assert (pixels[y0:y1, x0:x1] == original[y0:y1, x0:x1]).all()
    assert ((pixels == original) | (pixels == 128)).all()


@MOST
@given(cases(), draw.sampled_from(CUTTING))
def test_what_is_shown_is_the_original(case: Case, layout: str) -> None:
    """Where a part is neither enlarged nor shrunk, its pixels are the original's own."""
    result = packed(case, layout)
    for place in result.places:
        if place.magnification == 1.0:
            part = result.pictures[place.picture].crop(place.box)
            assert part.tobytes() == case.image.crop(place.origin).tobytes()


@MOST
@given(cases(), draw.floats(2, 20))
def test_what_is_packed_legibly_stays_legible(case: Case, readable: float) -> None:
    """Each line that the whole picture shows high enough; and no smaller copy would do."""
    image, rule = case.image, find_rule(case.rule)
    page = replace(find_page(image), lines=case.lines)
    made = pack_legibly(image, page, case.tokens, rule, readable)
    read = reading_scale(image.size, rule)
    lines = [
        (x0, y0, x1, y1)
        for x0, y0, x1, y1 in case.lines
        if y0 >= 1 and y1 < image.height - 1 and x1 - x0 >= LETTERS * (y1 - y0)
    ]
    heights = [height for height in line_heights(lines) if height * read >= readable]
    if made is None:
        whole = rule.tokens(*image.size)
        usual = print_height(lines)
        if heights and usual * read >= readable and whole > case.tokens:
            # The next smaller price shows a line too small, or there is none.
            less = shrunk(image.size, Spend(whole - 1, rule, 1.0))
            assert less is None or min(heights) * down(less.sizes[0], image, rule) < readable
        return
    assert made.layout == "shrunk"
    assert made.tokens < made.whole_tokens
    assert min(heights) * down(made.pictures[0].size, image, rule) >= readable
    if made.tokens > case.tokens:
        less = shrunk(image.size, Spend(made.tokens - 1, rule, 1.0))
        assert less is None or min(heights) * down(less.sizes[0], image, rule) < readable


def down(size: tuple[int, int], image: Image.Image, rule: Rule) -> float:
    """How high a model reads a px of an image that is sent at a size."""
    return size[1] / image.height * reading_scale(size, rule)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_by_exif(orientation: int) -> None:
    rng = np.random.default_rng(orientation)
    image = Image.fromarray(rng.integers(0, 256, (96, 160, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    image.save(file, "PNG", exif=exif)
    upright = Image.open(io.BytesIO(file.getvalue()))
    turned = orientation >= 5
    allocation = best_kept((1, 5, 5), torch.arange(25.0), 3)
    one = pack(file.getvalue(), allocation, 8, 32, "crops")
    assert one.size == ((96, 160) if turned else (160, 96))
    from PIL import ImageOps

    two = pack(ImageOps.exif_transpose(upright), allocation, 8, 32, "crops")
    assert [picture.tobytes() for picture in one.pictures] == [picture.tobytes() for picture in two.pictures]
    assert one.json() == two.json()


def test_the_smallest_picture() -> None:
    image = Image.new("RGB", (16, 16), "red")
    for layout in LAYOUTS:
        for rule in RULES:
            result = pack(image, best_kept((1, 2, 2), torch.arange(4.0), 1), 5000, rule, layout)
            assert result.tokens <= 5000


@pytest.mark.slow
def test_the_largest_picture() -> None:
    image = Image.new("RGB", (10_000, 10_000), "white")
    image.paste("black", (4000, 4000, 4400, 4020))
    allocation = best_kept((1, 64, 64), -(torch.arange(4096.0) - 26 * 64 - 26).abs(), 4)
    result = pack(image, allocation, 64, 32, "overview+crops")
    assert result.tokens <= 64
    assert result.to_packed((4100, 4070, 4200, 4080))


@MOST
@given(cases())
def test_a_crop_is_its_part_with_white_where_it_is_thin(case: Case) -> None:
    result = packed(case, "crops")
    least = min(MIN_SIDE, find_rule(case.rule).patch)
    for place in result.places if result.layout == "crops" else ():
        picture = result.pictures[place.picture]
        _, _, right, bottom = map(round, place.box)
        assert picture.size == (max(least, right), max(least, bottom))
        rest = np.array(picture)
        rest[:bottom, :right] = 255
        assert rest.min() == 255


def test_a_thin_line_is_sent_at_the_size_that_its_caption_says() -> None:
    """Local servers would enlarge it else."""
    plan = crops([(17, 481, 347, 502)], Spend(400, find_rule("qwen"), 1.0))
    assert plan is not None
    assert plan.pieces[0].size == (330, 21)
    assert plan.sizes == ((330, MIN_SIDE),)
