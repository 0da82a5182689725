"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from arr_coc.modes import MODES
from arr_coc.modes.mode import Mode as AnyMode

# Compressors of modes saccade and compress.
GESTALT_NAMES = ("resize", "pool4", "pool16", "tower4", "tower16")
DEFAULT_MODEL = "bundled"

if TYPE_CHECKING:
    GestaltName = str
    Mode = str | None
    ChoosingMode = str | None
else:  # Typer evaluates the choices here; a type checker can't
    GestaltName = Literal[GESTALT_NAMES]

    def __getattr__(name: str) -> object:
        """Return the options `Mode` and `ChoosingMode`, made when they are read, since --import may add a
        mode.
        """
        every = list(MODES.values())
        if name == "Mode":
            listed = "; ".join(f"{mode.name}: {mode.help}" for mode in every)
            usual = "Not given: sparse if a stem was trained for the model, else prune."
            return _mode_option(every, f"What the model reads; {listed}. {usual}")
        if name == "ChoosingMode":
            choosing = [mode for mode in every if mode.chooses]
            listed = ", ".join(mode.name for mode in choosing)
            return _mode_option(choosing, f"What the choice is made from, as in ask: {listed}.")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _mode_option(modes: Sequence[AnyMode], text: str) -> object:
    """Return the option --mode with the choice of some modes; `text` is its help."""
    names = [mode.name for mode in modes]

    def parse(name: str) -> str:
        if name not in names:
            own = "one of your own needs --import MODULE before the command"
            raise typer.BadParameter(f"{name!r} is unknown; use one of {', '.join(names)}; {own}")
        return name

    completed = [(mode.name, mode.help) for mode in modes]
    option = typer.Option(parser=parse, metavar="MODE", autocompletion=lambda: completed, help=text)
    return Annotated[str | None, option]


def recipe_names() -> list[str]:
    """Return the built-in recipes, found by file names: shell completion must not import the training
    code.
    """
    recipes = Path(__file__).parents[1] / "train" / "recipes"
    return ["list", "guide", *sorted(file.stem for file in recipes.glob("*.toml"))]


IMAGE_HELP = "An image file, a PDF (see --page), or - for standard input"
Fps = Annotated[
    float | None,
    typer.Option(
        metavar="N", help="Frames per second that are read of a video (2 if not given), at most 768 in all."
    ),
]
Page = Annotated[int | None, typer.Option(min=1, metavar="N", help="Which page of a PDF, from 1.")]
Model = Annotated[
    str, typer.Option("--model", "-m", metavar="NAME|FOLDER", help="A model on the Hub or on this disk.")
]
LookModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME|FOLDER",
        help="A model on the Hub or on this disk, which chooses. Not given: the guide chooses, without one.",
    ),
]
Allocator = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FOLDER", help="An allocator trained for the model. Not given: the model's own, if any."
    ),
]
Guide = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", help="A guide that you trained (`train guide`). Not given: the bundled one."
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        "-b",
        metavar="273|25%|auto",
        help="Visual tokens to keep: a count (273 if not given), a fraction (0.25 or 25%) or auto.",
    ),
]
Coverage = Annotated[
    float | None,
    typer.Option(
        metavar="0.9",
        help="In place of a budget: keep enough tokens to hold all evidence for this share of questions. A "
        "note says if that can't be promised.",
    ),
]
Gestalt = Annotated[
    GestaltName | None,
    typer.Option(
        metavar="NAME",
        help=f"How the coarse view of saccade and compress is made: {', '.join(GESTALT_NAMES)} "
        "(resize if not given).",
    ),
]
Magnify = Annotated[
    str,
    typer.Option(
        metavar="1-3|auto",
        help="Read the kept cells from the original picture, at so many times the resolution that the "
        "model gets (sparse, saccade). Each costs more tokens, so fewer are kept. auto: as fine as needed.",
    ),
]
Relevance = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What scores the cells for the question: guide; ocr, lines of print that an OCR reads; ppocr, "
        "the same by models of transformers; page:FILE, boxes:FILE, ground:NAME, docqa:NAME, retriever:NAME, "
        "dense:NAME, index:FILE; or a sum such as guide+ocr, also with layout:NAME. With a model also: "
        "trained, its allocator; gaze, its own attention. auto: the allocator, if there is one that knows "
        "such pictures, else the guide, with the OCR if one is installed (some seconds for a new picture: "
        "two for a page of one megapixel).",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Where the model runs: cpu, cuda, mps; cuda:1: the second; auto: CUDA or MPS where there is "
        "one, else the CPU.",
    ),
]
GuideDevice = Annotated[
    str,
    typer.Option("--device", metavar="NAME", help="Where the guide runs: cpu, cuda, cuda:1, mps, ..."),
]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"],
    typer.Option(
        metavar="TYPE",
        help="The type of numbers that the model computes in: float32, bfloat16, float16, or auto, that of "
        "its weights.",
    ),
]
MaxNewTokens = Annotated[int, typer.Option(min=1, metavar="N", help="The longest answer, in tokens.")]
Out = Annotated[
    str | None, typer.Option("--out", "-o", metavar="PICTURE", help="Where to write the picture.")
]
Evidence = Annotated[
    list[str] | None,
    typer.Option(
        "--evidence",
        metavar="X0,Y0,X1,Y1",
        help="A box in px that shows the answer, to be drawn beside the choice; may be repeated.",
    ),
]
AllocatorFolder = Annotated[
    str,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        help="Where the allocator is saved. Not given: a new folder here.",
        show_default=False,
    ),
]
DEFAULT_FOLDER = "arr-coc-allocator"
LAST_PORT = 65_535
INTERRUPTED = 130  # the exit code of a line that Ctrl-C ended


def steps(text: str) -> Any:
    """Return the option --steps of training commands, for a parameter named `steps`; `text` is its help."""
    return typer.Option(min=1, metavar="N", help=text)


def minutes(text: str) -> Any:
    """Return the option --minutes of training commands, for a parameter named `minutes`; `text` is its
    help.
    """
    return typer.Option(min=0.01, metavar="M", help=text)


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else.")]
READABLE = 6.5  # px, as `arr_coc.pixels.packing` has it, which light commands can't import
Readable = Annotated[
    float,
    typer.Option(
        min=2.0,
        max=40.0,
        metavar="PX",
        help="Least height of a line of print that the model still reads, for layout auto: 5 for a strong "
        "OCR, 9 for a model that reads small print badly.",
    ),
]
Screens = Annotated[
    Literal["unchanged", "parts", "off"],
    typer.Option(
        metavar="WAY",
        help="What is sent of screenshots that tools return. unchanged: a sentence for one that shows "
        "nothing new; parts: also of the others only what is new; off: all, whole.",
    ),
]
Host = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Where it listens: 127.0.0.1 is this machine alone, 0.0.0.0 the whole network."
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Another name of this machine that clients may use; can be repeated."),
]


def check_port(port: int) -> None:
    """Raise a ValueError if there is no such port."""
    if port > LAST_PORT:
        raise ValueError(f"port {port} is too large: choose one up to {LAST_PORT}")
