"""The processes of a run: launcher settings, values that all agree on, and data-loading workers.

Of the processes that `accelerate launch` or `torchrun` start, only the first writes files and messages.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Generator
from multiprocessing.connection import wait

import torch

FSDP, DEEPSPEED = "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"  # environment variables
# launcher settings that would change nothing -> what to do
IGNORED = {
    "FSDP_OFFLOAD_PARAMS": "what is divided stays on its device: launch without --fsdp_offload_params",
    "FSDP_ACTIVATION_CHECKPOINTING": "the recipe says so: set checkpointing=true in it",
}


def is_main_process() -> bool:
    """Return whether this process is the first of its run."""
    return os.environ.get("RANK", "0") == "0"


def divides() -> bool:
    """Return whether the launcher asked for FSDP: one model divided over several processes.

    Raises ValueError for DeepSpeed, a single process, or settings that would have no effect.
    """
    if _on(DEEPSPEED):
        raise ValueError(
            "DeepSpeed would divide the model over processes in a way that training can't follow: launch "
            f"with --use_fsdp (unset {DEEPSPEED}), or set checkpointing=true or precision=bfloat16"
        )
    if not _on(FSDP):
        return False
    for name, remedy in IGNORED.items():
        if _on(name):
            raise ValueError(f"{name} is true, but {remedy} (unset {name})")
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        raise ValueError(
            "FSDP divides the model over processes, but there is one: launch two or more "
            f"(--num_processes 2), or without it (unset {FSDP})"
        )
    return True


def _on(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true")


@contextlib.contextmanager
def hide_fsdp_env() -> Generator[None]:
    """Hide FSDP from accelerate and transformers inside the block: `sharding.divide` does it."""
    before = os.environ.pop(FSDP, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[FSDP] = before


@contextlib.contextmanager
def ended_group() -> Generator[None]:
    """End the process group after the block, if the block started one, before the interpreter ends.

    Otherwise the threads of its connections are torn down with the interpreter, and now and then abort it.
    """
    yield
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def greatest(number: int, device: torch.device) -> int:
    """Return the maximum of a number over all processes of a run."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return number
    most = torch.tensor(number, device=device)
    torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
    return int(most)


def mean_of_all(value: torch.Tensor) -> float:
    """Return the mean of a number over all processes of a run."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return value.item()
    total = value.detach().clone()
    torch.distributed.all_reduce(total)
    return total.item() / torch.distributed.get_world_size()


def start_worker(worker: int) -> None:
    """Make a data-loading worker end with its parent process, and not before (a `worker_init_fn`).

    It ignores Ctrl-C and signals to the process group: the parent still needs images to finish the step.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        # torch checks its parent too, but not while a worker is blocked writing to a pipe.
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if hasattr(os, "setpgrp"):
            os.setpgrp()


def _end_with(sentinel: int) -> None:
    """Wait until the process behind `sentinel` has ended, then end this one at once."""
    wait([sentinel])
    os._exit(1)


def worker_message(message: str) -> str:
    """Return the message of an error raised in a data-loading worker, without its traceback."""
    if not message.startswith("Caught ValueError in DataLoader"):
        return message
    return message.strip().splitlines()[-1].removeprefix("ValueError: ")
