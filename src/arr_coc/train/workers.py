"""Worker processes that draw or read images: they end with the process that they work for, however it ends.

torch's own watch over the parent ends a worker that waits for work, but not one that has images left to hand
over: it waits for a reader of its pipe, and would for ever.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait


def start_worker(worker: int) -> None:
    """The `worker_init_fn` of a data loader, run in each of its workers.

    Ctrl-C, which a terminal sends to all processes, is the parent's to answer, and so is what `timeout` or a
    shell sends to the group: it still needs images until the step is done.

    Args:
        worker: its number.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if hasattr(os, "setpgrp"):
            os.setpgrp()


def _end_with(sentinel: int) -> None:
    """Wait until the process behind a sentinel has ended, then end this one, whatever it is at."""
    wait([sentinel])
    os._exit(1)


def worker_message(message: str) -> str:
    """The message of an error that was raised in a data loader's process, without its traceback."""
    if not message.startswith("Caught ValueError in DataLoader"):
        return message
    return message.strip().splitlines()[-1].removeprefix("ValueError: ")
