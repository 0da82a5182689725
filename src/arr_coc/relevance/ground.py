"""Relevance "ground": a detector of transformers finds what the noun phrases of a question name.

    open_relevance("ground:openmmlab-community/mm_grounding_dino_tiny_o365v1_goldg_v3det")
    GroundSource(model, processor)       MM Grounding DINO, Grounding DINO, OmDet-Turbo, OWLv2 or OWL-ViT

For photographs: on screens and documents such detectors are of no use. A cell gets the log odds of the best
of the first boxes that cover it. The calibration is None until `source.calibrate` has found one.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from arr_coc.choose.boxes import Box
from arr_coc.guide.coupling import Calibration, Coupling, Finding
from arr_coc.guide.lexicon import STOP_WORDS
from arr_coc.guide.question import QUESTION_WORDS, split_words
from arr_coc.guide.wording import PICTURE_NAMES, POINTING, SHOWING, TELLING
from arr_coc.relevance.native import colour_levels, load_native, model_place, native_version, to_image
from arr_coc.relevance.source import PictureView, cells_from_boxes, log_odds

DETECTORS = {  # by model type, the classes of transformers that find what a text names
    "mm-grounding-dino": "MMGroundingDinoForObjectDetection",
    "grounding-dino": "GroundingDinoForObjectDetection",
    "omdet-turbo": "OmDetTurboForObjectDetection",
    "owlv2": "Owlv2ForObjectDetection",
    "owlvit": "OwlViTForObjectDetection",
}
EXAMPLE = "openmmlab-community/mm_grounding_dino_tiny_o365v1_goldg_v3det"  # Apache-2.0
MAX_FOUND = (
    10  # the most boxes that count: of MM Grounding DINO's first ten one is right in 95 of 100 (RefCOCO)
)
MAX_PHRASES = 6  # of a question
# Words that ask, and name nothing that can be seen.
UNSEEN = STOP_WORDS | POINTING | QUESTION_WORDS | SHOWING | TELLING | PICTURE_NAMES
UNSEEN |= frozenset("color colors colour colours count kind number photo photograph sort there type".split())


class SeenView(NamedTuple):
    """A picture as a detector takes it with every question."""

    pixels: Tensor  # uint8 [3, h, w]

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the picture in px."""
        return self.pixels.shape[-2], self.pixels.shape[-1]

    @property
    def nbytes(self) -> int:
        return self.pixels.nbytes


class GroundSource:
    """Scores cells by the boxes that a detector finds for the noun phrases of a question.

    Args:
        model: of one of the classes in `DETECTORS`, on any device.
        processor: its processor.
        calibration: of the logits, from `source.calibrate`; None: not known.
    """

    name = "ground"

    def __init__(self, model: Any, processor: Any, calibration: Calibration | None = None) -> None:
        self.model, self.processor = model.eval(), processor
        self.version = native_version(model, processor)
        self.calibration: Calibration | None = calibration

    def view(self, picture: Tensor) -> PictureView:
        return SeenView(colour_levels(picture))

    @torch.no_grad()
    def couple(self, view: PictureView, question: str, grid: tuple[int, int]) -> Coupling:
        assert isinstance(view, SeenView)
        phrases = noun_phrases(question)
        if not phrases:
            return Coupling(cells_from_boxes((), (), grid, view.size), 0.0)
        inputs = self.processor(images=to_image(view.pixels / 255), text=[phrases], return_tensors="pt")
        outputs = self.model(**inputs.to(self.model.device))
        (detected,) = self.processor.post_process_grounded_object_detection(
            outputs, threshold=0.0, target_sizes=[view.size], text_labels=[phrases]
        )
        scores = detected["scores"].float().cpu().nan_to_num(0)
        best = scores.argsort(descending=True, stable=True)[:MAX_FOUND].tolist()
        height, width = view.size
        boxes: list[Box] = []
        findings = []
        for i in best:
            x0, y0, x1, y1 = detected["boxes"][i].float().cpu().nan_to_num(0).tolist()
            boxes.append((x0, y0, x1, y1))
            shares = (_share(x0, width), _share(y0, height), _share(x1, width), _share(y1, height))
            findings.append(Finding(self.name, str(detected["text_labels"][i]), float(scores[i]), shares))
        probabilities = [one.probability for one in findings]
        cells = cells_from_boxes(boxes, [log_odds(one) for one in probabilities], grid, view.size)
        return Coupling(cells, max(probabilities, default=0.0), findings=tuple(findings))


def _share(side: float, of: int) -> float:
    return min(max(side / of, 0.0), 1.0)


def noun_phrases(question: str) -> list[str]:
    """Return the runs of words of a question that name something: of "Is the red car wet?" red car, wet.

    Words are split where small words, and words that only ask, stand; each phrase counts once.
    """
    words = [word.removesuffix("'s") for word in split_words(question)]
    runs = groupby(words, key=lambda word: word in UNSEEN or not any(map(str.isalnum, word)))
    phrases = dict.fromkeys(" ".join(run) for asks, run in runs if not asks)
    return list(phrases)[:MAX_PHRASES]


def open_ground(argument: str = "") -> GroundSource:
    """Open the source "ground:NAME", a model folder or a name on the Hub."""
    return GroundSource(*load_native(*model_place("ground", argument, EXAMPLE), DETECTORS))
