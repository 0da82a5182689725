"""The command line, a thin client: it checks, calls the model, prints.

    arr-coc ask [IMAGE] [QUESTION]    answer from a fraction of the visual tokens, and draw which ones
    arr-coc look [IMAGE] [QUESTION]   the allocation alone, all layers
    arr-coc draw                      make sample pages with questions and answers
    arr-coc app                       ask and look in a browser
    arr-coc view TRACE...             saved traces as one page that opens anywhere
    arr-coc space FOLDER              a Space for the Hub that shows the app
    arr-coc info                      model, versions, families
    arr-coc train | eval | report     studies: see study.py
    arr-coc bench                     what a first token costs in every mode

Exit codes: 0 done, 1 failed, 2 bad use. Results go to stdout, everything else to stderr; with --json
stdout holds exactly one object. Whatever can be refused is refused before a model is loaded. torch and
transformers are imported only by the commands that need them.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from arr_coc import __version__, benching, drawing, space, study, terminal, viewing
from arr_coc.app import command as app_command
from arr_coc.images import open_image

if TYPE_CHECKING:
    from PIL import Image

    from arr_coc.attending import Budget
    from arr_coc.model import ARRCOCModel

SAMPLE = Path(__file__).parent / "bundled" / "sample.json"
PICTURE_TYPES = (".png", ".jpg", ".jpeg", ".webp")

app = typer.Typer(
    help="Answer questions about an image from a fraction of its visual tokens, and see which ones.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ImagePath = Annotated[
    str | None, typer.Argument(metavar="IMAGE", help="An image file; none: the built-in sample.")
]
Question = Annotated[str | None, typer.Argument(metavar="QUESTION", help="What you want to know about it.")]
BudgetText = Annotated[
    str | None,
    typer.Option(
        "--budget",
        "-b",
        metavar="273|0.25|auto",
        help="Visual tokens to keep: a count (273 if not given), a fraction or auto.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME|FOLDER", help="A model; none: the bundled one."),
]
Mode = Annotated[
    Literal["full", "prune", "sparse", "saccade", "compress", "weight"],
    typer.Option(
        help="All tokens; some of them; some of them, encoded alone; a coarse view and fine tokens where the "
        "question points; the coarse view alone; all tokens, scaled."
    ),
]
Out = Annotated[
    str | None, typer.Option("--out", "-o", metavar="PICTURE", help="Where to write the picture.")
]


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug logs.")] = False,
) -> None:
    # --debug is read by main(), so that it works at any place of the line.
    if version:
        print(f"arr-coc {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def ask(
    image: ImagePath = None,
    question: Question = None,
    budget: BudgetText = None,
    mode: Mode = "prune",
    gestalt: Annotated[
        Literal["resize", "pool4", "pool16", "conv4", "conv16"] | None,
        typer.Option(help="How the coarse view of saccade and compress is made (resize if not given)."),
    ] = None,
    model: ModelName = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Answer with all tokens too, and time both.")
    ] = False,
    out: Out = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.safetensors", help="Save all there is to see, for arr-coc view and arr-coc app."
        ),
    ] = None,
    as_json: terminal.AsJson = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if choosing fails; else all are used.")
    ] = False,
) -> None:
    """Answer a question about an image, and draw what the answer was made from.

    Without IMAGE and QUESTION: the built-in sample. The picture goes to arr-coc-ask.png; with --json
    only to where --out says.
    """
    picture, name, text = _asked(image, question)
    target = _target("--out", out, None if as_json else "arr-coc-ask.png", PICTURE_TYPES, image)
    record = _target("--trace", trace, None, (".safetensors",), image)
    with terminal.quiet_stdout(as_json):
        asked = _budget(budget, as_json)
        loaded = _load(model, as_json, mode=mode, strict=strict)
        with terminal.status("answering", as_json):
            if compare:  # the first calls pay for what is set up only once, which is no one's cost
                loaded.ask(picture, text, budget=asked, max_new_tokens=1, gestalt=gestalt)
                loaded.ask(picture, text, mode="full", max_new_tokens=1)
            answer = loaded.ask(picture, text, budget=asked, gestalt=gestalt)
            full = loaded.ask(picture, text, mode="full") if compare else None
        if record:
            with terminal.status("looking closer", as_json):
                from arr_coc.observe import observe

                observe(loaded.session(picture), text, budget=asked, gestalt=gestalt).save(record)
    if as_json:
        facts = {
            "answer": answer.text,
            "kept": answer.kept,
            "total": answer.total,
            "read": answer.read,
            "grid": list(answer.grid),
            "mode": answer.mode,
            "note": answer.note,
            "budget": answer.budget,
            "fallback": answer.fallback,
            "ms": _rounded(answer.ms),
            "full": {"answer": full.text, "ms": _rounded(full.ms)} if full else None,
        }
        terminal.print_json(facts)
    else:
        terminal.print_answer(name, text, answer, full)
        if record:
            terminal.print_rows([("trace", f"{record} (arr-coc view {record})")])
    if target:
        from arr_coc.picture import draw_allocation

        _save(draw_allocation(picture, answer.allocation, text, answer.text), target, as_json)


@app.command()
def look(
    image: ImagePath = None,
    question: Question = None,
    budget: BudgetText = None,
    mode: Annotated[
        Literal["prune", "sparse", "saccade"], typer.Option(help="As in ask; what is known differs.")
    ] = "prune",
    model: ModelName = None,
    out: Out = None,
    save: Annotated[
        str | None, typer.Option(metavar="FILE.safetensors", help="Where to save the allocation record.")
    ] = None,
    as_json: terminal.AsJson = False,
) -> None:
    """Show where the model would look, layer by layer; nothing is answered.

    The picture goes to arr-coc-look.png; with --json, which prints the whole record, only to where --out
    says.
    """
    picture, name, text = _asked(image, question)
    target = _target("--out", out, None if as_json else "arr-coc-look.png", PICTURE_TYPES, image)
    record = _target("--save", save, None, (".safetensors",), image)
    with terminal.quiet_stdout(as_json):
        asked = _budget(budget, as_json)
        loaded = _load(model, as_json)
        with terminal.status("looking", as_json):
            allocation = loaded.look(picture, text, budget=asked, mode=mode)
    if record:
        allocation.save(record)
    if as_json:
        terminal.print_json(allocation.to_dict())
    else:
        terminal.print_allocation(name, text, allocation)
        if record:
            terminal.print_rows([("record", str(record))])
    if target:
        from arr_coc.picture import draw_layers

        _save(draw_layers(picture, allocation, text), target, as_json)


@app.command()
def info(model: ModelName = None, as_json: terminal.AsJson = False) -> None:
    """Show the model, its size, the versions at work and the families that are supported."""
    with terminal.quiet_stdout(as_json):
        loaded = _load(model, as_json)
    from arr_coc.seam import ADAPTERS

    families = {
        kind: "its recurrent layers have no masked equivalent of a dropped token" if adapter.recurrent else ""
        for kind, adapter in sorted(ADAPTERS.items())
    }
    versions = {"arr-coc": __version__, "python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in ("torch", "transformers", "kornia")}
    facts: dict[str, Any] = {
        "model": model or "bundled",
        "model_type": loaded.config.model_type,
        "parameters": sum(p.numel() for p in loaded.base.parameters()),
        "allocator_parameters": sum(p.numel() for p in loaded.layer.parameters()),
        "allocator_trained": bool(loaded.layer.trained),
        "stem_parameters": 0 if loaded.stem is None else sum(p.numel() for p in loaded.stem.parameters()),
        "compressors": list(loaded.convs),
        "device": str(loaded.device),
        "seam": True,  # a model without it does not load
        "versions": versions,
        "families": [{"model_type": kind, "note": note} for kind, note in families.items()],
    }
    if as_json:
        terminal.print_json(facts)
        return
    trained = "trained" if facts["allocator_trained"] else "untrained: looks where the model itself does"
    eyes = (
        f"{facts['stem_parameters']:,} parameters"
        if facts["stem_parameters"]
        else "none: the gestalt chooses"
    )
    rows = [
        ("model", f"{facts['model']} ({facts['model_type']}) on {facts['device']}"),
        ("parameters", f"{facts['parameters']:,}"),
        ("allocator", f"{facts['allocator_parameters']:,} parameters, {trained}"),
        ("stem", eyes),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("seam", "present: visual tokens can be dropped without patching transformers"),
        ("families", ", ".join(kind + ("*" if note else "") for kind, note in families.items())),
    ]
    terminal.print_rows(rows + [("", f"* {note}") for note in sorted(set(families.values())) if note])


app.command("draw")(drawing.command)
app.command("app")(app_command.command)
app.command("view")(viewing.command)
app.command("train")(study.train)
app.command("eval")(study.evaluate)
app.command("report")(study.report)
app.command("bench")(benching.command)
app.command("space")(space.command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; None: those of this process.

    Returns:
        The exit code: 0 done, 1 failed, 2 bad use.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    terminal.tolerate_any_text()
    try:
        with terminal.logs_on_stderr(debug):
            code = app([a for a in given if a != "--debug"], prog_name="arr-coc", standalone_mode=False)
            return code if isinstance(code, int) else 0
    except Exception as error:
        if debug:
            raise
        usage = getattr(error, "format_message", None)
        if usage:  # typer's own: an unknown option, a missing value
            context = getattr(error, "ctx", None)
            terminal.complain(usage() + (f" (see {context.command_path} --help)" if context else ""))
            return 2
        if isinstance(error, ValueError):
            terminal.complain(str(error))
            return 2
        terminal.complain(f"failed: {type(error).__name__}: {error} (--debug shows where)")
        return 1


def _asked(image: str | None, question: str | None) -> tuple[Image.Image, str, str]:
    """The image, what to call it, and the question: the sample's where none is given."""
    if image is None:
        if not SAMPLE.is_file():
            raise ValueError(
                "the built-in sample is missing from this installation: give an image and a question"
            )
        sample = json.loads(SAMPLE.read_text(encoding="utf-8"))
        return open_image(SAMPLE.with_suffix(".png")), "the built-in sample", sample["question"]
    if question is None:
        raise ValueError(f'no question about {image!r}: add one in quotes, for example "What is the title?"')
    if not question.strip():
        raise ValueError(f"the question is empty ({question!r}): ask something about the image")
    return open_image(image), image, question.strip()


def _target(
    option: str, path: str | None, default: str | None, kinds: Sequence[str], image: str | None
) -> Path | None:
    """Where to write, if anywhere."""
    chosen = default if path is None else path
    return None if chosen is None else terminal.target(option, chosen, kinds, image)


def _budget(text: str | None, quiet: bool) -> Budget | None:
    """The budget, checked before a model is loaded; None leaves it to the model."""
    if text is None:
        return None
    with terminal.status("starting", quiet):
        from arr_coc.attending import parse_budget
    return parse_budget(text)


def _load(model: str | None, quiet: bool, **options: Any) -> ARRCOCModel:
    with terminal.status("starting", quiet):
        from transformers.utils import logging as transformers_logging

        from arr_coc.model import ARRCOCModel

    transformers_logging.set_verbosity_error()
    remote = model is not None and not model.startswith((".", "/", "~")) and not Path(model).exists()
    if quiet or not remote:
        transformers_logging.disable_progress_bar()
    if remote and not quiet:  # a download shows its own progress
        terminal.note(f"loading {model}")
        return ARRCOCModel.from_pretrained(model, **options)
    with terminal.status("loading the model", quiet):
        return ARRCOCModel.from_pretrained(model, **options)


def _save(picture: Image.Image, target: Path, quiet: bool) -> None:
    picture.save(target)
    if not quiet:
        terminal.print_rows([("picture", str(target))])


def _rounded(ms: dict[str, float]) -> dict[str, float]:
    return {stage: round(value, 2) for stage, value in ms.items()}
