"""What the proxy did: counters for Prometheus, and the last requests as records, JSON and a page."""

from __future__ import annotations

import json
import time
from collections import Counter as Counts
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from arr_coc.files.paths import shorten
from arr_coc.proxy.fitting import CHANGES
from arr_coc.proxy.packing import REASONS, Outcome, facts

MAX_DRAWN = 8  # pictures of a request that are kept for the page
MAX_LETTERS = 300  # of a picture's question that are kept, its end
MAX_BYTES = 16 * 2**20  # of the requests that are kept, of many the last ones
SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)  # bounds of the histogram of choosing


class RequestedPicture(NamedTuple):
    """A picture of a request: what became of it, and for which question."""

    question: str
    outcome: Outcome

    def traced(self) -> RequestedPicture:
        """The picture as it is kept: the end of its question, and nothing of what was sent for it."""
        question = (
            self.question if len(self.question) <= MAX_LETTERS else f"...{self.question[-MAX_LETTERS:]}"
        )
        captions = tuple((caption, "") for caption, _ in self.outcome.parts)
        return RequestedPicture(question, self.outcome._replace(parts=captions))


class RequestRecord(NamedTuple):
    """A request with pictures. Nothing of its headers, keys or answer is in it."""

    number: int
    time: float  # seconds since 1970
    path: str  # without its query
    model: str
    rule: str
    count: int  # of its pictures
    packed: int  # of them
    before: int  # tokens of its pictures, whole
    after: int  # tokens of what was sent for them
    pictures: tuple[RequestedPicture, ...]  # the last MAX_DRAWN, without what was sent for them
    recalled: int = 0  # turns that got parts of an earlier picture
    changes: tuple[tuple[str, int], ...] = ()  # how many pictures were made to fit, by a key of CHANGES
    guessed: bool = True  # whether the rule is the model's; else squares stand for one that isn't known
    status: int = 0
    ms: float = 0.0  # until the answer began

    @property
    def summary(self) -> str:
        """What became of its pictures, in a line."""
        words = f"packed {self.packed} of {self.count} pictures, {self.after} of {self.before} tokens"
        return "; ".join([words, *(f"{count} {name}" for name, count in self.changes)]).replace("_", " ")

    @property
    def line(self) -> str:
        """The request in a line for a terminal: what came, what was sent, and how long that took."""
        words = [f"{self.count} picture{'s' * (self.count != 1)}", f"{self.packed} packed"]
        if self.recalled:
            words.append(f"parts for {self.recalled} later question{'s' * (self.recalled != 1)}")
        saved = share_saved(self.before, self.after)
        return (
            f"{time.strftime('%H:%M:%S', time.localtime(self.time))}  {self.model or self.path}: "
            f"{', '.join(words)}; {self.before:,} -> {self.after:,} tokens ({saved}), "
            f"{self.ms:,.0f} ms, status {self.status}"
        )

    @property
    def nbytes(self) -> int:
        return 1024 + sum(one.outcome.nbytes + len(one.question) for one in self.pictures)

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values, without pictures."""
        return {
            "number": self.number,
            "time": round(self.time, 3),
            "path": self.path,
            "model": self.model,
            "rule": self.rule,
            "rule_is_guessed": self.guessed,
            "limits": dict(self.changes),
            "status": self.status,
            "ms": round(self.ms, 1),
            "tokens_before": self.before,
            "tokens_after": self.after,
            "recalled": self.recalled,
            "pictures": [{"question": one.question} | facts(one.outcome) for one in self.pictures],
        }


class Totals(NamedTuple):
    """Sums over the requests with pictures since a proxy was started."""

    requests: int = 0
    pictures: int = 0
    before: int = 0  # tokens of the pictures, whole
    after: int = 0  # tokens of what was sent for them

    @property
    def saved(self) -> str:
        """The share of tokens that was saved, such as "63 % less"."""
        return share_saved(self.before, self.after)


def share_saved(before: int, after: int) -> str:
    """Return in words how many tokens were saved, such as "63 % less"."""
    if not before:
        return "no tokens known"
    share = round(100 * (before - after) / before)
    return f"{abs(share)} % {'more' if share < 0 else 'less'}"


class Journal:
    """The counters and the last requests of one proxy.

    Args:
        most: requests that are kept, in memory alone; 0: none.
        tell: what is called with a line about each request that was answered.
    """

    def __init__(self, most: int = 100, tell: Callable[[str], None] | None = None) -> None:
        self.most, self.tell, self.totals = most, tell, Totals()
        self.records: deque[RequestRecord] = deque()
        self._bytes, self._count = 0, 0
        # By name the newest request on a page, the totals on it, and the page.
        self._drawn: dict[str, tuple[RequestRecord | None, Totals, bytes]] = {}
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
        self.fitted = Counter(
            "arr_coc_fitted_pictures", "Pictures of anybody that broke a limit.", ("became",), **made
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

    def add_pictures(
        self,
        path: str,
        model: str,
        rule: str,
        pictures: Sequence[RequestedPicture],
        others: int = 0,
        changes: Mapping[str, int] | None = None,
    ) -> RequestRecord:
        """Add the pictures of a request to the counters; its record, to be kept once it is answered.

        Args:
            path: of the request.
            model: that it names.
            rule: that counts the pictures.
            pictures: what became of the first ones, and parts of them for later questions, by turn.
            others: pictures behind them, which nobody looked at.
            changes: how many pictures of anybody were made to fit, by a key of CHANGES.
        """
        outcomes = [one.outcome for one in pictures]
        recalled = sum(one.reason == "recalled" for one in outcomes)
        packed = sum(one.layout != "whole" for one in outcomes) - recalled
        reasons = Counts(one.reason for one in outcomes if one.layout == "whole")
        if others:
            reasons["many_pictures"] += others
        for became, count in (("packed", packed), ("whole", reasons.total()), ("recalled", recalled)):
            if count:
                self.pictures.labels(became).inc(count)
        for reason, count in reasons.items():
            self.whole.labels(reason).inc(count)
        changed = tuple(sorted((changes or {}).items()))
        for name, count in changed:
            self.fitted.labels(name).inc(count)
        before, after = sum(one.before for one in outcomes), sum(one.after for one in outcomes)
        self.before.labels(rule).inc(before)
        self.after.labels(rule).inc(after)
        for one in outcomes:
            if one.ms:
                self.choosing.observe(one.ms / 1000)
        self._count += 1
        came = len(outcomes) - recalled + others
        return RequestRecord(
            self._count, time.time(), shorten(path)[1:-1], model, rule, came, packed, before, after,
            tuple(one.traced() for one in pictures[-MAX_DRAWN:]), recalled, changed,
        )  # fmt: skip

    def keep(self, record: RequestRecord) -> None:
        """Keep a request, and tell of it; the oldest ones are dropped for it."""
        one = self.totals
        self.totals = Totals(
            one.requests + 1,
            one.pictures + record.count,
            one.before + record.before,
            one.after + record.after,
        )
        if self.tell is not None:
            self.tell(record.line)
        self.records.append(record)
        self._bytes += record.nbytes
        while self._bytes > MAX_BYTES or len(self.records) > self.most:
            self._bytes -= self.records.popleft().nbytes

    def metrics(self) -> bytes:
        """The counters in Prometheus' text format."""
        return generate_latest(self.registry)

    def page(self) -> bytes:
        """The kept requests as a page of HTML, the last one first; it may be called from any thread."""

        def draw(records: list[RequestRecord]) -> str:
            return _PAGE.render(
                records=records,
                most=self.most,
                totals=self.totals,
                reasons=REASONS,
                changes=CHANGES,
                clock=_clock,
            )

        return self._last("page", draw)

    def as_json(self) -> bytes:
        """The kept requests as JSON, the last one first; it may be called from any thread."""

        def draw(records: list[RequestRecord]) -> str:
            return json.dumps(
                {"totals": self.totals._asdict(), "requests": [one.to_dict() for one in records]}
            )

        return self._last("json", draw)

    def _last(self, name: str, draw: Callable[[list[RequestRecord]], str]) -> bytes:
        """A page as it was drawn last if no request has come since, so that all who ask share it."""
        records = list(self.records)[::-1]
        newest = records[0] if records else None
        drawn = self._drawn.get(name)
        if drawn is None or drawn[0] is not newest or drawn[1] is not self.totals:
            drawn = newest, self.totals, draw(records).encode("utf-8", "replace")
            self._drawn[name] = drawn
        return drawn[2]


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


_PAGE = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
).get_template("requests.jinja")
