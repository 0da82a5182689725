"""Measuring what is shown, as generators like those of `asking`: the last view has the probe's result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from arr_coc.app.asking import Now, Say, follow, shown_session, shown_trace
from arr_coc.app.models import Models
from arr_coc.app.tab import Tab

if TYPE_CHECKING:
    from arr_coc.model import ARRCOCModel
    from arr_coc.session import Session
    from arr_coc.trace import Trace

Probe = Callable[["Session", "Trace", Callable[[float], None]], dict[str, Any]]


def sweep(session: Session, trace: Trace, progress: Callable[[float], None]) -> dict[str, Any]:
    """From how few tokens would the answer still have come?"""
    from arr_coc.evaluate.probes import budget_sweep

    return budget_sweep(session, trace.question, mode=probe_mode(trace), progress=progress)


def contenders(session: Session, trace: Trace, progress: Callable[[float], None]) -> dict[str, Any]:
    """What would others have said, from as many tokens?"""
    from arr_coc.evaluate.probes import contenders

    return contenders(session, trace.question, trace.kept, progress=progress)


def faithfulness(session: Session, trace: Trace, progress: Callable[[float], None]) -> dict[str, Any]:
    """Does the answer go when the relevant cells go, and come when they come?"""
    from arr_coc.evaluate.probes import faithfulness

    return faithfulness(session, trace.question, mode=probe_mode(trace), progress=progress)


PROBES: dict[str, tuple[str, Probe]] = {
    "sweep": ("How few would do?", sweep),
    "contenders": ("What would others keep?", contenders),
    "faithfulness": ("Is the map faithful?", faithfulness),
}
"""By name in a trace: what its button says, and what it calls."""


def probe_mode(trace: Trace) -> str:
    """Probes choose before the encoder or after it; what does neither is probed as "prune"."""
    return "sparse" if trace.mode == "sparse" else "prune"


def measure(models: Models, tab: Tab, name: str) -> Iterator[Now]:
    """Run one of `PROBES` on what is shown.

    Raises:
        ValueError: nothing is shown.
        Stopped: by the user.
    """
    shown = shown_trace(tab)
    probe = PROBES[name][1]

    def work(model: ARRCOCModel, say: Say) -> dict[str, Any]:
        say("Measuring ...")
        session = shown_session(tab, model)
        return probe(session, shown, lambda share: say(f"Measuring ... {share:.0%}"))

    result = yield from follow(models, tab, work)
    yield Now("Measured.", tab.show(shown.with_probe(name, result)))
