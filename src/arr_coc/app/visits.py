"""Visits of the page: a tab opens with the first sample's answer, and lets its image go when it is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import gradio as gr

from arr_coc.app.tab import Tab

if TYPE_CHECKING:
    from arr_coc.trace.trace import Trace


class Visits:
    """The tabs that are open.

    Args:
        trace: what every tab shows first; None: nothing.
        view: of that trace, one for all tabs.
    """

    def __init__(self, trace: Trace | None, view: dict[str, Any] | None) -> None:
        self.trace, self.view = trace, view
        self._tabs: WeakValueDictionary[str, Tab] = WeakValueDictionary()

    def begin(self, tab: Tab, request: gr.Request) -> Tab:
        """The page was loaded."""
        if self.trace is not None and tab.trace is None:
            tab.open(self.trace, self.view)
        if request.session_hash is not None:
            self._tabs[request.session_hash] = tab
        return tab

    def end(self, request: gr.Request) -> None:
        """The page was closed, or has lost its connection."""
        tab = self._tabs.pop(request.session_hash or "", None)
        if tab is not None:
            tab.rest()
