"""Answer: what came back for one question, with the record of what it was read from."""

from __future__ import annotations

from dataclasses import dataclass, field

from PIL import Image

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.budget import Budget
from arr_coc.choose.reading_order import PrintBlock
from arr_coc.files.drawing import figure, kept_picture
from arr_coc.guide.coupling import Coupling
from arr_coc.video.opening import Visual


@dataclass(frozen=True, repr=False)
class Answer:
    """What came back for one question. In a notebook it shows itself; `show` is its picture.

    Attributes:
        text: the answer.
        allocation: which cells the answer was made from (all of them in mode "full" and after a
            fallback); of several images, that of the first.
        ms: milliseconds per stage: prompt (opening and preprocessing the image, tokenizing), texture
            (recovering the picture and its channels), scoring (the three scorers, and a stem or a look of the
            model's own), balancing, allocating, gestalt (the coarse view), encode (vision encoder), prefill
            (up to the first new token), decode (the rest of the answer), other (what is left: putting the
            shorter prompt together, and at a mode's first call its LoRAs in place), and total, to which the
            others add up. Texture, gestalt and encode are 0 where a session had them.
        fallback: the allocation failed and all tokens were used; the reason is in the log.
        mode: what ran; with a `note`, possibly another than was asked for.
        budget: as asked, for each image.
        kept: visual cells that were kept, of all images together.
        total: visual cells the images have.
        read: visual tokens the language model was given: the cells that were kept, and a gestalt.
        note: what was not followed to the letter and why (another mode ran, a budget was cut, an argument had
            no effect), or that the answer is not to be trusted; None where there is nothing to say.
        allocations: one per image, in their order.
        question: as asked.
        images: the session's own pictures and clips, for `show`; empty where there are none.
        foreign: an image looks unlike all that the model was taught on (`choose.stem`); False also
            where nobody can say, which is with every model but the bundled one.
        couplings: per image what the guide said of it and the question; empty where it wasn't asked.
        looks: how often the model looked; more than once in a call that allows it (`looks=2`).
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
    looks: int = 1

    def __post_init__(self) -> None:
        """An answer about one image has its one allocation."""
        if not self.allocations:
            object.__setattr__(self, "allocations", (self.allocation,))

    @property
    def grid(self) -> tuple[int, int, int]:
        """(T, H, W) of the cells to choose from; in mode "compress" those of the coarse view."""
        return self.allocation.grid

    def show(self, which: int = 0) -> Image.Image:
        """An image with the cells that the answer was not read from faded; a notebook displays it. Of a clip
        its filmstrip.

        Args:
            which: of several images, from 0.

        Raises:
            ValueError: an answer without that image.
        """
        if not 0 <= which < len(self.images):
            raise ValueError(f"image {which} is not in this answer: it has {len(self.images)}, from 0")
        image, allocation = self.images[which], self.allocations[which]
        if isinstance(image, Image.Image):
            return kept_picture(image, allocation.mask())
        from arr_coc.video.filmstrip import filmstrip  # most answers are about images

        return filmstrip(image, allocation)

    def __repr__(self) -> str:
        """One line, without tensors and pictures."""
        text = self.text if len(self.text) <= 80 else f"{self.text[:80]}..."
        facts = f"kept={self.kept:,} of {self.total:,}, mode={self.mode!r}{', fallback' * self.fallback}"
        return f"Answer(text={text!r}, {facts}, {self.ms.get('total', 0.0):,.0f} ms)"

    def _repr_html_(self) -> str:
        """For notebooks: the picture of the kept cells, the answer, and what it took."""
        tokens = f"{self.read:,} of {self.total:,} visual tokens, mode {self.mode}"
        rows = [("question", self.question)] if self.question else []
        rows += [("answer", self.text), ("read", tokens), ("time", f"{self.ms.get('total', 0.0):,.0f} ms")]
        rows += [("note", self.note)] if self.note else []
        return figure([self.show(which) for which in range(len(self.images))], rows)


@dataclass(frozen=True)
class Transcription:
    """What came back for all parts of a page.

    Attributes:
        answers: one per part, in reading order; each says which cells it was made from.
        blocks: the parts.
        note: why the text is no transcript, for the bundled model; None for others.
    """

    answers: tuple[Answer, ...]
    blocks: tuple[PrintBlock, ...]
    note: str | None = None

    @property
    def text(self) -> str:
        """All of it, a line per part."""
        return "\n".join(answer.text for answer in self.answers)
