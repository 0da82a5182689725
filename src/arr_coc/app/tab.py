"""The state of one browser tab: its image, the trace of its last answer, its history.

Tabs share nothing but the models, which keep nothing of a question.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arr_coc.core.images import ImageSource
    from arr_coc.inspect.trace import Trace
    from arr_coc.model import ARRCOCModel
    from arr_coc.session import Session

HISTORY = 50
"""Questions of a tab whose balance is kept, at most."""


@dataclass(eq=False)
class Tab:
    """The state of one tab.

    Attributes:
        trace: of the answer on the page; None before the first one.
        view: what the viewer draws of it.
        image: of the sessions: a path or a picture.
        sessions: of that image, by the number of the model.
        history: what the viewer needs of the tab's questions, without their images, oldest first.
        form_image: the image in the form, the last one that could be read.
        stopping: the user wants the work for this tab to end.
        closer: the microscope is open.
        folder: where its exports lie; None: there are none.
    """

    trace: Trace | None = None
    view: dict[str, Any] | None = None
    image: ImageSource | None = None
    sessions: dict[int, Session] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    form_image: ImageSource | None = None
    stopping: bool = False
    closer: bool = False
    folder: Path | None = None

    def session(self, model: ARRCOCModel, which: int, image: ImageSource) -> Session:
        """The session of an image, made anew if the tab's last question was about another.

        Raises:
            ValueError: the image can't be read.
        """
        same = image is self.image or (isinstance(image, str) and image == self.image)
        if not same or which not in self.sessions:
            opened = model.session(image)
            if not same:
                self.image, self.sessions = image, {}
            self.sessions[which] = opened
        return self.sessions[which]

    def show(self, trace: Trace) -> dict[str, Any]:
        """Make a trace the tab's own; returns its view. The same answer with a new probe adds no history."""
        view = trace.view()
        if self.trace is None or self.trace.allocation is not trace.allocation:
            small = {key: value for key, value in view.items() if key not in ("image", "layers", "words")}
            self.history = [*self.history, small][-HISTORY:]
        self.trace, self.view = trace, view
        return view

    def open(self, trace: Trace) -> dict[str, Any]:
        """Make a saved trace the tab's own, its picture the image of later questions and probes."""
        self.image = self.form_image = trace.picture
        self.sessions = {}
        return self.show(trace)

    def export(self) -> tuple[str, str]:
        """Write the trace as one HTML page and as one trace file; returns their paths.

        Raises:
            ValueError: there is no answer yet.
        """
        if self.trace is None or self.view is None:
            raise ValueError("there is nothing to export yet: ask a question first")
        from arr_coc.viewer import page

        kept_in = os.environ.get("GRADIO_TEMP_DIR")  # a server deletes it when it ends
        self.folder = self.folder or Path(tempfile.mkdtemp(prefix="arr-coc-export-", dir=kept_in))
        html, record = self.folder / "arr-coc.html", self.folder / "arr-coc.safetensors"
        html.write_text(page([self.view], title=self.trace.question), encoding="utf-8")
        self.trace.save(record)
        return str(html), str(record)

    def close(self) -> None:
        """Delete the exports and forget the image."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.trace = self.view = self.image = self.form_image = self.folder = None
        self.sessions, self.history = {}, []
