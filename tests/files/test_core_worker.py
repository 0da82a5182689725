"""Work in a child process ends within its bounds, whatever it does, and the next request is answered."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from arr_coc.files.worker import Worker

SCRIPT = """
import os, sys
def work(request):
    if request == "loop":
        while True: pass
    if request == "memory":
        return len(bytearray(2**30))
    if request == "crash":
        os.abort()
    if request == "refuse":
        raise ValueError("no such thing")
    if request == "print":
        print("noise")
        sys.stdout.flush()
    if request == "pid":
        return os.getpid()
    return request
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    script = tmp_path_factory.mktemp("worker") / "script.py"
    script.write_text(SCRIPT)
    worker = Worker(script, "work", seconds=0.6, megabytes=256)
    yield worker
    worker.end()


def test_it_answers_what_the_script_returns(worker: Worker) -> None:
    assert worker.ask({"ä": [1, None, "x\n"]}) == {"ä": [1, None, "x\n"]}
    assert worker.ask("pid") == worker.ask("pid") != os.getpid()


@pytest.mark.parametrize(
    ("request_", "words"),
    [("loop", "0.6 seconds"), ("memory", "256 MB"), ("crash", "256 MB"), ("refuse", "no such thing")],
)
def test_it_refuses_what_exceeds_its_bounds_and_goes_on(worker: Worker, request_: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        worker.ask(request_)
    assert worker.ask("again") == "again"


def test_what_a_script_prints_is_no_answer(worker: Worker) -> None:
    assert worker.ask("print") == "print"


def test_threads_get_their_own_answers(worker: Worker) -> None:
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(worker.ask, range(16))) == list(range(16))


def test_a_copy_starts_a_child_of_its_own(worker: Worker) -> None:
    other = copy.deepcopy(worker)
    try:
        assert other.ask("pid") != worker.ask("pid")
    finally:
        other.end()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_does_not_answer_for_its_parent(worker: Worker) -> None:
    parent = worker.ask("pid")
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(writing, str(worker.ask("pid")).encode())
        worker.end()
        os._exit(0)
    os.waitpid(pid, 0)
    assert int(os.read(reading, 20)) != parent
    assert worker.ask("pid") == parent


def test_an_idle_child_is_ended_and_another_answers(worker: Worker) -> None:
    other = Worker(worker.script, "work", seconds=5, megabytes=256, idle=0.2)
    other.start()
    first = other.ask("pid")
    for _ in range(50):
        if other._child is None:
            break
        time.sleep(0.05)
    assert other._child is None
    assert other.ask("pid") != first
    other.end()
