"""Options and arguments that several commands share, with the names and the help of modes and gestalts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

MODE_HELP: dict[str, str] = {
    "full": "all tokens",
    "prune": "some of them",
    "sparse": "some of them, encoded alone",
    "saccade": "a coarse view, and fine tokens where the question points",
    "compress": "the coarse view alone",
    "weight": "all tokens, scaled by relevance",
}
"""What the language model reads in each mode, by the mode's name."""
MODE_NAMES = tuple(MODE_HELP)
CHOOSING_MODES = ("prune", "sparse", "saccade")
"""Modes that choose cells, whose allocation `look` can show."""
DEFAULT_MODE = "prune"
GESTALT_NAMES = ("resize", "pool4", "pool16", "conv4", "conv16")
"""Ways to make the coarse view of modes saccade and compress."""
DEFAULT_MODEL = "bundled"

if TYPE_CHECKING:
    ModeName = ChoosingModeName = GestaltName = str
else:  # Typer reads the choices from here; a type checker can't
    ModeName, ChoosingModeName = Literal[MODE_NAMES], Literal[CHOOSING_MODES]
    GestaltName = Literal[GESTALT_NAMES]

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
Mode = Annotated[
    ModeName,
    typer.Option(help="What is read; " + "; ".join(f"{name}: {text}" for name, text in MODE_HELP.items())),
]
ChoosingMode = Annotated[
    ChoosingModeName, typer.Option(help="As in ask; it decides what the choice is made from.")
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
