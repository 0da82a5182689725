"""Probes of the tab's trace, as generators like those of `asking`: the last view has the probe's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from arr_coc.app.asking import Notify, Update, current_session, current_trace, follow
from arr_coc.app.models import Models
from arr_coc.app.tab import Tab
from arr_coc.modes import MODES, PRUNE, SPARSE

if TYPE_CHECKING:
    from arr_coc.inspect.trace import Trace
    from arr_coc.model import ARRCOCModel
    from arr_coc.session import Session

Probe = Callable[["Session", "Trace", Callable[[float], None]], dict[str, Any]]


def sweep(session: Session, trace: Trace, progress: Callable[[float], None]) -> dict[str, Any]:
    """The answer from ever fewer tokens; see `budget_sweep`."""
    from arr_coc.evaluate.probes import budget_sweep

    mode, truths = probe_mode(trace)[0], trace.true_answers
    return budget_sweep(session, trace.question, mode=mode, true_answers=truths, progress=progress)


def contenders(session: Session, trace: Trace, progress: Callable[[float], None]) -> dict[str, Any]:
    """The answers of other methods from as many tokens."""
    from arr_coc.evaluate.probes import contenders

    mode, truths = probe_mode(trace)[0], trace.true_answers
    return contenders(session, trace.question, trace.kept, mode=mode, true_answers=truths, progress=progress)


def faithfulness(session: Session, trace: Trace, progress: Callable[[float], None]) -> dict[str, Any]:
    """How the answer fades and returns as relevant cells are deleted and inserted."""
    from arr_coc.evaluate.probes import faithfulness

    return faithfulness(session, trace.question, mode=probe_mode(trace)[0], progress=progress)


PROBES: dict[str, tuple[str, Probe]] = {
    "sweep": ("How few would say the same?", sweep),
    "contenders": ("What would others keep?", contenders),
    "faithfulness": ("Is the map faithful?", faithfulness),
}
"""The label of its button and the function, by the probe's name in a trace."""


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
    probe = PROBES[name][1]

    def work(model: ARRCOCModel, notify: Notify) -> dict[str, Any]:
        notify("Measuring ...")
        session = current_session(models, tab, model, image)
        return probe(session, trace, lambda share: notify(f"Measuring ... {share:.0%}"))

    result = yield from follow(models, tab, work)
    mode, note = probe_mode(trace)
    result |= {"mode": mode, "note": note}
    yield Update("Measured.", tab.show(trace.with_probe(name, result), image))
