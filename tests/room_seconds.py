"""CPU seconds per folder of tests, printed at the end of a run with `--room-seconds`.

    pytest tests/choose --room-seconds          # what a room's tests take, and importing them
    make test ARGS=--room-seconds               # every room's, without the imports in processes of xdist

A test that asserted them would fail on a busy machine, so nothing does: CONTRIBUTING.md says what they were.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest


class RoomSeconds:
    """A plugin of pytest that counts CPU seconds, those of ended child processes included."""

    def __init__(self) -> None:
        self.rooms: Counter[str] = Counter()
        self.last = 0.0

    def spent(self) -> float:
        """The CPU seconds since the last call, or since this process began."""
        before, self.last = self.last, sum(os.times()[:4])
        return self.last - before

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count what importing took, unless processes of xdist do it again."""
        self.rooms["imports"] += self.spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Write what a part of a test took into its report, which reaches the process that prints."""
        report = yield
        report.user_properties.append(("cpu seconds", self.spent()))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a report's seconds to those of its folder."""
        parts = report.nodeid.partition("::")[0].split("/")
        self.rooms["/".join(parts[:2]) if len(parts) > 2 else parts[0]] += dict(report.user_properties)[
            "cpu seconds"
        ]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the rooms, the longest first."""
        terminalreporter.section("CPU seconds by room")
        for room, seconds in self.rooms.most_common():
            terminalreporter.write_line(f"{seconds:8.1f}  {room}")
