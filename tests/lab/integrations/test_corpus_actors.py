"""Actors of a local Ray: two against one, a run that is killed and resumed, what costs its row group alone.

Run by `make test-scale`, in an environment with Ray; elsewhere skipped, but for what needs none.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import arr_coc
import arr_coc_lab
from arr_coc_lab.integrations import corpus_actors
from arr_coc_lab.integrations.corpus import CorpusJob, list_units
from corpus_pages import BUDGET, DAMAGED, chosen, pages, write_pages

ROOT = Path(__file__).parents[3]
needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="needs Ray: make test-scale")
START = """
import json, os, sys
import ray
from arr_coc_lab.integrations import corpus_actors
from arr_coc_lab.integrations.corpus import CorpusJob

ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
"""
RUN = """
print(json.dumps(corpus_actors.choose_corpus(CorpusJob(*sys.argv[1:3], int(sys.argv[3])), int(sys.argv[4]))))
"""
DEADLY = """
class Deadly(corpus_actors.CorpusActor):  # dies of one question, as of want of memory
    def __init__(self, job):
        super().__init__(job)
        many = self.selector.many
        self.selector.many = lambda images, questions, budget: (
            os._exit(1) if questions == ["Poison?"] else many(images, questions, budget)
        )

corpus_actors.CorpusActor = Deadly
"""


def start(code: str, job: CorpusJob, actors: int, home: Path) -> subprocess.Popen[str]:
    """A driver with a Ray of its own, which leaves its files in a temporary home."""
    places = (str(Path(package.__file__).parents[1]) for package in (arr_coc, arr_coc_lab))
    own = os.environ | {
        "PYTHONPATH": os.pathsep.join(places),
        "HOME": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    words = [sys.executable, "-c", START + code, job.source, job.out, str(job.budget), str(actors)]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own, start_new_session=True
    )


def totals(driver: subprocess.Popen[str]) -> corpus_actors.CorpusTotals:
    out, err = driver.communicate(timeout=600)
    assert driver.returncode == 0, err[-3000:]
    return corpus_actors.CorpusTotals(*json.loads(out.splitlines()[-1]))


@pytest.fixture
def job(tmp_path: Path) -> CorpusJob:
    """Two files of three row groups each, with a damaged page in both."""
    for name in ("a.parquet", "b.parquet"):
        write_pages(tmp_path / "pages", pages(), name)
    return CorpusJob(str(tmp_path / "pages"), str(tmp_path / "chosen"), BUDGET)


class TestDeclared:
    def test_the_extra_is_apart(self) -> None:
        extras = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text())["project"][
            "optional-dependencies"
        ]
        assert any(need.startswith("ray[data]") for need in extras["scale"])
        assert not any("ray" in need or "scale" in need for need in extras["all"])
        assert "./lab[scale]" in (ROOT / "Makefile").read_text()

    def test_without_ray_a_line_says_what_to_install(
        self, job: CorpusJob, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(corpus_actors.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ValueError, match=r"Ray, which is not installed: pip install 'ray\[data\]"):
            corpus_actors.choose_corpus(job)

    def test_a_bad_word_is_one_line_and_code_2(
        self, job: CorpusJob, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(typer.Exit) as end:
            corpus_actors.command(job.source, job.out, budget="many")
        assert end.value.exit_code == 2
        assert re.fullmatch(r"arr-coc: budget 'many' [^\n]+\n", capsys.readouterr().err)


def test_an_actor_reports_a_row_group_and_does_none_twice(job: CorpusJob) -> None:
    """As Ray calls it, in this process."""
    units = list_units(job)
    batch: dict[str, Any] = {
        name: np.array([getattr(unit, name) for unit in units], dtype=object) for name in units[0]._fields
    }
    batch["rows"][5] = 7  # more than the file has: never done, never taken for done
    actor = corpus_actors.CorpusActor(job)
    first = actor(batch)
    assert first["errors"].tolist() == [0, 1, 0, 0, 1, 0]
    assert not any(first["failure"])
    stamps = {path.name: path.stat().st_mtime_ns for path in Path(job.out).iterdir()}
    assert actor(batch)["errors"].tolist() == [0] * 6
    again = {path.name: path.stat().st_mtime_ns for path in Path(job.out).iterdir()}
    assert [name for name in again if again[name] != stamps[name]] == [units[5].target]
    (Path(job.source) / "b.parquet").unlink()
    (Path(job.out) / units[3].target).unlink()
    failures = actor(batch)["failure"].tolist()
    assert [bool(text) for text in failures] == [False, False, False, True, False, True]
    assert "can't be read" in failures[3]


@needs_ray
@pytest.mark.slow
def test_two_actors_choose_what_one_does(job: CorpusJob, tmp_path: Path) -> None:
    other = CorpusJob(job.source, str(tmp_path / "by-two"), BUDGET)
    assert totals(start(RUN, job, 1, tmp_path)) == (0, 6, 10, 2, [])
    assert totals(start(RUN, other, 2, tmp_path)) == (0, 6, 10, 2, [])
    rows = chosen(job)
    assert rows == chosen(other)
    assert [row["row"] for row in rows] == [*range(5), *range(5)]
    assert [row["error"] is not None for row in rows] == [i % 5 == DAMAGED for i in range(10)]
    assert totals(start(RUN, other, 2, tmp_path)) == (6, 0, 0, 0, [])


@needs_ray
@pytest.mark.slow
def test_a_killed_run_goes_on_and_does_nothing_twice(job: CorpusJob, tmp_path: Path) -> None:
    out = Path(job.out)
    driver = start(RUN, job, 1, tmp_path)
    until = time.monotonic() + 240
    while len(list(out.glob("*.parquet"))) < 2 and driver.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(driver.pid, signal.SIGKILL)  # the driver and all of its Ray
    driver.communicate()
    time.sleep(2)
    done = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert 2 <= len(done) < 6
    torn = min(done)
    (out / torn).write_bytes((out / torn).read_bytes()[:-9])  # half-written: doesn't count
    del done[torn]
    (out / "b-00002.parquet.0.part").write_bytes(b"PAR1")
    report = totals(start(RUN, job, 1, tmp_path))
    assert (report.before, report.done, report.failed) == (len(done), 6 - len(done), [])
    assert {name: (out / name).stat().st_mtime_ns for name in done} == done
    places = [(name, number) for name in ("a.parquet", "b.parquet") for number in range(5)]
    assert [(row["file"], row["row"]) for row in chosen(job)] == places
    assert len(list(out.iterdir())) == 6


@needs_ray
@pytest.mark.slow
def test_a_page_that_ends_its_actor_costs_its_row_group_alone(job: CorpusJob, tmp_path: Path) -> None:
    rows = pages()
    rows[-1]["question"] = "Poison?"
    write_pages(Path(job.source), rows, "b.parquet")
    report = totals(start(DEADLY + RUN, job, 1, tmp_path))
    assert (report.before, report.done, report.rows) == (0, 5, 9)
    assert len(report.failed) == 1
    assert report.failed[0].startswith("b.parquet, row group 2: what chose for it was ended")
    assert totals(start(RUN, job, 1, tmp_path))[:3] == (5, 1, 1)  # where there is more memory


@needs_ray
@pytest.mark.slow
def test_the_page_as_it_is_written(tmp_path: Path) -> None:
    """The Python blocks of docs/scale.md, one after the other; the first one writes the pages."""
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.S | re.M))
    places = (str(Path(package.__file__).parents[1]) for package in (arr_coc, arr_coc_lab))
    own = {"PYTHONPATH": os.pathsep.join(places), "HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", START + code], cwd=tmp_path, env=os.environ | own,
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1 row groups were done before, 2 now: 8 rows, 0 of them with an error" in done.stdout
