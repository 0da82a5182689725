"""The command line `arr-coc`: each command checks its options, calls the library and prints the result.

    arr-coc ask [IMAGE] [QUESTION]    answer from a fraction of the visual tokens, and draw which ones
    arr-coc look [IMAGE] [QUESTION]   the allocation alone, all layers
    arr-coc draw                      make sample pages with questions and answers
    arr-coc app                       ask and look in a browser
    arr-coc view TRACE...             saved traces as one page that opens anywhere
    arr-coc space FOLDER              a Space for the Hub that shows the app
    arr-coc info                      model, device, versions, families
    arr-coc train RECIPE              teach an allocator
    arr-coc eval                      methods x budgets on one model, a line per question
    arr-coc report RESULT             table and Pareto plot, from a result file alone
    arr-coc bench                     what a first token costs in every mode

One file per command, each with a function `command`. Exit codes: 0 done, 1 failed, 2 bad use. Results go to
stdout, everything else to stderr; with --json stdout holds exactly one object. Whatever can be refused is
refused before a model is loaded. torch and transformers are imported only by the commands that need them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from arr_coc import __version__
from arr_coc.cli import app, ask, bench, draw, eval, info, look, report, space, terminal, train, view
from arr_coc.cli.inputs import import_modules

__all__ = ["commands", "main"]

commands = typer.Typer(
    help="Answer questions about an image from a fraction of its visual tokens, and see which ones.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
commands.command("ask")(ask.command)
commands.command("look")(look.command)
commands.command("info")(info.command)
commands.command("draw")(draw.command)
commands.command("app")(app.command)
commands.command("view")(view.command)
commands.command("train")(train.command)
commands.command("eval")(eval.command)
commands.command("report")(report.command)
commands.command("bench")(bench.command)
commands.command("space")(space.command)


@commands.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module of yours first, for what it registers; can be repeated.",
        ),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug logs.")] = False,
) -> None:
    # --debug is read by main(), so that it works at any place of the line.
    if version:
        print(f"arr-coc {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
    else:
        import_modules(modules or ())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; None: those of this process.

    Returns:
        The exit code: 0 done, 1 failed, 2 bad use.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    terminal.tolerate_any_text()
    try:
        with terminal.logs_on_stderr(debug):
            line = [word for word in words if word != "--debug"]
            code = commands(line, prog_name="arr-coc", standalone_mode=False)
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
