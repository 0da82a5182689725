"""Relevance "ppocr": the OCR of source "ocr" by PP-OCR models of transformers, which also run on a GPU.

    open_relevance("guide+ppocr")            PP-OCRv6 small, from the Hub
    open_relevance("guide+ppocr:DET,REC")    a detector and a recogniser: folders, or names on the Hub
    OcrSource(read=PpOcr(detector, recogniser))

The detector marks the px of lines of print, the recogniser reads each line. It needs no package beside those
of the core. Weights are read from safetensors alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc.relevance.lines import PrintedLine
from arr_coc.relevance.native import load_native, model_place, native_version
from arr_coc.relevance.ocr import CERTAIN, MAX_READ, MAX_READ_SIDE, POOR, OcrSource

DETECTORS = {  # by model type, the classes of transformers that find lines of print
    "pp_ocrv6_small_det": "PPOCRV6SmallDetForObjectDetection",
    "pp_ocrv6_medium_det": "PPOCRV6MediumDetForObjectDetection",
    "pp_ocrv5_mobile_det": "PPOCRV5MobileDetForObjectDetection",
    "pp_ocrv5_server_det": "PPOCRV5ServerDetForObjectDetection",
}
RECOGNISERS = {  # by model type, the classes of transformers that read a line of print
    "pp_ocrv6_small_rec": "PPOCRV6SmallRecForTextRecognition",
    "pp_ocrv6_tiny_rec": "PPOCRV6TinyRecForTextRecognition",
    "pp_ocrv5_mobile_rec": "PPOCRV5MobileRecForTextRecognition",
    "pp_ocrv5_server_rec": "PPOCRV5ServerRecForTextRecognition",
}
EXAMPLE = (  # Apache-2.0
    "PaddlePaddle/PP-OCRv6_small_det_safetensors,PaddlePaddle/PP-OCRv6_small_rec_safetensors"
)
# As RapidOCR has them, with whose lines the head of "ocr" has learned.
SIDES = {"limit_side_len": 736, "limit_type": "min", "max_side_limit": MAX_READ_SIDE}  # px of a picture
INKED, SURE = 0.3, 0.5  # least probability of a px of print, and the least mean of a line's
UNCLIP = 1.6  # by which a line is larger than what is marked of it, in areas per perimeter
THIN = 3.0  # px, the least side of what is marked
MAX_POINTS = 4000  # of an outline that count: a line's are fewer
ROW = 10  # px between the tops of lines of one row, and those of the next
UPRIGHT = 1.5  # times as high as wide, from which a line is taken for one that runs downwards
STEP, BATCH = 160, 8  # px to whose multiples lines are widened, and lines of one width that are read at once
TURNS = np.deg2rad(np.arange(-45, 45, 0.25))  # that a line may have; downwards it is a high one


class PpOcr:
    """An OCR: a function from an RGB array, uint8 [h, w, 3], to the lines of print on it.

    Args:
        detector: a model of one of the classes in `DETECTORS`, on any device, and its processor.
        recogniser: the same of `RECOGNISERS`.

    Raises:
        ValueError: a processor is that of another model.
    """

    def __init__(self, detector: tuple[Any, Any], recogniser: tuple[Any, Any]) -> None:
        (self.detector, self.page_processor), (self.recogniser, self.line_processor) = detector, recogniser
        self.detector.eval(), self.recogniser.eval()
        held = len(getattr(self.line_processor, "character_list", None) or ())
        most = self.recogniser.config.head_out_channels
        if held < most or not hasattr(self.page_processor, "limit_side_len"):
            names = " and ".join(type(one).__name__ for one in (self.page_processor, self.line_processor))
            raise ValueError(
                f"{names}, with {held} characters of {most}, are processors of other models: copy "
                "preprocessor_config.json of the detector's and the recogniser's own"
            )
        self.version = f"{native_version(*detector)}{native_version(*recogniser)}"

    @torch.no_grad()
    def __call__(self, pixels: np.ndarray, /) -> list[PrintedLine]:
        height, width = pixels.shape[:2]
        image = Image.fromarray(pixels)
        image.thumbnail((MAX_READ_SIDE, MAX_READ_SIDE), Image.Resampling.LANCZOS)
        corners = by_rows(self._found(image))
        cuts = [_level(cut_out(image, four)) for four in corners]
        read = self._read(cuts)
        if sum(certainty for _, certainty in read) < POOR * len(read):
            # The page may stand on its head: of each line the surer reading is taken.
            turned = self._read([cut.transpose(Image.Transpose.ROTATE_180) for cut in cuts])
            read = [max(pair, key=lambda one: one[1]) for pair in zip(read, turned, strict=True)]
        scale = np.array([width / image.width, height / image.height])
        lines = []
        for (text, certainty), four in zip(read, corners, strict=True):
            if certainty >= CERTAIN and text.strip():
                (x0, y0), (x1, y1) = four.min(0) * scale, four.max(0) * scale
                lines.append(PrintedLine(text, (float(x0), float(y0), float(x1), float(y1))))
        return lines

    def _found(self, image: Image.Image) -> np.ndarray:
        """Return the corners of the lines on a picture, [L, 4, 2] px, clockwise from the top left."""
        inputs = self.page_processor(images=[image], return_tensors="pt", **SIDES)["pixel_values"]
        chances = self.detector(inputs.to(self.detector.device, self.detector.dtype)).last_hidden_state[0, 0]
        corners = marked(chances.float().cpu().nan_to_num(0).numpy())
        size = np.array(image.size)
        return (corners * size / np.array(chances.shape[::-1])).clip(0, size)

    def _read(self, cuts: Sequence[Image.Image]) -> list[tuple[str, float]]:
        """Return text and certainty of lines; each is read alike, whatever the others are."""
        # The processor stretches all lines of a call to the widest, so each has a call of its own.
        tiles = [self.line_processor(images=[cut], return_tensors="pt")["pixel_values"][0] for cut in cuts]
        tiles = [F.pad(tile, (0, -tile.shape[-1] % STEP)) for tile in tiles]
        read = [("", 0.0)] * len(tiles)
        for width in sorted({tile.shape[-1] for tile in tiles}):
            alike = [i for i, tile in enumerate(tiles) if tile.shape[-1] == width]
            for rows in (alike[first : first + BATCH] for first in range(0, len(alike), BATCH)):
                inputs = torch.stack([tiles[i] for i in rows])
                outputs = self.recogniser(inputs.to(self.recogniser.device, self.recogniser.dtype))
                for i, line in zip(rows, self._spelled(outputs.last_hidden_state), strict=True):
                    read[i] = line
        return read

    def _spelled(self, chances: Tensor) -> list[tuple[str, float]]:
        """Return text and mean certainty of lines from the chances of characters at places, [B, T, C]."""
        best, ids = (one.cpu() for one in chances.float().max(-1))
        new = ids != 0  # the blank
        new[:, 1:] &= ids[:, 1:] != ids[:, :-1]
        spelled = []
        for row, own, likely in zip(ids, new, best, strict=True):
            text = "".join(str(self.line_processor.character_list[i]) for i in row[own].tolist())
            spelled.append((text, float(likely[own].mean()) if text else 0.0))
        return spelled


def marked(chances: np.ndarray) -> np.ndarray:
    """Return the corners of the lines that a map of chances [h, w] marks, [L, 4, 2] in px of the map.

    Each is the smallest rectangle around what is marked, turned as that lies, widened to the whole letters.
    """
    from contourpy import contour_generator

    image, lines = Image.fromarray(chances), []
    across = np.stack((np.cos(TURNS), np.sin(TURNS)))  # [2, T]
    down = np.stack((-np.sin(TURNS), np.cos(TURNS)))
    for outline in contour_generator(z=np.pad(chances, 1)).lines(INKED):
        points = np.asarray(outline)[:: 1 + len(outline) // MAX_POINTS]
        points = points - 0.5  # px have their middle at .5, and there is one px of padding
        if np.ptp(points, 0).min() < THIN:
            continue
        u, v = points @ across, points @ down
        wide, high = np.ptp(u, 0), np.ptp(v, 0)
        turn = (wide * high).argmin()
        wide, high = wide[turn], high[turn]
        if min(wide, high) < THIN:
            continue
        ends = np.array([[u[:, turn].min(), u[:, turn].max()], [v[:, turn].min(), v[:, turn].max()]])
        axes = np.stack((across[:, turn], down[:, turn]))
        if np.asarray(cut_out(image, _corners(ends) @ axes)).mean() < SURE:
            continue
        grown = wide * high * UNCLIP / (2 * (wide + high))
        lines.append(_corners(ends + np.array([-grown, grown])) @ axes)
        if len(lines) == MAX_READ:
            break
    return np.array(lines).reshape(-1, 4, 2)


def _corners(ends: np.ndarray) -> np.ndarray:
    """Return the corners [4, 2] of a rectangle from its ends [[left, right], [top, bottom]], clockwise."""
    return np.stack((ends[0, [0, 1, 1, 0]], ends[1, [0, 0, 1, 1]]), 1)


def by_rows(corners: np.ndarray) -> np.ndarray:
    """Return lines [L, 4, 2] row by row, from left to right within each."""
    corners = corners[corners[:, 0, 1].argsort(kind="stable")]
    rows = (np.diff(corners[:, 0, 1], prepend=0) >= ROW).cumsum()
    return corners[np.lexsort((corners[:, 0, 0], rows))]


def cut_out(image: Image.Image, corners: np.ndarray) -> Image.Image:
    """Return what a rectangle of any turn shows of a picture, upright."""
    top_left, top_right, bottom_right, bottom_left = corners
    wide, high = np.linalg.norm(top_right - top_left), np.linalg.norm(bottom_left - top_left)
    quad = np.concatenate((top_left, bottom_left, bottom_right, top_right)).tolist()
    size = max(1, round(float(wide))), max(1, round(float(high)))
    return image.transform(size, Image.Transform.QUAD, quad, Image.Resampling.BICUBIC)


def _level(cut: Image.Image) -> Image.Image:
    """Return a line that runs across: one that runs downwards is turned."""
    return cut.transpose(Image.Transpose.ROTATE_90) if cut.height >= UPRIGHT * cut.width else cut


def open_ppocr(argument: str = "") -> OcrSource:
    """Open the source "ppocr:DET,REC" with two model folders or names on the Hub; "" is `EXAMPLE`."""
    names = [name.strip() for name in (argument or EXAMPLE).split(",")]
    if len(names) != 2:
        raise ValueError(
            f"relevance ppocr:{argument:.80} is no pair of models: give a detector and a recogniser, such as "
            f"ppocr:{EXAMPLE}"
        )
    places = [model_place("ppocr", name, EXAMPLE) for name in names]
    pairs = zip(places, (DETECTORS, RECOGNISERS), strict=True)
    return OcrSource(PpOcr(*(load_native(*place, classes) for place, classes in pairs)))
