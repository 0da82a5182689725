"""Every kind of image file a user may have. Run: pytest tests/core/test_images.py"""

from __future__ import annotations

import contextlib
import io
import os
import time
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from arr_coc.core.images import MAX_ASPECT, MAX_PIXELS, MIN_SIDE, open_image
from arr_coc.core.question import kind_of
from image_files import corners, encoded, junk_exif, png_header


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

    @pytest.mark.parametrize("orientation", range(1, 9))
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

    @pytest.mark.parametrize(
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
        ],
    )
    def test_what_is_refused(self, pixels: object, words: tuple[str, ...]) -> None:
        refused(pixels, *words)


class TestSmallAndThin:
    def test_one_pixel(self) -> None:
        image = open_image(encoded(Image.new("RGB", (1, 1), "red"), "PNG"))
        assert image.size == (MIN_SIDE, MIN_SIDE)
        assert (np.asarray(image) == (255, 0, 0)).all()

    @pytest.mark.parametrize("size", [(1, 3000), (3000, 1), (3, 999), (2, 401)])
    def test_thin(self, size: tuple[int, int]) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        image = open_image(Image.fromarray(pixels))
        assert max(image.size) == max(size)
        assert max(image.size) / min(image.size) <= MAX_ASPECT
        grown = np.asarray(image)
        assert (grown[: size[1], : size[0]] == pixels).all()  # top left stays top left
        assert (grown[-1, : size[0]] == pixels[-1]).all()
        assert (grown[: size[1], -1] == pixels[:, -1]).all()

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

    @pytest.mark.parametrize("source", [None, 3, ["a.png"], {"path": "a.png"}, object()])
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

    @pytest.mark.parametrize("size", [(30_000, 30_000), (12_000, 12_000), (MAX_PIXELS + 1, 1)])
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
