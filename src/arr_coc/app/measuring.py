"""Probes of the tab's trace, as generators like those of `asking`: the last view has the probe's result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from arr_coc.app.asking import Notify, Update, current_session, current_trace, follow
from arr_coc.app.models import Models
from arr_coc.app.tab import Tab
from arr_coc.files.plugins import plugin, plugins
from arr_coc.modes import MODES, PRUNE, SPARSE

if TYPE_CHECKING:
    from arr_coc.model import ARRCOCModel
    from arr_coc.trace.trace import Trace

PROBES = {
    "sweep": "How few would say the same?",
    "contenders": "What would others keep?",
    "faithfulness": "Is the map faithful?",
}
"""The label of its button, by the probe's name in a trace. Probes come with `arr-coc-lab`."""


def probe_names() -> list[str]:
    """The probes that are installed."""
    return [name for name in PROBES if name in plugins("probes")]


def probe_mode(trace: Trace) -> tuple[str, str | None]:
    """The mode that a probe runs, and why it is not that of the trace; None: it is."""
    mode = MODES.get(trace.mode)
    if mode is None:
        return PRUNE.name, f"measured in mode {PRUNE.name}: {trace.mode} is no mode here"
    if mode.chooses and not mode.gestalt:
        return mode.name, None
    if mode.chooses:
        return SPARSE.name, (
            f"measured in mode {SPARSE.name}: the coarse view of {mode.name} answers by itself, which would "
            "hide what the cells do"
        )
    return PRUNE.name, f"measured in mode {PRUNE.name}: {mode.name} chooses no cells"


def measure(models: Models, tab: Tab, name: str) -> Iterator[Update]:
    """Run one of `PROBES` on the tab's trace.

    Raises:
        ValueError: there is no answer yet.
        Stopped: by the user.
    """
    trace, image = current_trace(tab)
    probe = plugin("probes", name)

    def work(model: ARRCOCModel, notify: Notify) -> dict[str, Any]:
        notify("Measuring ...")
        session = current_session(models, tab, model, image)
        return probe(session, trace, probe_mode(trace)[0], lambda share: notify(f"Measuring ... {share:.0%}"))

    result = yield from follow(models, tab, work)
    mode, note = probe_mode(trace)
    result |= {"mode": mode, "note": note}
    yield Update("Measured.", tab.show(trace.with_probe(name, result), image))
