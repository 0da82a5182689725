"""The state of one browser tab: its image, the trace of its last answer, its history.

Tabs share the models and the memory for encoded images (`EncodedMemory`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from PIL import Image

from arr_coc.app.clips import megapixels
from arr_coc.choose.budget import Budget
from arr_coc.data.record import Box
from arr_coc.files.atomic import write_atomic
from arr_coc.files.images import ImageSource
from arr_coc.model import ARRCOCModel
from arr_coc.pixels import PrintedPage
from arr_coc.relevance.deciding import Decision
from arr_coc.selector import KnownPicture, Selector, Sized
from arr_coc.session import Session
from arr_coc.trace.trace import Trace
from arr_coc.trace.viewer import page
from arr_coc.video import FrameSource

T = TypeVar("T", bound=Sized)
TABS = 64  # tabs whose answers are kept, most recently used first; older ones must ask again
MEGAPIXELS = 16  # of all encoded images together; an encoded pixel takes about 40 bytes, so 640 MB
SMALLEST = 0.25  # megapixels that an image counts for at least: small ones are scaled up before encoding
HISTORY = 50  # questions per tab that the history shows
DRAWN = ("format", "question", "weights", "tensions")  # fields of a view that the history draws


@dataclass(frozen=True, eq=False)
class SeenPicture:
    """A picture and the guide's encoding of it."""

    source: ImageSource  # to recognise the picture
    image: Image.Image  # scaled down to what the guide reads
    grid: tuple[int, int]  # (H, W) cells
    selector: Selector  # holds the encoding
    picture: dict[str, Any]  # its part of a view
    page: PrintedPage  # its lines and rows

    @property
    def megapixels(self) -> float:
        return self.image.width * self.image.height / 1e6

    def known(self, picture: ImageSource) -> KnownPicture:
        """As `Selector.known`, of the original."""
        return self.selector.known(picture)

    def beside(self, picture: KnownPicture, make: Callable[[Image.Image], T]) -> T:
        """As `Selector.beside`, of the original."""
        return self.selector.beside(picture, make)

    def decide(
        self, picture: ImageSource | KnownPicture, question: str, budget: Budget | None = None
    ) -> Decision:
        """Return the choice of cells by a question, from the encoding that is held; `picture` is its
        original.
        """
        return self.selector.decide(self.image, question, budget, self.grid)


@dataclass(eq=False)
class Tab:
    """The state of one browser tab: its image and sessions, its last trace, its history."""

    trace: Trace | None = None  # of the answer on the page
    view: dict[str, Any] | None = None  # the viewer's input for it
    subject: ImageSource | FrameSource | None = None  # what it is about; None: only its own picture is left
    image: ImageSource | FrameSource | None = None  # of `sessions`, even if a question failed
    sessions: dict[int, Session] = field(default_factory=dict)  # by the number of the model
    history: list[dict[str, Any]] = field(default_factory=list)  # views of the tab's questions, oldest first
    form_image: ImageSource | None = None  # the last readable image in the form
    clip: FrameSource | None = None  # in place of an image
    truths: dict[str, tuple[str, ...]] = field(default_factory=dict)  # true answers by question
    evidence: dict[str, tuple[Box, ...]] = field(default_factory=dict)  # evidence boxes by question
    record: SeenPicture | None = None  # the form's picture, encoded by the guide
    pictures: int = 0  # number of pictures so far, to discard results for earlier ones
    stopping: bool = False  # the user has stopped this tab's work
    begun: int = 0  # works so far: one that was stopped stays so when the next begins
    closer: bool = False  # the detail view is open
    settings: tuple[Any, ...] | None = None  # of the answer on the page
    moved: bool = False  # the form's image isn't that of the answer
    folder: Path | None = None  # of the tab's exports

    def session(self, model: ARRCOCModel, which: int, image: ImageSource | FrameSource) -> Session:
        """Return the session of an image, a new one if the last was of another; raises as `open_image`."""
        same = image is self.image or (isinstance(image, str) and image == self.image)
        session = self.sessions.get(which) if same else None
        if session is None:
            session = model.session(image)
            if not same:
                self.image, self.sessions = image, {}
            self.sessions[which] = session
        return session

    @property
    def holds(self) -> bool:
        """Whether the tab holds the encoding of any image."""
        return bool(self.sessions) or self.record is not None

    @property
    def megapixels(self) -> float:
        """Megapixels of all encoded images of this tab, each counted as `SMALLEST` at least."""
        pictures = [megapixels(session.image) for session in list(self.sessions.values())]
        record = self.record  # another thread may clear it
        pictures += [] if record is None else [record.megapixels]
        return sum(max(SMALLEST, size) for size in pictures)

    def take(
        self,
        image: ImageSource | None,
        question: str = "",
        answers: tuple[str, ...] = (),
        evidence: Sequence[Box] = (),
    ) -> None:
        """Put an image into the form, with true answers and evidence for one question about it."""
        self.form_image, self.clip, self.moved = image, None, True
        self.truths, self.evidence = {question: answers}, {question: tuple(evidence)}

    def take_clip(self, clip: FrameSource) -> None:
        """Put a clip into the form in place of an image."""
        self.take(None)
        self.clip = clip

    def show(
        self,
        trace: Trace,
        subject: ImageSource | FrameSource | None = None,
        view: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make a trace the tab's current one and return its view.

        `subject` is the image or clip it is about (None: only its own picture); `view` saves drawing it
        again. The same answer with a new probe adds no entry to the history.
        """
        view = trace.view() if view is None else view
        if self.trace is None or self.trace.allocation is not trace.allocation:
            self.history = [*self.history, {key: view[key] for key in DRAWN}][-HISTORY:]
            self.moved = False
        self.trace, self.view, self.subject = trace, view, subject
        return view

    def open(self, trace: Trace, view: dict[str, Any] | None = None) -> dict[str, Any]:
        """Show a saved trace; later questions and probes are about its picture."""
        picture = trace.picture if trace.is_of_image else None
        self.take(picture, trace.question, trace.true_answers, trace.evidence)
        self.image, self.sessions, self.settings, self.moved = picture, {}, None, False
        return self.show(trace, picture, view)

    def export(self) -> tuple[str, str]:
        """Write the trace as an HTML page and a trace file; returns both paths (ValueError: no trace yet)."""
        if self.trace is None or self.view is None:
            raise ValueError("there is nothing to export yet: ask a question first")
        folder = self.export_folder()
        html, record = folder / "arr-coc.html", folder / "arr-coc.safetensors"
        write_atomic(page([self.view], title=self.trace.question).encode(), html)
        self.trace.save(record)
        return str(html), str(record)

    def export_folder(self) -> Path:
        """Return the folder of the tab's exports, made at the first; deleted with the tab."""
        if self.folder is None:
            kept_in = os.environ.get("GRADIO_TEMP_DIR")  # a server deletes this folder when it ends
            self.folder = Path(tempfile.mkdtemp(prefix="arr-coc-export-", dir=kept_in))
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        return self.folder

    def release(self) -> None:
        """Stop this tab's work and free its encodings, after its page was closed."""
        # A page that only lost its connection stays usable: its image is encoded again.
        self.stopping = True
        self.let_go()

    def let_go(self) -> None:
        """Free the encodings; they are computed again on demand."""
        self.sessions, self.record = {}, None

    def close(self) -> None:
        """Delete the exports and free the encodings."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.trace = self.view = self.subject = None
        self.image = self.form_image = self.clip = self.folder = None
        self.let_go()
        self.history = []


class EncodedMemory:
    """A least-recently-used memory of encoded images over all tabs, of at most `megapixels` in total.

    A tab whose image was dropped encodes it again at its next question.
    """

    def __init__(self, megapixels: float = MEGAPIXELS) -> None:
        self.megapixels = megapixels
        self._tabs: OrderedDict[int, weakref.ref[Tab]] = OrderedDict()
        self._lock = Lock()  # models and the guide run in different threads

    def use(self, tab: Tab) -> None:
        """Mark a tab as used, and free the encodings of the least recently used others above the limit."""
        with self._lock:
            self._use(tab)

    def _use(self, tab: Tab) -> None:
        self._tabs[id(tab)] = weakref.ref(tab)
        self._tabs.move_to_end(id(tab))
        alive = [other for ref in self._tabs.values() if (other := ref()) is not None and other.holds]
        self._tabs = OrderedDict((id(other), weakref.ref(other)) for other in alive)
        held = sum(other.megapixels for other in alive)
        for other in alive[:-1]:
            if held <= self.megapixels:
                return
            held -= other.megapixels
            other.let_go()
