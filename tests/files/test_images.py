"""Every kind of image file a user may have."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import struct
import subprocess
import sys
import time
import tracemalloc
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageOps

from arr_coc.files import images
from arr_coc.files.images import (
    MAX_ASPECT,
    MAX_PIXELS,
    MAX_SCANS,
    MIN_SIDE,
    TooManyPixels,
    grown_size,
    open_image,
)
from arr_coc.files.question import kind_of
from each import each
from image_files import corners, encoded, junk_exif, png_header, tiled_tiff, with_chunk, with_scans


def same(a: Image.Image, b: Image.Image) -> bool:
    return a.size == b.size and a.tobytes() == b.tobytes()


def noise() -> Image.Image:
    """A picture that takes some time to decode."""
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (400, 500, 3), dtype=np.uint8))


def refused(source: Any, *words: str) -> str:
    with pytest.raises(ValueError, match="image") as caught:
        open_image(source)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    for word in words:
        assert word in message
    return message


def written(ink: tuple[int, int, int], opacity: int) -> Image.Image:
    """Words in one colour and of one opacity, on nothing."""
    image = Image.new("RGBA", (120, 60), (*ink, 0))
    pen = ImageDraw.Draw(image)
    for row in range(3):
        pen.text((4, 4 + 18 * row), "Total 42.10", (*ink, opacity))
    return image


class TestWhatWorks:
    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "TIFF", "PPM"])
    def test_smoke(self, kind: str, tmp_path: Path) -> None:
        path = tmp_path / "image"  # the name says nothing, the content does
        path.write_bytes(encoded(corners(), kind))
        image = open_image(path)
        assert image.mode == "RGB"
        assert image.size == (30, 20)
        assert np.abs(np.array(image.getpixel((3, 3)), dtype=int) - (255, 0, 0)).max() < 12

    def test_path_text_bytes_and_pil_agree(self, tmp_path: Path) -> None:
        data = encoded(corners(), "PNG")
        path = tmp_path / "a.png"
        path.write_bytes(data)
        for source in (path, str(path), data, corners()):
            assert same(open_image(source), corners())

    def test_given_image_is_left_alone(self) -> None:
        source = corners().convert("RGBA")
        image = open_image(source)
        image.putpixel((0, 0), (1, 2, 3))
        assert source.mode == "RGBA"
        assert source.getpixel((0, 0)) == (255, 0, 0, 255)

    def test_home_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        corners().save(tmp_path / "a.png")
        assert same(open_image("~/a.png"), corners())

    def test_alpha_lies_on_white(self) -> None:
        image = Image.new("RGBA", (8, 8), (200, 0, 0, 0))
        image.paste((200, 0, 0, 255), (0, 0, 4, 8))
        image.putpixel((7, 7), (0, 0, 0, 51))  # a fifth of black on white
        result = open_image(encoded(image, "PNG"))
        assert result.getpixel((0, 0)) == (200, 0, 0)
        assert result.getpixel((5, 0)) == (255, 255, 255)
        assert result.getpixel((7, 7)) == (204, 204, 204)

    def test_ink_on_transparency_stays_visible_in_every_mode(self) -> None:
        """Dark and strong ink lies on white as ever; what would be lost there lies on what shows it."""
        for ink, paper in (
            ((0, 0, 0), 255), ((90, 0, 0), 255), ((31, 119, 180), 255), ((150, 150, 150), 255),
            ((255, 255, 255), 0), ((255, 255, 0), 0), ((235, 235, 240), 0),
        ):  # fmt: skip
            for opacity in (255, 120, 30):
                levels = np.asarray(open_image(written(ink, opacity)).convert("L")).astype(int)
                assert levels[0, 0] == paper, (ink, opacity)
                assert np.ptp(levels) > 0.25 * opacity
        for ink, paper in ((0, 255), (255, 0)):
            image = written((ink, ink, ink), 200)
            gray = image.convert("LA")
            named = gray.convert("L").convert("P")
            named.putalpha(gray.getchannel("A"))
            assert named.mode == "PA"
            for picture in (
                image.convert("RGBa"), np.asarray(image), encoded(image, "TIFF"), gray, gray.convert("La"),
                named, encoded(gray, "PNG"), encoded(image.quantize(8), "PNG"),
            ):  # fmt: skip
                assert abs(open_image(picture).getpixel((0, 0))[0] - paper) < 2

    def test_one_colour_that_a_file_names_as_transparent(self) -> None:
        white = np.asarray(written((255, 255, 255), 255).getchannel("A").point(lambda a: 255 * (a > 99)))
        deep = white.astype(np.uint16) * 257
        for picture in (
            encoded(Image.fromarray(white), "PNG", transparency=0),
            encoded(Image.fromarray(white).convert("1"), "PNG", transparency=0),
            encoded(Image.fromarray(white).convert("RGB"), "PNG", transparency=(0, 0, 0)),
            encoded(Image.fromarray(white).convert("RGB").quantize(2), "GIF", transparency=1),
            encoded(Image.fromarray(deep), "PNG", transparency=0),
        ):
            image = Image.open(io.BytesIO(picture))
            assert np.asarray(image.convert("L")).min() < 9 or image.mode == "P"
            levels = np.asarray(open_image(picture))
            assert levels.min() < 9
            assert levels.max() > 246
        black = Image.fromarray(65535 - deep)
        assert open_image(encoded(black, "PNG", transparency=65535)).getpixel((0, 0)) == (255, 255, 255)

    def test_dark_and_light_ink_are_both_seen(self) -> None:
        image = written((0, 0, 0), 255)
        image.alpha_composite(written((255, 255, 255), 255).transpose(Image.Transpose.FLIP_LEFT_RIGHT))
        assert open_image(image).getpixel((0, 0)) == (128, 128, 128)

    def test_an_opaque_ground_is_its_own_paper(self) -> None:
        page = Image.new("RGBA", (120, 60), "white")
        page.alpha_composite(written((0, 0, 0), 255))
        for corner in ((0, 0), (119, 0), (0, 59), (119, 59)):  # as of a window with round corners
            page.putpixel(corner, (0, 0, 0, 0))
        dark = Image.new("RGBA", (120, 60), "black")
        dark.alpha_composite(written((255, 255, 255), 255))
        for image in (page, dark):
            image.putpixel((0, 0), (0, 0, 0, 0))
            assert open_image(image).getpixel((0, 0)) == (255, 255, 255)

    def test_gray_with_alpha_and_palette_with_transparency(self) -> None:
        gray = Image.new("LA", (8, 8), (10, 0))
        assert open_image(encoded(gray, "PNG")).getpixel((0, 0)) == (255, 255, 255)
        palette = Image.new("P", (8, 8), 1)
        palette.putpalette([9, 9, 9, 250, 120, 30])
        assert open_image(encoded(palette, "PNG")).getpixel((0, 0)) == (250, 120, 30)
        assert open_image(encoded(palette, "PNG", transparency=1)).getpixel((0, 0)) == (255, 255, 255)

    def test_cmyk(self) -> None:
        red = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
        assert np.abs(np.array(open_image(encoded(red, "TIFF")).getpixel((0, 0))) - (255, 0, 0)).max() <= 1
        assert open_image(encoded(red, "JPEG")).getpixel((4, 4))[0] > 240

    def test_bytes_in_32_bit_gray_are_bytes(self) -> None:
        gray = Image.fromarray(np.array([[0, 100, 230, 255]] * 4, dtype=np.uint8))
        assert np.asarray(open_image(gray.convert("I")))[0, :, 0].tolist() == [0, 100, 230, 255]
        wide = Image.fromarray(np.array([[0, 65535]] * 2, dtype=np.int32))
        assert np.asarray(open_image(wide))[0, :2, 0].tolist() == [0, 255]

    @pytest.mark.parametrize("kind", ["PNG", "TIFF"])
    def test_16_bit_is_scaled_not_clipped(self, kind: str) -> None:
        values = np.array([[0, 257, 32896, 65535]] * 4, dtype=np.uint16)
        data = encoded(Image.fromarray(values), kind)
        assert np.asarray(open_image(data))[0, :, 0].tolist() == [0, 1, 128, 255]

    def test_12_bits_in_a_file_for_16_are_scaled_as_such(self) -> None:
        values = np.array([[0, 1000, 2048, 4095]] * 4, dtype=np.uint16)
        pixels = np.asarray(open_image(encoded(Image.fromarray(values), "PNG")))
        assert pixels[0, :, 0].tolist() == [0, 62, 128, 255]

    def test_32_bit_and_floating_point(self) -> None:
        whole = Image.fromarray(np.array([[0, 65535, 131070, 262140]] * 4, dtype=np.int32))
        assert np.asarray(open_image(whole))[0, :, 0].tolist() == [0, 64, 128, 255]
        fractions = Image.fromarray(np.array([[0, 0.5, 1.0, np.nan]] * 4, dtype=np.float32))
        assert np.asarray(open_image(fractions))[0, :, 0].tolist() == [0, 128, 255, 0]
        measured = Image.fromarray(np.array([[-100, 0, 300, 100]] * 4, dtype=np.float32))
        assert np.asarray(open_image(measured))[0, :, 0].tolist() == [0, 64, 255, 128]

    def test_one_bit(self) -> None:
        assert open_image(encoded(Image.new("1", (8, 8), 1), "PNG")).getpixel((0, 0)) == (255, 255, 255)

    @pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
    def test_animation_gives_its_first_frame(self, kind: str) -> None:
        frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue", "lime")]
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
        assert open_image(data).getpixel((8, 8))[0] > 240
        assert open_image(data).getpixel((8, 8))[2] < 15

    @each("orientation", range(1, 9))
    def test_exif_orientation(self, orientation: int) -> None:
        # Transposing the upright image the other way round makes what a camera would have stored.
        stored = {
            1: corners(),
            2: corners().transpose(Image.Transpose.FLIP_LEFT_RIGHT),
            3: corners().transpose(Image.Transpose.ROTATE_180),
            4: corners().transpose(Image.Transpose.FLIP_TOP_BOTTOM),
            5: corners().transpose(Image.Transpose.TRANSPOSE),
            6: corners().transpose(Image.Transpose.ROTATE_90),
            7: corners().transpose(Image.Transpose.TRANSVERSE),
            8: corners().transpose(Image.Transpose.ROTATE_270),
        }[orientation]
        exif = Image.Exif()
        exif[0x0112] = orientation
        assert same(open_image(encoded(stored, "PNG", exif=exif)), corners())

    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
    def test_what_was_opened_is_opened_again_as_it_is(self, kind: str) -> None:
        exif = Image.Exif()
        exif[0x0112] = 6
        once = open_image(encoded(corners(), kind, exif=exif))
        assert once.size == (20, 30)
        assert same(open_image(once), once)

    def test_unknown_exif_is_ignored(self) -> None:
        exif = Image.Exif()
        exif[0x0112] = 77
        assert same(open_image(encoded(corners(), "PNG", exif=exif)), corners())

    @pytest.mark.parametrize("orientation", [1, 6])
    def test_junk_exif_is_ignored_and_the_orientation_beside_it_is_not(self, orientation: int) -> None:
        """An entry that says it is a number and is none, which Pillow can't write again."""
        stored = corners().transpose(Image.Transpose.ROTATE_90) if orientation == 6 else corners()
        data = encoded(stored, "PNG", exif=junk_exif(orientation))
        with (
            pytest.raises(Exception, match="required argument is not an integer"),
            Image.open(io.BytesIO(encoded(stored, "PNG", exif=junk_exif(6)))) as image,
        ):
            ImageOps.exif_transpose(image)
        assert same(open_image(data), corners())

    def test_no_exif_makes_a_sound_image_unreadable(self) -> None:
        rng = np.random.default_rng(0)
        exif = np.frombuffer(junk_exif(6), dtype=np.uint8)
        for _ in range(200):
            broken = exif.copy()
            broken[rng.integers(6, len(exif), 4)] = rng.integers(0, 256, 4)
            assert sorted(open_image(encoded(corners(), "JPEG", exif=broken.tobytes())).size) == [20, 30]


class TestFileObjects:
    def test_they_stay_open_and_where_they_stand(self, tmp_path: Path) -> None:
        data = encoded(corners(), "PNG")
        (tmp_path / "a.png").write_bytes(data)
        with (tmp_path / "a.png").open("rb") as file:
            for source in (io.BytesIO(data), file):
                source.seek(5)
                assert same(open_image(source), corners())
                assert not source.closed
                assert source.tell() == 5
        assert same(open_image(bytearray(data)), corners())
        assert same(open_image(memoryview(data)), corners())
        assert same(open_image(memoryview(data[::-1])[::-1]), corners()), "a view that isn't contiguous"

    def test_what_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "a.png"
        path.write_bytes(encoded(corners(), "PNG")[:-60])
        with path.open("rb") as file:
            refused(file, "a.png", "cannot be decoded", "damaged or cut off")
        refused(file, "a.png", "is closed", "open it again")
        with path.open(encoding="latin-1") as text:
            refused(text, "a.png", "was opened as text", "'rb'")
        refused(io.StringIO("text"), "StringIO", "opened as text")
        refused(io.BytesIO(), "BytesIO", "is empty")
        receiver, sender = os.pipe()
        os.close(sender)
        with os.fdopen(receiver, "rb") as pipe:
            refused(pipe, "can't be rewound", "give its bytes")

    def test_files_that_are_decompressed_as_they_are_read(self) -> None:
        packed = gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(encoded(corners(), "PNG"))))
        assert same(open_image(packed), corners())

    @each(
        ("content", "words"),
        [
            (None, ("gives None where bytes are read",)),
            ("text", ("was opened as text", "'rb'")),
            (7, ("gives an int where bytes are read",)),
            (OSError("the disk is gone"), ("cannot be read", "the disk is gone")),
            (ValueError("two\nlines"), ("cannot be read (two lines)",)),
            (KeyError("key"), ("cannot be read", "key")),
            (np.zeros(7), ("cannot be read",)),
        ],
    )
    @each("after", [0, 1])
    def test_what_gives_no_bytes(self, content: object, words: tuple[str, ...], after: int) -> None:
        """At once, or in the middle."""

        class Strange(io.BytesIO):
            reads = 0

            def read(self, size: int | None = -1) -> Any:
                self.reads += 1
                if self.reads <= after:
                    return super().read(20)
                if isinstance(content, Exception):
                    raise content
                return content

        refused(Strange(encoded(corners(), "PNG")), "image file (Strange)", *words)

    def test_more_than_was_asked_for_and_without_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Whole(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                return super().read()

        class Endless(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                return bytes(2**16)

        assert same(open_image(Whole(encoded(corners(), "PNG"))), corners())
        monkeypatch.setattr(images, "MAX_BYTES", 2**20)
        refused(Endless(), "image file (Endless)", "longer than 1 MiB")

    def test_a_lazy_picture_names_its_file(self, tmp_path: Path) -> None:
        path = tmp_path / "cut.png"
        path.write_bytes(encoded(corners(), "PNG")[:-60])
        with Image.open(path) as image:
            refused(image, "cut.png", "cannot be decoded")


RAMP = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(8, 6, 3)


class TestThreads:
    """Pillow decodes an opened image at its first use: two threads at once spoil it, or raise."""

    @staticmethod
    def together(source: Any) -> list[Image.Image]:
        ready = Barrier(8)

        def opened(_: int) -> Image.Image:
            ready.wait()
            return open_image(source)

        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(opened, range(8)))

    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
    def test_they_may_share_an_opened_image(self, kind: str) -> None:
        data = encoded(noise(), kind)
        right = open_image(data)
        for _ in range(10):
            assert all(same(image, right) for image in self.together(Image.open(io.BytesIO(data))))

    @pytest.mark.slow
    def test_they_may_share_a_file(self, tmp_path: Path) -> None:
        noise().save(tmp_path / "a.png")
        right = open_image(tmp_path / "a.png")
        for _ in range(10):
            with (tmp_path / "a.png").open("rb") as file:
                assert all(same(image, right) for image in self.together(file))


class TestPixels:
    def test_arrays(self) -> None:
        assert np.array_equal(np.asarray(open_image(RAMP)), RAMP)
        assert np.array_equal(np.asarray(open_image(RAMP[::-1])), RAMP[::-1])
        gray = np.asarray(open_image(RAMP[..., 0]))
        assert np.array_equal(gray, RAMP[..., :1].repeat(3, 2))
        assert np.array_equal(np.asarray(open_image(RAMP[..., :1])), gray)
        clear = np.concatenate([RAMP, np.zeros_like(RAMP[..., :1])], 2)
        assert (np.asarray(open_image(clear)) == 255).all()  # transparent, so white
        for kind in (np.float16, np.float32, np.float64, ">f4"):
            fractions = (RAMP / np.float32(255)).astype(kind)
            assert np.array_equal(np.asarray(open_image(fractions)), RAMP)
        assert np.asarray(open_image(RAMP[..., 0] > 70)).max() == 255
        assert open_image(np.zeros((1, 900, 3), np.uint8)).size == (900, 5)  # grows as a file would

    def test_tensors(self) -> None:
        pixels = torch.from_numpy(RAMP)
        for tensor in (pixels, pixels.permute(2, 0, 1), (pixels / 255).requires_grad_()):
            assert np.array_equal(np.asarray(open_image(tensor)), RAMP)
        assert np.array_equal(np.asarray(open_image(pixels[..., 0]))[..., 0], RAMP[..., 0])
        assert open_image(torch.ones(1, 9, 7, dtype=torch.bfloat16)).size == (7, 9)
        assert open_image(torch.zeros(3, 5, 4)).size == (4, 5)  # both would fit: channels come first
        assert open_image(torch.ones(9, 7, dtype=torch.bool)).getpixel((0, 0)) == (255, 255, 255)

    @each(
        ("pixels", "words"),
        [
            (np.zeros((3, 8, 6), np.uint8), ("array", "(3, 8, 6)", "uint8", "(H, W, 3)")),
            (np.zeros(7), ("(7,)", "float64")),
            (np.zeros((2, 8, 6, 3), np.uint8), ("(2, 8, 6, 3)",)),
            (np.zeros((0, 6, 3), np.uint8), ("(0, 6, 3)", "empty")),
            (np.zeros((8, 6), np.int64), ("(8, 6)", "int64", "give uint8")),
            (np.zeros((8, 6), np.uint16), ("uint16",)),
            (np.zeros((8, 6), complex), ("complex128",)),
            (np.full((8, 6), "a"), ("<U1",)),
            (np.full((8, 6), None), ("object",)),
            (np.full((8, 6), np.nan), ("(8, 6)", "float64", "NaN or infinity")),
            (np.full((8, 6), np.inf), ("NaN or infinity",)),
            (np.full((8, 6, 3), 200.0), ("200 to 200", "[0, 1], or uint8")),
            (np.full((8, 6, 3), -0.5, np.float32), ("-0.5", "float32")),
            (np.broadcast_to(np.float32(0), (20_000, 20_000)), ("too large", "100,000,000")),
            (torch.zeros(1, 3, 8, 6), ("tensor", "(1, 3, 8, 6)", "float32", "without a batch")),
            (torch.zeros(8, 6, dtype=torch.int32), ("tensor", "int32")),
            (torch.full((3, 8, 6), float("nan")), ("tensor", "NaN")),
            (torch.zeros(3, 8, 6, device="meta"), ("tensor", "(3, 8, 6)", "meta", "dense")),
            (torch.zeros(8, 6).to_sparse(), ("tensor", "(8, 6)", "sparse", "to_dense()")),
            (torch.zeros(8, 6, dtype=torch.complex64), ("complex64",)),
            (torch.zeros(8, 6, dtype=torch.complex64).conj(), ("complex64",)),
            (torch.zeros(1).bfloat16().expand(20_000, 20_000), ("too large", "100,000,000")),
            (np.ma.masked_less(np.ones((8, 6)), 2), ("(8, 6)", "masked", "filled")),
            (np.zeros((8, 6), "M8[s]"), ("datetime64",)),
            (np.zeros((8, 6), [("r", "u1")]), ("(8, 6)", "give uint8")),
        ],
    )
    def test_what_is_refused(self, pixels: object, words: tuple[str, ...]) -> None:
        refused(pixels, *words)

    def test_quantized_and_nested_tensors(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch is about to drop the one, and to change the other
            refused(
                torch.quantize_per_tensor(torch.zeros(8, 6), 0.1, 0, torch.quint8), "quint8", "dequantize"
            )
            refused(torch.nested.nested_tensor([torch.zeros(4, 5), torch.zeros(6, 5)]), "tensor")

    def test_arrays_of_other_kinds(self, tmp_path: Path) -> None:
        mapped = np.memmap(tmp_path / "a.raw", np.uint8, "w+", shape=RAMP.shape)
        mapped[:] = RAMP
        whole = np.ma.masked_array(RAMP, mask=False)
        for array in (mapped, whole, np.asfortranarray(RAMP)):
            assert np.array_equal(np.asarray(open_image(array)), RAMP)

    def test_floating_point_is_converted_by_rows(self) -> None:
        values = np.zeros((500, 600, 3))
        tracemalloc.start()
        open_image(values)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * values.shape[0] * values.shape[1]


class TestSmallAndThin:
    def test_one_pixel(self) -> None:
        image = open_image(encoded(Image.new("RGB", (1, 1), "red"), "PNG"))
        assert image.size == (MIN_SIDE, MIN_SIDE)
        assert (np.asarray(image) == (255, 0, 0)).all()

    @each("size", [(1, 3000), (3000, 1), (3, 999), (2, 401)])
    def test_thin(self, size: tuple[int, int]) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        image = open_image(Image.fromarray(pixels))
        assert max(image.size) == max(size)
        assert max(image.size) / min(image.size) <= MAX_ASPECT
        grown = np.asarray(image)
        assert (grown[: size[1], : size[0]] == pixels).all()  # top left stays top left
        assert (grown[-1, : size[0]] == pixels[-1]).all()
        assert (grown[: size[1], -1] == pixels[:, -1]).all()

    @each("size", [(400_000, 1), (1, 400_000), (141_500, 1)])
    def test_what_would_grow_beyond_all_bounds_is_refused(self, size: tuple[int, int]) -> None:
        """128 bytes would take gigabytes."""
        pixels = np.broadcast_to(np.uint8(0), size[::-1])
        for source in (png_header(*size), Image.new("1", size), pixels, torch.from_numpy(pixels.copy())):
            refused(source, "too thin", f"{size[0]}x{size[1]} px", "cut out the part")

    def test_a_bound_of_the_caller_holds_before_and_after_it_grows(self) -> None:
        inside = encoded(Image.new("1", (64, 64)), "PNG")
        icon = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inside), 22) + inside  # says 16
        for source, most in (
            (png_header(100_000, 100), 40_000_000),  # 10 megapixels become 50
            (png_header(2000, 1), 15_000),
            (encoded(Image.new("RGB", (50, 21)), "PNG"), 1000),
            (Image.new("RGB", (50, 21)), 1000),
            (np.zeros((21, 50), np.uint8), 1000),
            (icon, 1000),
        ):
            with pytest.raises(TooManyPixels):
                open_image(source, most)
        assert open_image(encoded(Image.new("RGB", (50, 20)), "PNG"), 1000).size == (50, 20)

    def test_large_ones_are_decoded_one_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        inside, most, turn = 0, 0, images._to_rgb

        def watched(image: Image.Image) -> Image.Image:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            time.sleep(0.002)
            inside -= 1
            return turn(image)

        monkeypatch.setattr(images, "_to_rgb", watched)
        thin = encoded(Image.new("RGB", (400, 1)), "PNG")  # 400 px become 1600
        monkeypatch.setattr(images, "LARGE", 1000)
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(open_image, [thin] * 12))
        assert most == 1

    def test_grown_size(self) -> None:
        for size in ((1, 1), (1, 3000), (3000, 7), (640, 480)):
            assert open_image(Image.new("RGB", size)).size == grown_size(size)
            assert grown_size(grown_size(size)) == grown_size(size)

    def test_ordinary_size_is_not_changed(self) -> None:
        assert open_image(Image.new("RGB", (1000, 5))).size == (1000, 5)

    def test_a_processor_accepts_them(self) -> None:
        from transformers import Qwen2VLImageProcessor

        processor = Qwen2VLImageProcessor()
        for size in ((1, 1), (1, 3000), (3000, 1)):
            batch = processor(images=[open_image(Image.new("RGB", size))], return_tensors="pt")
            assert batch["image_grid_thw"].prod() == len(batch["pixel_values"])


class TestWhatIsRefused:
    def test_missing(self, tmp_path: Path) -> None:
        refused(tmp_path / "nope.png", "nope.png", "does not exist", "check the path")
        refused("", "the image's path is empty", "give the path")  # Path("") is the working folder
        refused("a\0b.png", r"'a\x00b.png' holds a NUL", "leave it out")
        refused("x" * 5000, "too long for a file's name", "give another")
        refused("a\nb\x1b[31m/c.png", "'a\\nb", "does not exist")  # one line, nothing for the terminal
        refused("~nobody-of-that-name/a.png", "~nobody-of-that-name", "no such home folder")

    @each("source", [None, 3, ["a.png"], {"path": "a.png"}, object()])
    def test_what_is_no_image_at_all(self, source: object) -> None:
        refused(source, f"the image is {kind_of(source)}", "give a path")

    def test_folder(self, tmp_path: Path) -> None:
        refused(tmp_path, tmp_path.name, "is a folder")

    def test_not_a_regular_file(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.png")  # opening it would wait for ever
        refused(tmp_path / "pipe.png", "not a regular file")

    def test_unreadable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "secret.png"
        corners().save(path)

        def denied(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", denied)  # permissions do not bind a superuser
        refused(path, "secret.png", "Permission denied", "permissions")

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "empty.png").write_bytes(b"")
        refused(tmp_path / "empty.png", "empty.png", "is empty (0 bytes)")
        refused(b"", "image bytes", "is empty")

    def test_no_image(self, tmp_path: Path) -> None:
        (tmp_path / "notes.jpg").write_text("these are notes")
        refused(tmp_path / "notes.jpg", "notes.jpg", "not an image", "PNG, JPEG")

    @pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF", "BMP"])
    def test_truncated(self, kind: str, tmp_path: Path) -> None:
        noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        data = encoded(Image.fromarray(noise), kind)
        path = tmp_path / "cut.img"
        path.write_bytes(data[: len(data) // 2])
        assert "cut.img" in refused(path)

    def test_damaged_never_raises_anything_else(self) -> None:
        rng = np.random.default_rng(0)
        for kind in ("PNG", "JPEG", "GIF", "TIFF", "WEBP"):
            data = np.frombuffer(encoded(corners(), kind), dtype=np.uint8)
            for _ in range(60):
                broken = data.copy()
                broken[rng.integers(0, len(data), 6)] = rng.integers(0, 256, 6)
                with warnings.catch_warnings(), contextlib.suppress(ValueError):
                    warnings.simplefilter("error")
                    assert open_image(broken.tobytes()).mode == "RGB"

    def test_address(self) -> None:
        refused("https://example.org/a.png", "example.org", "nothing is fetched", "download")
        refused("data:image/png;base64," + "A" * 5000, "nothing is fetched")

    def test_page_description(self) -> None:
        refused(encoded(corners(), "EPS"), "EPS", "PNG or JPEG")  # would start another program

    @each("size", [(30_000, 30_000), (12_000, 12_000), (MAX_PIXELS + 1, 1)])
    def test_decompression_bomb_is_refused_by_its_header(self, size: tuple[int, int], tmp_path: Path) -> None:
        path = tmp_path / "bomb.png"
        path.write_bytes(png_header(*size))
        tracemalloc.start()
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            refused(
                path,
                "bomb.png",
                f"{size[0] * size[1] / 1e6:.0f} megapixels",
                "at most 100",
                "scale it down",
            )
        assert time.perf_counter() - start < 1
        assert tracemalloc.get_traced_memory()[1] < 10e6
        tracemalloc.stop()


class TestCost:
    """What an image costs is in no relation to its bytes, so it is bounded before anything is decoded."""

    def test_scans_of_a_jpeg(self) -> None:
        jpeg = encoded(corners(), "JPEG", progressive=True)
        usual = jpeg.count(b"\xff\xda")
        assert images.count_scans(io.BytesIO(jpeg), 1000) == usual > 5
        assert open_image(with_scans(jpeg, MAX_SCANS - usual)).size == (30, 20)
        many = with_scans(jpeg, MAX_SCANS - usual + 1)
        refused(many, f"JPEG of more than {MAX_SCANS} scans", "save it anew")
        with Image.open(io.BytesIO(many)) as lazy:
            refused(lazy, "more than")

    def test_scans_are_told_from_what_looks_like_them(self) -> None:
        """In an image inside its EXIF data, in stuffed bytes, across the blocks that are read, cut off."""
        jpeg = encoded(noise(), "JPEG", quality=95)
        comment = b"\xff\xfe" + struct.pack(">H", 60_002) + (b"\xff\xda\0\x02" * 15_000)
        full = jpeg[:2] + comment * 3 + jpeg[2:] + comment
        assert b"\xff\x00" in jpeg
        for extra in range(6):
            shifted = jpeg[:2] + b"\xff\xfe" + struct.pack(">H", 2 + extra) + bytes(extra) + full[2:]
            assert images.count_scans(io.BytesIO(shifted), 1000) == 1
            assert images.count_scans(io.BytesIO(shifted + jpeg), 1000) == 1
        for end in (0, 1, 2, 3, 200_000, len(full) - 1):
            assert images.count_scans(io.BytesIO(full[:end]), 1000) <= 1
        progressive = encoded(noise(), "JPEG", progressive=True, quality=100)
        assert len(progressive) > 3 * 2**16
        assert images.count_scans(io.BytesIO(progressive), 1000) == progressive.count(b"\xff\xda")

    def test_tiles_that_are_far_larger_than_their_image(self) -> None:
        refused(tiled_tiff((16, 16), (20_000, 20_000)), "16x16 px has tiles of 400 megapixels")
        assert open_image(tiled_tiff((16, 16), (16, 16))).size == (16, 16)
        refused(tiled_tiff((16, 16), (0, 16)))

    def test_an_icon_has_the_size_of_the_image_in_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        inner = encoded(Image.new("RGB", (300, 200)), "PNG")
        icon = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(inner), 22) + inner
        assert open_image(icon).size == (300, 200)
        monkeypatch.setattr(images, "MAX_PIXELS", 50_000)
        refused(icon, "too large", "300x200 px")

    def test_half_as_many_pixels_where_a_decoder_takes_twice_the_memory(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(images, "MAX_PIXELS", 1000)
        for kind in ("PNG", "JPEG", "GIF", "TIFF", "BMP"):
            assert open_image(encoded(corners(), kind)).size == (30, 20)
        for kind in images.HEAVY:
            refused(encoded(corners(), kind), "too large", "30x20 px")

    def test_what_is_decoded_slowly_is_small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        text = b"P3 30 20 255 " + b"1 2 3 " * 600
        assert open_image(text).getpixel((7, 7)) == (1, 2, 3)
        monkeypatch.setattr(images, "SLOW_PIXELS", 500)
        refused(text, "too large", "30x20 px")
        assert open_image(encoded(corners(), "PPM")).size == (30, 20)

    @pytest.mark.parametrize("mode", ["I;16", "I", "F", "RGBA", "LA", "P", "PA", "CMYK", "1", "L", "YCbCr"])
    def test_strips_are_converted_as_the_whole(self, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(0)
        if mode in ("I;16", "I", "F"):
            kind = {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]
            image = Image.fromarray(rng.integers(0, 60_000, (61, 47)).astype(kind))
            assert image.mode == mode
        else:
            pixels = rng.integers(0, 256, (61, 47, 4), dtype=np.uint8)
            image = Image.fromarray(pixels)
            image = image if mode == "RGBA" else image.convert("LA" if mode == "LA" else "RGB").convert(mode)
        if mode == "P":
            image.info["transparency"] = 3
        whole = open_image(image)
        monkeypatch.setattr(images, "_PIXELS_AT_ONCE", 100)
        assert same(open_image(image), whole)

    @pytest.mark.slow
    @pytest.mark.parametrize("mode", ["I;16", "RGBA", "P", "RGB"])
    def test_memory_of_a_pixel(self, mode: str, tmp_path: Path) -> None:
        side = 3000
        image = Image.new(mode, (side, side))
        exif = Image.Exif()
        exif[0x0112] = 6
        options: dict[str, Any] = {"transparency": 0} if mode == "P" else {}
        image.save(tmp_path / "a.png", exif=exif, **options)
        code = (
            "import resource, sys\nfrom arr_coc.files.images import open_image\nopen_image(sys.argv[1])\n"
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nopen_image(sys.argv[2])\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
        )
        corners().save(tmp_path / "small.png")
        line = [sys.executable, "-c", code, tmp_path / "small.png", tmp_path / "a.png"]
        peak = int(subprocess.run(line, capture_output=True, check=True).stdout)
        assert peak * (1 if sys.platform == "darwin" else 1024) / side**2 < 13


class TestWhy:
    """Every refusal says what the decoder says."""

    @each("name", [b"zTXt", b"iTXt", b"tEXt", b"iCCP"])
    @each("last", [False, True])
    def test_long_texts_and_profiles_are_left_out(self, name: bytes, last: bool) -> None:
        if name == b"iCCP" and last:
            return  # it stands before the pixels, or is not read
        long = zlib.compress(bytes(2**22))
        data = {
            b"zTXt": b"note\0\0" + long,
            b"iTXt": b"note\0\1\0\0\0" + long,
            b"tEXt": b"note\0" + b"x" * 2**21,
            b"iCCP": b"name\0\0" + long,
        }[name]
        exif = Image.Exif()
        exif[0x0112] = 6
        png = encoded(corners().transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif)
        assert same(open_image(with_chunk(png, name, data, last)), corners())

    def test_a_text_does_not_hide_what_is_wrong(self) -> None:
        png = with_chunk(encoded(noise(), "PNG"), b"zTXt", b"note\0\0" + zlib.compress(bytes(2**22)))
        refused(png[: len(png) // 2], "cannot be decoded", "cut off")

    def test_the_decoder_of_its_format_is_heard(self) -> None:
        png = encoded(corners(), "PNG")
        refused(png[:20] + b"\xff" + png[21:], "cannot be opened (PNG: broken PNG file", "IHDR")
        refused(encoded(corners(), "JPEG")[:5], "cannot be opened (JPEG: ")
        refused(encoded(corners(), "TIFF")[:6], "cannot be opened (TIFF: ")
        refused(b"GIF89a", "cannot be opened (GIF: ")

    def test_other_formats_are_named(self) -> None:
        refused(encoded(corners(), "PCX"), "is PCX, which is not opened", "PNG or JPEG")
        refused(b"SIMPLE  =                    T" + bytes(100), "is FITS")

    def test_a_pdf(self, tmp_path: Path) -> None:
        corners().save(tmp_path / "a.pdf")
        refused(tmp_path / "a.pdf", "a.pdf", "is a PDF", "open_page(")
