"""Clips in a vision-language prompt: their steps, made when they are read, and the times of the steps.

A step is one entry of the temporal grid: two frames of the clip, read by the language model as one.

    steps = ClipSteps(processor.video_processor, clip, (T, h, w))    frames scaled as read, held as uint8
    steps.rows(t)       float [h*w, d]: rows of `pixel_values_videos` of step t, to the last bit
    steps.picture(t)    float [3, h', w'] in [0, 1]: the frame whose cells are scored
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor
from transformers.image_utils import SizeDict
from transformers.video_processing_utils import BaseVideoProcessor

from arr_coc.seam.assembly import PromptAssembly
from arr_coc.video import FrameSource
from arr_coc.video.source import FPS, MIN_FRAMES

logger = logging.getLogger(__name__)

Grid = tuple[int, int, int]  # steps, and rows and columns of patches


def outline(clip: FrameSource, frames: int) -> Tensor:
    """Frames of a clip without their pixels, uint8 [frames, 3, h, w]: enough for grid and prompt."""
    width, height = clip.size
    return torch.empty(frames, 3, height, width, dtype=torch.uint8, device="meta")


def crowded(reader: Any, clip: FrameSource, grid: Grid) -> str | None:
    """The note that a clip sampled faster than by default has smaller steps; None if it hasn't.

    A processor that shares its pixels among all frames of a clip scales each down where there are more.
    """
    seconds = clip.times[-1] - clip.times[0]
    usual = max(MIN_FRAMES, int(FPS * seconds) + 1)
    if usual >= len(clip) or seconds <= 0:
        return None
    other = _processed(reader, outline(clip, usual))["video_grid_thw"][0].tolist()
    merged = getattr(reader, "merge_size", 1) ** 2
    now, then = (rows * columns // merged for _, rows, columns in (grid, other))
    if now >= then:
        return None
    rate = (len(clip) - 1) / seconds
    return (
        f"at {rate:.3g} frames per second each of the {grid[0]:,} steps has {now:,} cells, at {FPS:g} it has "
        f"{then:,}: the model's processor shares its pixels among all frames, so sample fewer to see more"
    )


def takes_steps(processor: Any) -> bool:
    """Whether a video processor makes the same rows, to the last bit, of a step alone as within its clip.

    It is tried with a few pixels; a processor that fails takes no steps.
    """
    names = ("patch_size", "temporal_patch_size", "do_resize", "resample")
    if any(getattr(processor, name, None) is None for name in names):
        return False
    if not isinstance(processor, BaseVideoProcessor):
        return False
    try:
        return _same_alone(processor)
    except Exception:  # whatever it takes ill, such as an outline: then it gets all frames, as by itself
        logger.info("%s takes no steps", type(processor).__name__, exc_info=True)
        return False


def _same_alone(processor: Any) -> bool:
    patch, frames = processor.patch_size, 2 * processor.temporal_patch_size
    side = 4 * patch * getattr(processor, "merge_size", 1)
    clip = torch.randint(
        0, 256, (frames, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    whole = _processed(processor, clip)
    grid = _processed(processor, clip.to("meta")).get("video_grid_thw")
    if grid is None or grid.device.type == "meta" or not torch.equal(grid, whole["video_grid_thw"]):
        return False
    steps = ClipSteps(processor, clip, tuple(grid[0].tolist()))
    alone = torch.cat([steps.rows(step) for step in range(len(steps))])
    return torch.equal(alone, whole["pixel_values_videos"])


class ClipSteps:
    """One clip at the size in which a model reads it; frames are read once, from the first to the last.

    `grid` is what the processor makes of the clip; `frames` uint8 [steps * frames of a step, 3, h, w];
    `looked` holds per step the number in `frames` of its picture.
    """

    def __init__(self, processor: Any, clip: FrameSource | Tensor, grid: Grid) -> None:
        self.processor, self.grid = processor, grid
        self.per_step = int(processor.temporal_patch_size)
        steps, rows, columns = grid
        size = rows * processor.patch_size, columns * processor.patch_size
        self.frames = torch.empty(steps * self.per_step, 3, *size, dtype=torch.uint8)
        last = -1
        for last, frame in enumerate(_tensors(clip)):
            self.frames[last] = self._scaled(frame, size)
        self.frames[last + 1 :] = self.frames[last].clone()  # a last step that lacks frames repeats one
        self.looked = self._look()

    def __len__(self) -> int:
        return self.grid[0]

    def rows(self, step: int) -> Tensor:
        """The processor's rows of a step: float [h*w, d]."""
        start = step * self.per_step
        frames = self.frames[start : start + self.per_step]
        return _processed(self.processor, frames, do_resize=False)["pixel_values_videos"]

    def picture(self, step: int) -> Tensor:
        """The picture by which cells of a step are scored, float32 [3, h', w'] in [0, 1]."""
        picture = self._normalised(self.looked[step])
        if self.processor.do_normalize:
            mean, std = (
                torch.tensor(some, dtype=torch.float32).view(3, 1, 1)
                for some in (self.processor.image_mean, self.processor.image_std)
            )
            picture = picture.mul(std).add_(mean)
        return picture.clamp_(0.0, 1.0)

    def _look(self) -> list[int]:
        """Which frame of each step differs most from the picture before it; the first of equal ones."""
        looked: list[int] = []
        for start in range(0, len(self.frames), self.per_step):
            numbers = range(start, start + self.per_step)
            first = self.frames[start]  # uint8 [3, h, w]
            if all(torch.equal(first, self.frames[number]) for number in numbers[1:]):
                looked.append(start)
            else:
                ends = [self._normalised(number) for number in (numbers[0], numbers[-1])]
                against = self._normalised(looked[-1]) if looked else ends[0]
                changed = [float((picture - against).abs().sum()) for picture in ends]
                looked.append(numbers[-1] if changed[1] > changed[0] else numbers[0])
        return looked

    def _normalised(self, number: int) -> Tensor:
        own = self.processor
        return own.rescale_and_normalize(
            self.frames[number][None],
            own.do_rescale, own.rescale_factor, own.do_normalize, own.image_mean, own.image_std,
        )[0].float()  # fmt: skip

    def _scaled(self, frame: Tensor, size: tuple[int, int]) -> Tensor:
        """A frame [3, h, w] at the size of the grid, by the processor's own filter."""
        if not self.processor.do_resize:
            return frame
        target = SizeDict(height=size[0], width=size[1])
        return BaseVideoProcessor.resize(self.processor, frame[None], target, self.processor.resample)[0]


class Step(NamedTuple):
    """One step of a clip (frames that a model reads as one), by its number; its rows are not made yet."""

    clip: ClipSteps
    number: int

    @property
    def patches(self) -> int:
        """Number of patches of the step, each a row of pixels."""
        return self.clip.grid[1] * self.clip.grid[2]


class StepPixels:
    """Clips in the place of a processor's `pixel_values_videos`; `whole()` is that tensor [rows, d]."""

    def __init__(self, clips: Sequence[ClipSteps], device: torch.device | str = "cpu") -> None:
        self.clips, self.device = list(clips), torch.device(device)

    def to(self, device: torch.device | str) -> StepPixels:
        return StepPixels(self.clips, device)

    def whole(self) -> Tensor:
        steps = (Step(clip, number) for clip in self.clips for number in range(len(clip)))
        return StepRows(list(steps), self.device).whole()


class StepRows:
    """Images and steps in the place of `pixel_values`: rows that are made on `device` when they are read.

    `parts`: per image its rows [n, d], per step of a clip the `Step`.
    """

    def __init__(self, parts: Sequence[Tensor | Step], device: torch.device) -> None:
        self.parts, self.device = list(parts), device
        self.counts = [part.patches if isinstance(part, Step) else len(part) for part in parts]

    def __getitem__(self, rows: Tensor) -> Tensor:
        """The rows of rising numbers, [n, d]; steps without one are not made."""
        ends = list(accumulate(self.counts))
        bounds = torch.tensor([0, *ends], device=rows.device)  # of parts, in rows
        cuts = torch.searchsorted(rows, bounds).tolist()  # where each part's rows begin among those asked for
        made = [
            self._rows(part)[rows[low:high].to(self.device) - (end - count)]
            for part, count, end, low, high in zip(
                self.parts, self.counts, ends, cuts, cuts[1:], strict=False
            )
            if high > low
        ]
        return torch.cat(made)

    def split(self, counts: Sequence[int]) -> Iterator[Tensor]:
        """The rows of each image or step, one after another; a ValueError for other counts than there are."""
        if list(counts) != self.counts:
            raise ValueError(f"images and steps of {self.counts} rows can't be read as {list(counts)}")
        return map(self._rows, self.parts)

    def whole(self) -> Tensor:
        return torch.cat(list(self.split(self.counts)))

    def pictures(self, adapter: Any, grids: Tensor) -> Pictures:
        """The pictures of images, by a `FamilyAdapter`, and of steps; `grids` [parts, 3] are of patches."""

        def of_image(rows: Tensor, grid: Tensor) -> Tensor:
            return adapter.images({"pixel_values": rows, "image_grid_thw": grid[None]})[0]

        def of_step(step: Step) -> Callable[[], Tensor]:
            return lambda: step.clip.picture(step.number).to(self.device)

        return Pictures(
            [
                of_step(part) if isinstance(part, Step) else of_image(part, grid)
                for part, grid in zip(self.parts, grids, strict=True)
            ]
        )

    def _rows(self, part: Tensor | Step) -> Tensor:
        return part.clip.rows(part.number).to(self.device) if isinstance(part, Step) else part


class Pictures(Sequence[Tensor]):
    """A sequence of pictures [3, h, w], each made when it is read."""

    def __init__(self, makers: Sequence[Tensor | Callable[[], Tensor]]) -> None:
        self.makers = list(makers)

    def __len__(self) -> int:
        return len(self.makers)

    @overload
    def __getitem__(self, place: int) -> Tensor: ...
    @overload
    def __getitem__(self, place: slice) -> Pictures: ...
    def __getitem__(self, place: int | slice) -> Tensor | Pictures:
        if isinstance(place, slice):
            return Pictures(self.makers[place])
        maker = self.makers[place]
        return maker if isinstance(maker, Tensor) else maker()


def with_whole_pixels(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Inputs whose pixels are tensors, made now where they weren't; the caller's own where they were."""
    lazy = {k: v.whole() for k, v in inputs.items() if isinstance(v, StepPixels | StepRows)}
    return {**inputs, **lazy} if lazy else inputs


def _processed(processor: Any, frames: Tensor, **more: Any) -> Any:
    return processor(videos=[frames], do_sample_frames=False, return_tensors="pt", **more)


def _tensors(clip: FrameSource | Tensor) -> Iterator[Tensor]:
    """The frames of a clip, uint8 [3, h, w]."""
    if isinstance(clip, Tensor):
        return iter(clip)
    return (torch.from_numpy(pixels.copy()).permute(2, 0, 1) for pixels in clip.arrays())


# The time that processors write ahead of each step of a clip, or, as GLM-4V's, behind it.
TIME = re.compile(
    r"<(?P<middle>\d+(?:\.\d+)?) seconds>(?=<\|(?i:vision_start)\|>)"  # Qwen3-VL and Compass: ahead of a step
    r"|(?<=<\|end_of_image\|>)(?P<start>\d+(?:\.\d+)?)(?: seconds)?"
    r"(?=<\|begin_of_image\|>|<\|end_of_video\|>)"
)


def clip_step_times(
    family: PromptAssembly, inputs: Mapping[str, Any], frames: Sequence[int]
) -> tuple[tuple[float, ...] | None, ...]:
    """Per image or clip the seconds at which its steps begin; None of an image, or where they are unknown.

    Qwen3-VL and Qwen3.5 write each step's middle ahead of it, GLM-4V its start behind it, Qwen2.5-VL tells
    how long a step lasts, Qwen2-VL nothing. `frames` are the steps of each, 1 for an image.
    """
    steps = [int(grid[0]) for grid in inputs["video_grid_thw"]]
    seconds = inputs.get("second_per_grid_ts")
    if seconds is not None:
        lengths = seconds.tolist() if isinstance(seconds, Tensor) else list(seconds)
        times = [
            tuple(number * length for number in range(count))
            for count, length in zip(steps, lengths, strict=True)
        ]
    else:
        written = _written(family, inputs["input_ids"])
        if len(written) != sum(steps):
            return (None,) * len(frames)
        rest = iter(written)
        times = [_begins(list(islice(rest, count))) for count in steps]
    clips = iter([own for own in times if len(own) > 1])
    return tuple(next(clips, None) if count > 1 else None for count in frames)


def _begins(written: Sequence[float]) -> tuple[float, ...]:
    """Beginnings of a clip's steps, ascending, from their written middles or beginnings.

    The first one begins at 0, or half a step early in a part of a clip. All others begin as much before what
    is written, but at most half of the time to their neighbours: recorded screens aren't evenly spaced.
    """
    gaps = [after - time for time, after in pairwise(written)]
    first = written[0]
    early = first if not gaps or first <= gaps[0] else gaps[0] / 2
    around = pairwise([*gaps, math.inf])  # of each but the first one
    later = (
        time - min(early, before / 2, after / 2)
        for time, (before, after) in zip(written[1:], around, strict=True)
    )
    return (first - early, *later)


def _written(family: PromptAssembly, ids: Tensor) -> list[float]:
    """The times that stand in prompts [B, S], in order."""
    tokenizer = getattr(family.processor, "tokenizer", None)
    if tokenizer is None:
        return []
    visual = [family.image_token_id, getattr(family.model.config, "video_token_id", None)]
    drop = torch.tensor([token for token in visual if token is not None], device=ids.device)
    times = []
    for row in ids:
        text = tokenizer.decode(row[~torch.isin(row, drop)], skip_special_tokens=False)
        times += [float(match["middle"] or match["start"]) for match in TIME.finditer(text)]
    return times
