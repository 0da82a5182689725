"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from arr_coc.modes import MODES

DEFAULT_MODE = "prune"
GESTALT_NAMES = ("resize", "pool4", "pool16", "conv4", "conv16")
"""Ways to make the coarse view of modes saccade and compress."""
DEFAULT_MODEL = "bundled"

if TYPE_CHECKING:
    GestaltName = str
    Mode = str
    ChoosingMode = str
else:  # Typer reads the choices from here; a type checker can't
    GestaltName = Literal[GESTALT_NAMES]

    def __getattr__(name: str) -> object:
        """The options `Mode` and `ChoosingMode`, whose help lists the modes there are when they are read."""
        if name == "Mode":
            return _mode_option()
        if name == "ChoosingMode":
            return _choosing_mode_option()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def mode_name(text: str) -> str:
    """The name of a mode, one that a module of --import has added to `MODES` among them.

    Raises:
        BadParameter: there is no such mode.
    """
    return _one_of(MODES, text)


def choosing_mode_name(text: str) -> str:
    """The name of a mode that chooses cells.

    Raises:
        BadParameter: there is no such mode.
    """
    return _one_of([name for name, mode in MODES.items() if mode.chooses], text)


def _mode_option() -> object:
    return Annotated[
        str,
        typer.Option(
            parser=mode_name,
            metavar="|".join(MODES),
            help="What is read; " + "; ".join(f"{mode.name}: {mode.help}" for mode in MODES.values()) + ".",
        ),
    ]


def _choosing_mode_option() -> object:
    return Annotated[
        str,
        typer.Option(
            parser=choosing_mode_name,
            metavar="|".join(mode.name for mode in MODES.values() if mode.chooses),
            help="As in ask; it decides what the choice is made from.",
        ),
    ]


def _one_of(names: Iterable[str], text: str) -> str:
    if text not in names:
        raise typer.BadParameter(f"{text!r} is unknown; use one of {', '.join(names)}")
    return text


ImagePath = Annotated[
    str | None, typer.Argument(metavar="IMAGE", help="An image file; none: the built-in sample.")
]
Question = Annotated[str | None, typer.Argument(metavar="QUESTION", help="What you want to know about it.")]
Model = Annotated[
    str, typer.Option("--model", "-m", metavar="NAME|FOLDER", help="A model on the Hub or on this disk.")
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        "-b",
        metavar="273|0.25|auto",
        help="Visual tokens to keep: a count (273 if not given), a fraction or auto.",
    ),
]
Gestalt = Annotated[
    GestaltName | None,
    typer.Option(help="How the coarse view of saccade and compress is made (resize if not given)."),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|cuda|mps",
        help="Where the model runs; auto: CUDA or MPS where there is one, else the CPU. cuda:1: the second.",
    ),
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"],
    typer.Option(help="Numbers that the base model computes in; auto: those its weights were saved in."),
]
Out = Annotated[
    str | None, typer.Option("--out", "-o", metavar="PICTURE", help="Where to write the picture.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout and nothing else there.")]
