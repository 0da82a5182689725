"""Run work on untrusted input in a child process, bounded in time and memory: `Worker`.

    worker = Worker(Path("script.py"), "work", seconds=10, megabytes=512)  # script.py defines work(request)
    worker.ask({"a": 1})                                                   # -> what work({"a": 1}) returned

The child also runs this file, which imports nothing of the package, to start in a tenth of a second.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

MAX_ANSWER = 2**27  # bytes: 16 MP of noise as a PNG in base64 are 64 MiB


class Exceeded(ValueError):
    """Raised if a request exceeded the child's time or memory; the child was ended."""


class Worker:
    """A child Python process that answers requests of any thread, one at a time.

    It starts at the first request, and again after it was ended, or in a forked process.

    Args:
        script: defines `function`. It has the parent's `sys.path`.
        function: the name of the function that is called with each request, from and to JSON values; a
            ValueError in it is a refusal.
        seconds: the most that one request may take once the child is ready.
        megabytes: memory that the child may reserve beyond its imports (not bounded on Windows).
        idle: seconds without a request after which the child is ended; None: never.
    """

    def __init__(
        self, script: Path, function: str, seconds: float, megabytes: int, idle: float | None = None
    ) -> None:
        self.script, self.function, self.idle = script, function, idle
        self.seconds, self.megabytes = seconds, megabytes
        self._lock = threading.Lock()
        self._idle_timer: threading.Timer | None = None
        self._is_ready = False
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def start(self) -> None:
        """Start the child without waiting for its imports."""
        with self._lock:
            self._started()
            self._restart_idle_timer()

    def ask(self, request: Any) -> Any:
        """Return what the child's function returns; raise its ValueError, or `Exceeded` past the limits."""
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            child = self._running()
            assert child.stdin
            assert child.stdout
            timed_out = threading.Event()

            def end() -> None:
                timed_out.set()
                child.kill()

            timer = threading.Timer(self.seconds, end)
            timer.start()
            try:
                child.stdin.write(line)
                child.stdin.flush()
                answer = child.stdout.readline(MAX_ANSWER)
            except OSError:  # the child is gone
                answer = b""
            except BaseException:  # Ctrl-C: a late answer must not meet the next request
                self._end()
                raise
            finally:
                timer.cancel()
                self._restart_idle_timer()
            if not answer.endswith(b"\n"):
                self._end()
                if timed_out.is_set():
                    raise Exceeded(f"it needs more than {self.seconds:g} seconds")
                raise Exceeded(f"it needs more than {self.megabytes} MB of memory, or ends what reads it")
        result = json.loads(answer)
        if "error" in result:
            raise ValueError(result["error"])
        return result["value"]

    def _restart_idle_timer(self) -> None:
        """Restart the timer that ends an idle child."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self.idle is not None:
            timer = self._idle_timer = threading.Timer(self.idle, lambda: self._end_idle(timer))
            timer.daemon = True
            timer.start()

    def _end_idle(self, timer: threading.Timer) -> None:
        """End the child, unless a request came while the timer waited for the lock."""
        with self._lock:
            if self._idle_timer is timer:
                self._end()

    def end(self) -> None:
        """End the child, if it runs; the next request starts another."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        """Return the child, started but perhaps not ready."""
        if self._owner != os.getpid():  # after a fork the pipes are the parent's
            self._child = None
        if self._child is None or self._child.poll() is not None:
            self._end()
            settings = {
                "script": str(self.script),
                "function": self.function,
                "path": sys.path,
                "seconds": self.seconds,
                "megabytes": self.megabytes,
            }
            try:
                self._child = subprocess.Popen(
                    [sys.executable or "", "-P", __file__, json.dumps(settings)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    # Rayon's threads and malloc's arenas take address space, which is bounded.
                    env=os.environ | {"RAYON_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
                )
            except OSError as error:
                raise RuntimeError(
                    f"{self.script.name} needs a process of its own, and sys.executable, "
                    f"{sys.executable!r}, can't be started ({error}): set it to a Python interpreter"
                ) from error
            self._owner, self._is_ready = os.getpid(), False
        return self._child

    def _running(self) -> subprocess.Popen[bytes]:
        """Return the child, ready for a request."""
        child = self._started()
        if not self._is_ready:
            assert child.stdout
            self._is_ready = child.stdout.readline() == b"ready\n"
            if not self._is_ready:
                self._end()
                raise RuntimeError(f"{sys.executable} can't run {self.script.name} in a process of its own")
        return child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings alone: a copy or pickle starts its own child."""
        names = ("script", "function", "seconds", "megabytes", "idle")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)


def _bound_memory(megabytes: int) -> None:
    """Bound this process's address space beyond the present, where the system can."""
    try:
        import resource

        most = megabytes * 2**20
        pages = Path("/proc/self/statm")
        if pages.exists():
            most += int(pages.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (ImportError, OSError, ValueError):  # Windows has no such bound, macOS may refuse it
        return


def _bound_time(seconds: float) -> None:
    """Bound the processor time of the next request: a killed parent can't end its child."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def answer_requests(settings: dict[str, Any]) -> None:
    """Answer requests from standard input, one line of JSON each."""
    sys.path[:] = settings["path"]
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # keeps the script's prints out of the answers
    work = runpy.run_path(settings["script"])[settings["function"]]
    _bound_memory(settings["megabytes"])
    answers.write(b"ready\n")
    answers.flush()
    for line in requests:
        _bound_time(settings["seconds"])
        try:
            answer = {"value": work(json.loads(line))}
            text = json.dumps(answer).encode()
        except MemoryError:
            os._exit(1)  # the parent reports which bound was met
        except Exception as error:
            text = json.dumps({"error": str(error) or type(error).__name__}).encode()
        answers.write(text + b"\n")
        answers.flush()


if __name__ == "__main__":
    answer_requests(json.loads(sys.argv[1]))
