"""The state of one browser tab: its image, the trace of its last answer, its history.

Tabs share the models, which keep nothing of a question, and the memory for encoded images (`EncodedMemory`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from PIL import Image

from arr_coc.app.clips import megapixels
from arr_coc.data.record import Box
from arr_coc.files.atomic import write_atomic
from arr_coc.files.images import ImageSource
from arr_coc.guide.selector import Selector
from arr_coc.model import ARRCOCModel
from arr_coc.session import Session
from arr_coc.trace.trace import Trace
from arr_coc.trace.viewer import page
from arr_coc.video import FrameSource

TABS = 64
"""Tabs whose answers are kept, the last used; an older one has to ask again."""
MEGAPIXELS = 16
"""Of the images that are kept encoded, over all tabs: an encoded pixel takes about 40 bytes, so 640 MB."""
SMALLEST = 0.25
"""Megapixels that an image counts for at least: a small one is encoded larger than it is."""
HISTORY = 50
"""Questions of a tab whose balance is kept, at most."""
DRAWN = ("format", "question", "weights", "tensions")
"""What the viewer draws of a question in the history."""


@dataclass(frozen=True, eq=False)
class SeenPicture:
    """What a tab keeps of the picture that it looks at.

    Attributes:
        source: the picture as it came, to tell it from the next.
        image: opened, at most as large as the guide reads it.
        grid: (H, W) cells, of the picture as it came.
        selector: has looked at it.
        picture: what the viewer draws of it.
    """

    source: ImageSource
    image: Image.Image
    grid: tuple[int, int]
    selector: Selector
    picture: dict[str, Any]

    @property
    def megapixels(self) -> float:
        """Of the picture."""
        return self.image.width * self.image.height / 1e6


@dataclass(eq=False)
class Tab:
    """The state of one tab.

    Attributes:
        trace: of the answer on the page; None before the first one.
        view: what the viewer draws of it.
        subject: the image or clip that it is about; None: there is only the picture in it, if any.
        image: of the sessions: a path or a picture, or a clip; another than the subject's where a later
            question was stopped or refused.
        sessions: of that image, by the number of the model.
        history: what the viewer draws of the tab's questions beside each other, oldest first.
        form_image: the image in the form, the last one that could be read.
        clip: in the form, where it takes the image's place; None: there is none.
        truths: answers that are known to be true of it, by question.
        evidence: boxes that show the answer to a question, by question.
        record: the picture in the form as the live view has read it; None: nothing is kept of it.
        pictures: how many the form was given; what is found in one is not shown once another is there.
        stopping: the user wants the work for this tab to end.
        closer: the microscope is open.
        settings: of the form, with which the answer on the page was made; None: as the form begins.
        moved: the image in the form is another than that of the answer on the page.
        folder: where its exports lie; None: there are none.
    """

    trace: Trace | None = None
    view: dict[str, Any] | None = None
    subject: ImageSource | FrameSource | None = None
    image: ImageSource | FrameSource | None = None
    sessions: dict[int, Session] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    form_image: ImageSource | None = None
    clip: FrameSource | None = None
    truths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    evidence: dict[str, tuple[Box, ...]] = field(default_factory=dict)
    record: SeenPicture | None = None
    pictures: int = 0
    stopping: bool = False
    closer: bool = False
    settings: tuple[Any, ...] | None = None
    moved: bool = False
    folder: Path | None = None

    def session(self, model: ARRCOCModel, which: int, image: ImageSource | FrameSource) -> Session:
        """The session of an image, made anew if the tab's last question was about another.

        Raises:
            ValueError: the image can't be read.
        """
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
        """Whether anything computed of an image is kept."""
        return bool(self.sessions) or self.record is not None

    @property
    def megapixels(self) -> float:
        """Of the images of its sessions and of the one that it looks at, together."""
        pictures = [megapixels(session.image) for session in list(self.sessions.values())]
        record = self.record  # another thread may let it go
        pictures += [] if record is None else [record.megapixels]
        return sum(max(SMALLEST, size) for size in pictures)

    def take(
        self,
        image: ImageSource | None,
        question: str = "",
        answers: tuple[str, ...] = (),
        evidence: Sequence[Box] = (),
    ) -> None:
        """Put an image into the form, with what is known to be true of one question about it; no clip."""
        self.form_image, self.clip, self.moved = image, None, True
        self.truths, self.evidence = {question: answers}, {question: tuple(evidence)}

    def take_clip(self, clip: FrameSource) -> None:
        """Put a clip into the form, in the image's place."""
        self.take(None)
        self.clip = clip

    def show(
        self,
        trace: Trace,
        subject: ImageSource | FrameSource | None = None,
        view: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make a trace the tab's own; returns its view. The same answer with a new probe adds no history.

        Args:
            trace: the trace.
            subject: the image or clip that it is about; None: only the picture in it is there.
            view: of the trace, where it has been made already.
        """
        view = trace.view() if view is None else view
        if self.trace is None or self.trace.allocation is not trace.allocation:
            self.history = [*self.history, {key: view[key] for key in DRAWN}][-HISTORY:]
            self.moved = False
        self.trace, self.view, self.subject = trace, view, subject
        return view

    def open(self, trace: Trace, view: dict[str, Any] | None = None) -> dict[str, Any]:
        """Make a saved trace the tab's own; later questions and probes are about its picture."""
        picture = trace.picture if trace.is_of_image else None
        self.take(picture, trace.question, trace.true_answers, trace.evidence)
        self.image, self.sessions, self.settings, self.moved = picture, {}, None, False
        return self.show(trace, picture, view)

    def export(self) -> tuple[str, str]:
        """Write the trace as one HTML page and as one trace file; returns their paths.

        Raises:
            ValueError: there is no answer yet.
        """
        if self.trace is None or self.view is None:
            raise ValueError("there is nothing to export yet: ask a question first")
        kept_in = os.environ.get("GRADIO_TEMP_DIR")  # a server deletes it when it ends
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="arr-coc-export-", dir=kept_in))
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        html, record = self.folder / "arr-coc.html", self.folder / "arr-coc.safetensors"
        write_atomic(page([self.view], title=self.trace.question).encode(), html)
        self.trace.save(record)
        return str(html), str(record)

    def release(self) -> None:
        """The page was closed: end what runs for it, and let the encoded image go."""
        # A page that has only lost its connection goes on: its image is encoded again.
        self.stopping = True
        self.let_go()

    def let_go(self) -> None:
        """Forget what was computed of its images; it is computed again when it is needed."""
        self.sessions, self.record = {}, None

    def close(self) -> None:
        """Delete the exports and forget the image."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.trace = self.view = self.subject = None
        self.image = self.form_image = self.clip = self.folder = None
        self.let_go()
        self.history = []


class EncodedMemory:
    """The memory for encoded images, over all tabs: the last used are kept, of `MEGAPIXELS` in all.

    A tab whose image was let go encodes it again with its next question; nothing is said of it.
    """

    def __init__(self, megapixels: float = MEGAPIXELS) -> None:
        self.megapixels = megapixels
        self._tabs: OrderedDict[int, weakref.ref[Tab]] = OrderedDict()
        self._lock = Lock()  # models and the guide run in threads of their own

    def use(self, tab: Tab) -> None:
        """Note that a tab's sessions are in use, and let go those that were not for longest, but its own."""
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
