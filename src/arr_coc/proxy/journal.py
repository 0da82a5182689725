"""What the proxy did: counters for Prometheus, and the last requests as records, JSON and a page."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from arr_coc.files.paths import shorten
from arr_coc.proxy.packing import REASONS, Outcome, facts

MOST_DRAWN = 8  # pictures of a request that are kept for the page
SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)  # bounds of the histogram of choosing


class RequestedPicture(NamedTuple):
    """A picture of a request: what became of it, and for which questions."""

    questions: tuple[str, ...]
    outcome: Outcome


class RequestRecord(NamedTuple):
    """A request with pictures. Nothing of its headers, keys or answer is in it."""

    number: int
    time: float  # seconds since 1970
    path: str  # without its query
    model: str
    rule: str
    status: int
    ms: float  # until the answer began
    before: int  # tokens of its pictures, whole
    after: int  # tokens of what was sent for them
    pictures: tuple[RequestedPicture, ...]  # the last MOST_DRAWN, without what was sent for them

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values, without pictures."""
        return {
            "number": self.number,
            "time": round(self.time, 3),
            "path": self.path,
            "model": self.model,
            "rule": self.rule,
            "status": self.status,
            "ms": round(self.ms, 1),
            "tokens_before": self.before,
            "tokens_after": self.after,
            "pictures": [{"questions": list(one.questions)} | facts(one.outcome) for one in self.pictures],
        }


class Journal:
    """The counters and the last requests of one proxy.

    Args:
        most: requests that are kept, in memory alone; 0: none.
    """

    def __init__(self, most: int = 100) -> None:
        self.records: deque[RequestRecord] = deque(maxlen=most)
        self._numbers = count(1)
        self.registry = CollectorRegistry()
        made: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter(
            "arr_coc_requests", "Requests by API and by what was sent.", ("api", "sent"), **made
        )
        self.pictures = Counter(
            "arr_coc_pictures", "Pictures of users by what became of them.", ("outcome",), **made
        )
        self.whole = Counter(
            "arr_coc_whole_pictures", "Pictures that went on whole, by reason.", ("reason",), **made
        )
        self.before = Counter("arr_coc_tokens_before", "Tokens of the pictures, whole.", ("rule",), **made)
        self.after = Counter("arr_coc_tokens_after", "Tokens of what was sent for them.", ("rule",), **made)
        self.choosing = Histogram(
            "arr_coc_choosing_seconds", "Of choosing and packing a picture.", buckets=SECONDS, **made
        )
        self.errors = Counter(
            "arr_coc_upstream_errors", "Requests that the upstream could not be asked.", **made
        )
        self.kept = Gauge("arr_coc_kept_bytes", "Bytes of packed pictures that are kept.", **made)

    def count_pictures(self, rule: str, outcomes: Sequence[Outcome]) -> None:
        """Add the pictures of a request to the counters."""
        for one in outcomes:
            packed = one.reason == "packed"
            self.pictures.labels("packed" if packed else "whole").inc()
            if not packed:
                self.whole.labels(one.reason).inc()
            self.before.labels(rule).inc(one.before)
            self.after.labels(rule).inc(one.after)
            if one.ms:
                self.choosing.observe(one.ms / 1000)

    def add(
        self, path: str, model: str, rule: str, status: int, ms: float, pictures: Sequence[RequestedPicture]
    ) -> None:
        """Keep a request; the oldest is dropped for it."""
        before, after = (sum(getattr(p.outcome, name) for p in pictures) for name in ("before", "after"))
        drawn = []
        for questions, outcome in pictures[-MOST_DRAWN:]:
            captions = tuple((caption, "") for caption, _ in outcome.parts)
            drawn.append(RequestedPicture(questions, outcome._replace(parts=captions)))
        self.records.append(
            RequestRecord(
                next(self._numbers), time.time(), shorten(path)[1:-1], model, rule, status, ms, before, after,
                tuple(drawn),
            )
        )  # fmt: skip

    def metrics(self) -> bytes:
        """The counters in Prometheus' text format."""
        return generate_latest(self.registry)

    def page(self) -> str:
        """The kept requests as a page of HTML, the last one first."""
        return _PAGE.render(
            records=list(reversed(self.records)), most=self.records.maxlen, reasons=REASONS, clock=_clock
        )


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


_PAGE = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
).get_template("requests.jinja")
