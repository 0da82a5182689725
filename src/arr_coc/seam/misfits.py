"""What a model raises of pixels that it cannot read with a prompt, as one ValueError with the remedy."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

REMEDY = "pass all that the model's own processor makes of a prompt and its images, unchanged"
OUTSIDE = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError))
"""RuntimeErrors that are the machine's, whatever the inputs."""
MISFITS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
)
"""What a model raises of pixels that it can't read."""


@contextmanager
def reading(model_type: str) -> Generator[None]:
    """Turn what goes wrong in reading a call's pixels into a ValueError: they, or the prompt, don't fit.

    Args:
        model_type: of the model that reads, for the message.

    Raises:
        ValueError: names the error that it comes from.
    """
    try:
        yield
    except (*OUTSIDE, NotImplementedError):
        raise
    except MISFITS as error:
        if isinstance(error, ValueError) and _is_own(error):
            raise
        what = " ".join(str(error).split()) or "too few of something"
        raise ValueError(
            f"{model_type} can't read these images with this prompt "
            f"({type(error).__name__}: {what}); {REMEDY}"
        ) from error


def _is_own(error: BaseException) -> bool:
    """Whether an error was raised by this package, whose messages have their remedy."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__"))
    return name.startswith("arr_coc.")
