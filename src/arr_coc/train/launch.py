"""What the launcher of several processes wants: one model divided over them (`sharding`), or not."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

FSDP, DEEPSPEED = "ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"
"""What a launcher sets where it is to divide one model over several processes."""
IGNORED = {
    "FSDP_OFFLOAD_PARAMS": "what is divided stays on its device: launch without --fsdp_offload_params",
    "FSDP_ACTIVATION_CHECKPOINTING": "the recipe says so: set checkpointing=true in it",
}
"""Settings of a launcher that would change nothing, and what to do."""


def divides() -> bool:
    """Whether the launcher asked for FSDP.

    Raises:
        ValueError: for DeepSpeed; for FSDP with a single process, or with settings that would change nothing.
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
def own_way() -> Generator[None]:
    """Inside the block accelerate and transformers see no FSDP: `divide` does it."""
    before = os.environ.pop(FSDP, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[FSDP] = before
