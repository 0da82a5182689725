"""Answer: the reply to one question, with a record of the cells it was made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from PIL import Image

from arr_coc.choose.allocation import Allocation, EvidenceBox
from arr_coc.choose.budget import Budget
from arr_coc.choose.reading_order import PrintBlock
from arr_coc.files.drawing import figure, kept_picture
from arr_coc.guide.coupling import Coupling
from arr_coc.pixels.units import unit_evidence
from arr_coc.video.opening import Visual


@dataclass(frozen=True, repr=False)
class Answer:
    """The reply to one question, with a record of the cells it was made from; a notebook displays it.

    Attributes:
        text: the answer.
        allocation: the cells it was made from (all of them in mode "full" and after a fallback), of the first
            image.
        ms: milliseconds per stage, 0 for what a session had already: prompt (opening, preprocessing,
            tokenizing), texture (recovering the picture, its channels), scoring (scorers, stem, the model's
            own attention), balancing, allocating, gestalt (coarse view), encode (vision encoder), prefill (up
            to the first new token), decode, other (the remainder), and total, the sum.
        fallback: the allocation failed and all tokens were used; the reason is in the log.
        mode: that ran; the `note` tells where another was asked for.
        budget: as asked, for each image.
        kept: visual cells that were kept, of all images together.
        total: visual cells of all images.
        read: visual tokens that the language model got: kept cells and a gestalt.
        note: arguments that were not followed and why, or a reason to distrust the answer; None without any.
        allocations: one per image, in their order.
        question: as asked.
        images: the session's pictures and clips, for `show`.
        foreign: an image is unlike all that the model was trained on (`choose.stem`); always False for models
            other than the bundled one, which can't tell.
        couplings: what the guide found about each image; empty where it was not used.
        magnified: per image, how many times finer its kept cells were read (`magnify`), 1 if no finer; None
            if no image's cells were.
    """

    text: str
    allocation: Allocation
    ms: dict[str, float]
    fallback: bool
    mode: str
    budget: Budget
    kept: int
    total: int
    read: int
    note: str | None = None
    allocations: tuple[Allocation, ...] = ()
    question: str = ""
    images: tuple[Visual, ...] = field(default=(), compare=False)
    foreign: bool = False
    couplings: tuple[Coupling, ...] = field(default=(), compare=False)
    magnified: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not self.allocations:
            object.__setattr__(self, "allocations", (self.allocation,))

    @property
    def grid(self) -> tuple[int, int, int]:
        """(T, H, W) of the cells to choose from; in mode "compress" those of the coarse view."""
        return self.allocation.grid

    @cached_property
    def evidence(self) -> tuple[tuple[EvidenceBox, ...], ...]:
        """Per image what the kept cells show, as boxes of whole lines and controls in its px, best first.

        Of a clip, and where there is no print, they are boxes of cells (`Allocation.evidence`).
        """
        pairs = zip(self.images, self.allocations, strict=False)  # an answer made by hand has no images
        return tuple(unit_evidence(image, allocation) for image, allocation in pairs)

    def show(self, which: int = 0) -> Image.Image:
        """An image, or a clip's filmstrip, with the cells faded that were not kept.

        Raises:
            ValueError: there is no image of number `which`, from 0.
        """
        if not 0 <= which < len(self.images):
            raise ValueError(f"image {which} is not in this answer: it has {len(self.images)}, from 0")
        image, allocation = self.images[which], self.allocations[which]
        if isinstance(image, Image.Image):
            return kept_picture(image, allocation.mask())
        from arr_coc.video.filmstrip import filmstrip  # here, so that answers about images don't load it

        return filmstrip(image, allocation)

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 80 else f"{self.text[:80]}..."
        facts = f"kept={self.kept:,} of {self.total:,}, mode={self.mode!r}{', fallback' * self.fallback}"
        return f"Answer(text={text!r}, {facts}, {self.ms.get('total', 0.0):,.0f} ms)"

    def _repr_html_(self) -> str:
        tokens = f"{self.read:,} of {self.total:,} visual tokens, mode {self.mode}"
        rows = [("question", self.question)] if self.question else []
        rows += [("answer", self.text), ("read", tokens), ("time", f"{self.ms.get('total', 0.0):,.0f} ms")]
        rows += [("note", self.note)] if self.note else []
        return figure([self.show(which) for which in range(len(self.images))], rows)


@dataclass(frozen=True)
class Transcription:
    """The text of a page, read part after part.

    Attributes:
        answers: one per part, in reading order.
        blocks: the parts.
        note: why the text is no transcript, for the bundled model; None for others.
    """

    answers: tuple[Answer, ...]
    blocks: tuple[PrintBlock, ...]
    note: str | None = None

    @property
    def text(self) -> str:
        """All answers, a line per part."""
        return "\n".join(answer.text for answer in self.answers)
