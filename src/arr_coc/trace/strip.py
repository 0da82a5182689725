"""A strip: one image or clip of a trace, with a picture of each step and its allocation.

The picture of a single image is a lossless PNG, so that it can be asked about again. Pictures of clips and of
several images are small WebP files, within bounds for the whole trace. Letters: T, H, W the grid.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from arr_coc.choose.allocation import Allocation, Grid, Reason
from arr_coc.files.images import MAX_PIXELS
from arr_coc.trace.evidence import Guidance, likely_units
from arr_coc.trace.view import SCORES, allocation_view, drawn_url, guidance_view, picture_url

MAX_SMALL_PIXELS, MAX_STRIP_PIXELS = 2**19, 2**25  # px of a small picture, and of all
MAX_BYTES, MAX_STEPS = 2**24, 4096  # bytes (16 MiB) and steps of all pictures of a trace
QUALITY = 80  # of WebP, 0 to 100
# Tensor fields of an allocation and their dtypes.
RECORD = {name: torch.int64 for name in ("keep", "order", "positions", "reasons")} | {
    name: torch.float32 for name in (*SCORES, "weights")
}
SHRINK = 0.7  # scale of sides when pictures take too many bytes
Span = tuple[float, float]  # seconds of a step's first and last frame
# Per image or clip: a picture of each step, their (width, height), the grid.
Visuals = Sequence[tuple[Iterable[Image.Image], tuple[int, int], Grid]]


@dataclass(frozen=True, eq=False)
class Strip:
    """One image or clip of a trace: a picture of each step, and which cells were kept.

    Attributes:
        pictures: per step a WebP or PNG file; all of one size, sides multiples of the grid's.
        allocation: the kept cells on a grid (T, H, W), on the CPU.
        side: (width, height) in px at which the model read a step.
        spans: per step its first and last second; () for an image.
        cuts: indices of steps that begin a scene, sorted; () for an image.
        guidance: the guide's record (of a clip: of its most confident step), heats [H, W] or empty; or None.

    Raises:
        ValueError: a field is invalid, or does not fit the others.
    """

    pictures: tuple[bytes, ...]
    allocation: Allocation
    side: tuple[int, int]
    spans: tuple[Span, ...] = ()
    cuts: tuple[int, ...] = ()
    guidance: Guidance | None = None

    def __post_init__(self) -> None:
        """Check that the fields fit each other, as all drawing code requires."""
        steps, height, width = self.allocation.grid
        if len(self.pictures) != steps or len(self.spans) != (steps if self.spans else 0):
            raise ValueError(f"{len(self.pictures)} pictures and {len(self.spans)} times, not {steps} steps")
        if steps > 1 and not self.spans:
            raise ValueError(f"an image has one step, this has {steps}: give their times")
        sizes = {_size(picture) for picture in self.pictures}
        if len(sizes) != 1 or any(w % width or h % height for w, h in sizes):
            raise ValueError(f"pictures of {sorted(sizes)} px are not one multiple of {width}x{height}")
        ends = [second for span in self.spans for second in span]
        if any(len(span) != 2 for span in self.spans) or not all(map(math.isfinite, ends)):
            raise ValueError(f"the times {self.spans[:4]} are not the first and last second of each step")
        if ends != sorted(ends) or min(ends, default=0) < 0:
            raise ValueError(f"the times {self.spans[:4]} do not rise from 0")
        if list(self.cuts) != sorted(set(self.cuts)) or not set(self.cuts) <= set(range(steps)):
            raise ValueError(f"the cuts {self.cuts[:8]} are not rising steps from 0 to {steps - 1}")
        if len(self.side) != 2 or min(self.side) < 1:
            raise ValueError(f"the side {self.side} is not a width and a height in px")
        check_record(self.allocation)
        if self.guidance is not None:
            check_guidance(self.guidance)
            for spot in self.guidance.spots:
                if spot.heat.numel():
                    check_map(f"heat of {spot.label!r}", spot.heat, (height, width))

    @classmethod
    def of_image(
        cls, picture: Image.Image, allocation: Allocation, guidance: Guidance | None = None
    ) -> Strip:
        """Return the strip of an image, stored losslessly as the model read it; `guidance` with heats."""
        file = io.BytesIO()
        picture.convert("RGB").save(file, "png", compress_level=1)  # 6, Pillow's own, takes 5 times as long
        return cls((file.getvalue(),), allocation, picture.size, guidance=guidance)

    @property
    def is_clip(self) -> bool:
        """Whether the strip is of a clip: only clips have times."""
        return bool(self.spans)

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the pictures in px."""
        return _size(self.pictures[0])

    @property
    def budgets(self) -> list[int]:
        """Kept cells per step."""
        return self.allocation.mask().flatten(1).sum(1).tolist()  # (T, H, W) -> T counts

    def picture(self, step: int) -> Image.Image:
        """Return the picture of a step, RGB; a ValueError if it is damaged."""
        return _decoded(self.pictures[step])

    def to_plain(self) -> dict[str, Any]:
        """Return the fields that are no tensors, as JSON values of the types in `trace.STRIP`."""
        record = self.allocation
        return {
            "lengths": [len(picture) for picture in self.pictures],
            "spans": [list(span) for span in self.spans],
            "cuts": list(self.cuts),
            "side": list(self.side),
            "allocation": {name: getattr(record, name) for name in ("tensions", "budget", "void")},
            "guidance": None if self.guidance is None else self.guidance.to_dict(),
        }

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the tensors: the allocation's, "pictures" uint8 [bytes] and "spots" [spots, H, W]."""
        tensors = {name: getattr(self.allocation, name) for name in RECORD}
        tensors["pictures"] = torch.frombuffer(bytearray(b"".join(self.pictures)), dtype=torch.uint8)
        heats = [spot.heat for spot in self.guidance.spots if spot.heat.numel()] if self.guidance else []
        return tensors | ({"spots": torch.stack(heats)} if heats else {})

    def view(self, texture: Tensor | None = None, channels: Sequence[str] = ()) -> dict[str, Any]:
        """Return the viewer's input, of all steps; for an image with the texture [C, H, W] of named
        channels.
        """
        guidance = guidance_view(self.guidance)
        if guidance is not None and self.is_clip:
            guidance |= {key: guidance[key].replace("picture", "clip") for key in ("badge", "about")}
        width, height = self.size
        pictures = {
            "images": [_shown(picture) for picture in self.pictures],
            "width": width,
            "height": height,
        }
        times = {"spans": [list(span) for span in self.spans], "cuts": list(self.cuts)}
        units = [] if self.is_clip else list(map(list, likely_units(self.picture(0), self.allocation)))
        about = {"side": list(self.side), "guidance": guidance, "units": units}
        return allocation_view(self.allocation, texture, channels) | pictures | times | about


def strip_of(plain: dict[str, Any], tensors: dict[str, Tensor]) -> Strip:
    """Return the `Strip` (one image or clip) that `to_plain` and `to_tensors` wrote.

    The caller has checked the types of `plain`. Takes "pictures" and "spots" out of the caller's `tensors`;
    decodes each picture once, to find damage.

    Raises:
        ValueError: a field is invalid, or a picture is damaged.
    """
    data, lengths, guidance = tensors.pop("pictures"), plain["lengths"], plain["guidance"]
    if data.ndim != 1 or not lengths or min(lengths) < 1 or sum(lengths) != len(data):
        raise ValueError(f"{len(lengths)} pictures do not fit {tuple(data.shape)} bytes")
    if len(lengths) > 1 and (len(data) > MAX_BYTES or len(lengths) > MAX_STEPS):
        raise ValueError(f"{len(lengths):,} pictures of {len(data):,} bytes are too many")
    grid = tuple(tensors["information"].shape)  # a safetensors header can claim any shape
    if len(grid) != 3:
        raise ValueError(f"the maps have shape {grid}, not [T, H, W]")
    whole, ends = data.numpy().tobytes(), torch.tensor(lengths).cumsum(0).tolist()
    pictures = tuple(whole[end - length : end] for end, length in zip(ends, lengths, strict=True))
    spots = 0 if guidance is None else len(guidance["spots"])
    heats = tensors.pop("spots", torch.zeros(spots, 0))
    if tuple(heats.shape[:1]) != (spots,):
        raise ValueError(f"heats {tuple(heats.shape)} do not fit {spots} words of the guide")
    record: dict[str, Any] = {**tensors, **plain["allocation"], "grid": grid}
    strip = Strip(
        pictures=pictures,
        allocation=Allocation(**record),
        side=tuple(plain["side"]),
        spans=tuple(tuple(span) for span in plain["spans"]),
        cuts=tuple(plain["cuts"]),
        guidance=None if guidance is None else Guidance.from_dict(guidance, heats),
    )
    check_amount([strip])
    for picture in strip.pictures:
        _decoded(picture)
    return strip


def check_amount(strips: Sequence[Strip]) -> None:
    """Raise a ValueError if the pictures of a trace exceed its bounds; a single image has its own."""
    steps = sum(len(strip.pictures) for strip in strips)
    size = sum(len(picture) for strip in strips for picture in strip.pictures)
    pixels = sum(len(strip.pictures) * math.prod(strip.size) for strip in strips)
    if steps > 1 and (steps > MAX_STEPS or size > MAX_BYTES or pixels > MAX_STRIP_PIXELS):
        raise ValueError(
            f"{steps:,} pictures of {pixels:,} px and {size:,} bytes are more than {MAX_STEPS:,}, "
            f"{MAX_STRIP_PIXELS:,} and {MAX_BYTES:,}: sample fewer frames"
        )


def check_record(record: Allocation) -> None:
    """Raise a ValueError unless reasons, weights, maps and tensions are in range."""
    if not ((record.reasons >= 0) & (record.reasons <= max(Reason))).all():
        raise ValueError(f"reasons must lie in 0..{int(max(Reason))}")
    check_map("weights", record.weights, (3,))
    for name in SCORES:
        check_map(name, getattr(record, name), record.grid)
    shares = list(record.tensions.values())
    if not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"tensions {shares} must lie in [0, 1]")


def check_map(name: str, values: Tensor, shape: tuple[int, ...]) -> None:
    """Raise a ValueError unless a map is float32 of this shape, in [0, 1]."""
    if values.dtype != torch.float32 or tuple(values.shape) != tuple(shape):
        raise ValueError(f"{name} is {values.dtype} {tuple(values.shape)}, not float32 {tuple(shape)}")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"{name} is not within 0 and 1")


def check_guidance(guidance: Guidance) -> None:
    """Raise a ValueError unless the guide's numbers are in [0, 1]."""
    shares = [guidance.confidence, guidance.whole, guidance.odd]
    shares += [share for spot in guidance.spots for share in (spot.likeness, *spot.place)]
    if not all(0 <= share <= 1 for share in shares):
        raise ValueError(f"what the guide says {shares} must lie in [0, 1]")


# ---- pictures -----------------------------------------------------------------------------------------


def small_pictures(visuals: Visuals) -> list[tuple[bytes, ...]]:
    """Pictures of all steps as WebP, within the bounds of a trace; each source picture is read once.

    Raises:
        ValueError: more steps or cells than a trace holds.
    """
    steps = sum(grid[0] for *_, grid in visuals)
    cells = sum(math.prod(grid) for *_, grid in visuals)
    if steps > MAX_STEPS or cells > MAX_STRIP_PIXELS:
        raise ValueError(
            f"a trace holds at most {MAX_STEPS:,} steps, and these are {steps:,} of {cells:,} cells: "
            "sample fewer frames"
        )
    allowed = min(MAX_SMALL_PIXELS, MAX_STRIP_PIXELS // steps)
    sizes = [_fitting(size, grid, allowed) for _, size, grid in visuals]
    made = [
        tuple(_encoded(frame, size) for frame in frames)
        for (frames, *_), size in zip(visuals, sizes, strict=True)
    ]
    while sum(len(picture) for pictures in made for picture in pictures) > MAX_BYTES:
        allowed, before = int(allowed * SHRINK**2), sizes  # by area, hence squared
        sizes = [_fitting(size, grid, allowed) for size, (*_, grid) in zip(sizes, visuals, strict=True)]
        if sizes == before:
            raise ValueError(f"{steps:,} steps of {cells:,} cells are too many to draw: sample fewer frames")
        made = [
            tuple(_encoded(_decoded(picture), size) for picture in pictures)
            for pictures, size in zip(made, sizes, strict=True)
        ]
    return made


def _fitting(size: tuple[int, int], grid: Grid, allowed: int) -> tuple[int, int]:
    """Return the largest size of at most `allowed` px whose sides are multiples of the grid's."""
    (width, height), (_, rows, columns) = size, grid
    share = min(1.0, math.sqrt(allowed / (width * height)))
    return columns * max(1, int(share * width / columns)), rows * max(1, int(share * height / rows))


def _encoded(picture: Image.Image, size: tuple[int, int]) -> bytes:
    file = io.BytesIO()
    picture.convert("RGB").resize(size, Image.Resampling.LANCZOS).save(
        file, "webp", quality=QUALITY, method=2
    )
    return file.getvalue()


def _opened(picture: bytes) -> Image.Image:
    """Return a picture of which only the header is read; a ValueError unless it is one WebP or PNG of legal
    size.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(picture), formats=("WEBP", "PNG"))
    except Exception as error:  # damaged headers make decoders raise anything
        raise ValueError("a picture is no WebP file and no PNG file") from error
    most = MAX_SMALL_PIXELS if image.format == "WEBP" else MAX_PIXELS
    if getattr(image, "n_frames", 1) != 1 or math.prod(image.size) > most:
        raise ValueError(f"a picture of {image.size} px is an animation, or more than {most:,} px")
    return image


def _size(picture: bytes) -> tuple[int, int]:
    """(width, height) in px."""
    return _opened(picture).size


def _decoded(picture: bytes) -> Image.Image:
    try:
        return _opened(picture).convert("RGB")
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"a picture can't be decoded ({error})") from error


def _shown(picture: bytes) -> str:
    """Return a picture as a data URL; a lossless one is compressed."""
    return picture_url(picture, "webp") if picture.startswith(b"RIFF") else drawn_url(_decoded(picture))
