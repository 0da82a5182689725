"""Hard limits of providers: what breaks them, and files made to fit that stay what they were."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from arr_coc.pixels import RULES
from arr_coc.pixels.limits import LIMITS, MEDIA, Limits, base64_length, fit, read_header
from image_files import encoded
from scripts import imported, need
from strict_upstream import claiming, pool

NONE = Limits("none", "", "", kinds=("JPEG", "PNG", "GIF", "WEBP"))


def opened(content: bytes | None) -> Image.Image:
    assert content is not None
    image = Image.open(io.BytesIO(content))
    image.load()
    return image


def photograph(width: int, height: int) -> Image.Image:
    rng = np.random.default_rng(1)
    small = Image.fromarray(rng.integers(0, 255, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


class TestFit:
    def test_what_breaks_no_limit_is_the_same_object(self) -> None:
        for kind in ("PNG", "JPEG", "WEBP", "GIF"):
            content = encoded(photograph(200, 100), kind)
            for limits in (NONE, LIMITS["openai"], LIMITS["claude"]):
                assert fit(content, limits) is content

    def test_it_is_not_decoded_for_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        content = encoded(photograph(1600, 1200), "PNG")
        monkeypatch.setattr("arr_coc.pixels.limits.open_image", None)
        start = time.thread_time()
        for _ in range(20):
            assert fit(content, LIMITS["claude"]) is content
        assert (time.thread_time() - start) / 20 < 0.02

    @pytest.mark.parametrize(("kind", "expected"), [("JPEG", "JPEG"), ("PNG", "PNG"), ("WEBP", "JPEG"),
                                                    ("TIFF", "PNG"), ("BMP", "PNG")])  # fmt: skip
    def test_a_photograph_stays_one(self, kind: str, expected: str) -> None:
        made = opened(
            fit(encoded(photograph(900, 600), kind), replace(NONE, side=600, kinds=("JPEG", "PNG")))
        )
        assert (made.format, made.size) == (expected, (600, 400))

    def test_no_side_is_longer_even_where_there_are_few_pictures(self) -> None:
        """The twenty-first picture may not change the twenty before it."""
        limits = LIMITS["claude"]
        assert limits.held_side == 2000 < limits.side
        made = opened(fit(encoded(photograph(2560, 1440), "PNG"), limits))
        assert made.size == (2000, 1125)
        exact = encoded(Image.new("L", (2000, 2000)), "PNG")
        assert fit(exact, limits) is exact

    def test_it_is_turned_as_its_exif_says(self) -> None:
        exif = Image.Exif()
        exif[0x0112] = 6
        content = encoded(photograph(300, 100), "JPEG", exif=exif)
        assert fit(content, NONE) is content
        assert opened(fit(content, replace(NONE, side=150))).size == (50, 150)

    def test_bytes(self) -> None:
        noise = Image.fromarray(np.random.default_rng(2).integers(0, 255, (500, 500, 3), dtype=np.uint8))
        for kind in ("PNG", "JPEG"):
            content = encoded(noise, kind)
            for most in (300_000, 120_000, 3_000):
                made = fit(content, replace(NONE, letters=most))
                assert made is not None
                assert base64_length(len(made)) <= most
                assert opened(made).format == ("JPEG" if base64_length(len(content)) > most else kind)
                assert (opened(made).size == (500, 500)) == (most > 3_000)

    def test_a_long_png_of_print_stays_a_png(self) -> None:
        """Only what breaks the limit of bytes as PNG becomes a JPEG."""
        content = encoded(Image.new("RGB", (4000, 3000), "white"), "PNG")
        assert opened(fit(content, LIMITS["claude"])).format == "PNG"

    def test_small_and_thin_ones_grow(self) -> None:
        limits = LIMITS["local"]
        for size in ((1, 1), (3, 900), (900, 3), (27, 27), (5000, 20)):
            made = opened(fit(encoded(Image.new("RGB", size, "red"), "PNG"), limits))
            assert min(made.size) >= limits.least
            assert max(made.size) <= limits.aspect * min(made.size)
            assert made.getpixel((0, 0)) == (255, 0, 0)

    def test_an_animation_becomes_its_first_frame(self) -> None:
        frames = [Image.new("RGB", (40, 30), name) for name in ("red", "blue")]
        for kind in ("GIF", "WEBP"):
            content = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
            made = opened(fit(content, LIMITS["openai"]))
            red, _, blue = made.convert("RGB").getpixel((5, 5))  # ty: ignore[not-iterable]
            assert red > 200 > 50 > blue
            assert made.format in ("PNG", "JPEG")

    def test_what_cannot_be_opened_is_none(self) -> None:
        sound = encoded(photograph(100, 80), "PNG")
        lies = [claiming(*size) for size in ((0, 0), (3000, 3000), (40_000, 3), (2**31 - 1, 2**31 - 1))]
        for content in (b"", b"x", sound[: len(sound) // 2], b"%PDF-1.7", *lies):
            assert fit(content, NONE) is None

    def test_what_is_damaged_is_written_anew(self) -> None:
        """Pillow reads a PNG with a wrong checksum, and a JPEG without an end; other decoders refuse them."""
        for kind, spoil in (("PNG", lambda x: x[:-5] + b"?" + x[-4:]), ("JPEG", lambda x: x[:-2])):
            content = encoded(photograph(100, 80), kind)
            made = fit(spoil(content), NONE)
            assert made is None or fit(made, NONE) is made
            if made is not None:
                assert opened(made).size == (100, 80)
                assert opened(made).format == kind

    def test_whatever_comes_twice_becomes_the_same(self) -> None:
        for limits in LIMITS.values():
            for content in pool():
                if len(content) > 10**6:
                    continue
                made = fit(content, limits)
                again = fit(bytes(bytearray(content)), limits)
                assert made == again
                if made is not None:  # what fits is left alone, so that a chat may pass through two proxies
                    assert fit(made, limits) is made
                    header = read_header(made)
                    assert header is not None
                    assert header.kind in MEDIA


class TestTable:
    def test_every_row_has_a_source(self) -> None:
        fields = Limits.__dataclass_fields__
        for name, limits in LIMITS.items():
            assert limits.name == name
            assert limits.source.startswith("https://")
            assert set(limits.unverified) <= fields.keys()
            assert set(limits.kinds) <= MEDIA.keys()
            assert limits.date

    def test_the_page_lists_the_table(self) -> None:
        need("runs/rules_table.py")
        with imported("runs/rules_table.py") as table:
            page = table.LIMITS_PAGE.read_text(encoding="utf-8")
            assert page == table.limits_page(), "run: python runs/rules_table.py"

    def test_prices_that_no_size_changes(self) -> None:
        fixed = {name for name, rule in RULES.items() if rule.fixed}
        assert fixed == {"gemini", "gemini-low", "gemini-medium", "gemini-high", "gemini-ultra", "gemma-3"}
        for name in fixed:
            costs: set[Any] = {RULES[name].tokens(*size) for size in ((30, 30), (900, 30), (5000, 5000))}
            assert len(costs) == 1
