"""The command line `arr-coc`: each command checks its options, calls the library and prints the result.

    arr-coc ask [IMAGE]... [QUESTION] answer from a fraction of the visual tokens, and draw which ones
    arr-coc look [IMAGE]... [QUESTION] the allocation alone, all layers
    arr-coc draw                      make sample pages with questions and answers
    arr-coc app                       ask and look in a browser
    arr-coc view TRACE...             saved traces as one page that opens anywhere
    arr-coc space FOLDER              a Space for the Hub that shows the app
    arr-coc info                      model, device, versions; --families
    arr-coc train RECIPE              teach an allocator, or the guide
    arr-coc adapt MODEL --data DIR    all of it: measure, teach, measure, card
    arr-coc world FOLDER              render pages to teach the guide on
    arr-coc eval                      methods x budgets on one model, a line per question
    arr-coc report RESULT             table and Pareto plot, from a result file alone
    arr-coc bench                     what a first token costs in every mode

One file per command, each with a function `command`; a module of --import may add its own with
`register_command`. Exit codes: 0 done, 1 failed, 2 bad use. Results go to
stdout, everything else to stderr; with --json stdout holds exactly one object, of a folder of images one per
line. Whatever can be refused is refused before a model is loaded. torch and transformers are imported only by
the commands that need them, and by no completion of a shell.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from arr_coc import __version__
from arr_coc.cli import app, ask, info, look, space, terminal, train, view
from arr_coc.cli.examples import EXAMPLES
from arr_coc.files.paths import shorten
from arr_coc.files.plugins import import_modules, missing, plugin, plugins

__all__ = ["commands", "main", "register_command"]


class _Untyped:
    """Help that names the type of a value, and none of a flag or an argument."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, and --help."""
        params = super().get_params(ctx)  # ty: ignore[missing-attribute] (of the class it is mixed into)
        for param in params:
            if getattr(param, "is_flag", False) or param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: ""
        return params


class Command(_Untyped, TyperCommand):
    """One command."""

    def get_help(self, ctx: Any) -> str:
        """Its help, and below it the examples, a line each (typer up to 0.25 joins an epilog to one)."""
        text = super().get_help(ctx)  # empty where typer has printed it already, which it does in colour
        if self.name not in EXAMPLES:
            return text
        examples = "\n".join(("Examples:", *(f"  {line}" for line in EXAMPLES[self.name])))
        console = Console(highlight=False)
        with console.capture() as printed:
            console.print(Padding(Text(examples), 1))
        return "\n\n".join(filter(None, (text, printed.get().rstrip())))


class Commands(_Untyped, TyperGroup):
    """All of them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of a line; one of a distribution that is not installed is named."""
        if args and args[0] in ORDER and args[0] not in self.commands:
            raise ValueError(missing(f"command {args[0]!r}"))
        return super().resolve_command(ctx, args)


commands = typer.Typer(
    cls=Commands,
    help="Answer questions about an image from a fraction of its visual tokens, and see which ones.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def register_command(name: str, function: Callable[..., Any]) -> None:
    """Add a command to `arr-coc`.

    Args:
        name: as it is typed.
        function: its arguments, with their types and defaults, are those of the command; its docstring is its
            help, up to a line "Args:". See `typer`.

    Raises:
        ValueError: the name is taken, or can't be typed as one word.
    """
    if not name or name.startswith("-") or any(sign.isspace() for sign in name):
        raise ValueError(f"command name {name!r} is empty, begins with - or has a space: use one word")
    if any(command.name == name for command in commands.registered_commands):
        raise ValueError(f"command {name!r} is registered already: give yours another name")
    text = (inspect.getdoc(function) or "").split("\nArgs:")[0].strip()
    # Lines are broken where the terminal ends, not where the source does.
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    commands.command(name, cls=Command, help=escape(text))(function)


ORDER = tuple("ask look info draw app view train adapt world eval report bench space".split())
"""The commands as the help lists them, what a daily user needs first; those of other distributions follow."""
OWN = {
    "ask": ask.command,
    "look": look.command,
    "info": info.command,
    "app": app.command,
    "view": view.command,
    "train": train.command,
    "space": space.command,
}

for _name in (*ORDER, *sorted(plugins("commands").keys() - set(ORDER))):
    if _name in OWN or _name in plugins("commands"):
        register_command(_name, OWN.get(_name) or plugin("commands", _name))


def _import(context: typer.Context, names: list[str] | None) -> list[str]:
    """Import the user's modules while the line is read, so that the commands that they add are known."""
    import_modules(names or ())
    if names:  # also the built-in commands anew: their help lists what was registered
        root: Any = context.command
        rebuilt: Any = typer.main.get_command(commands)
        root.commands.update(rebuilt.commands)
    return names or []


@commands.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            callback=_import,
            is_eager=True,  # before --help, and before the command is looked up
            help="Import a module of yours first, for what it registers; can be repeated.",
        ),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and debug logs.")] = False,
) -> None:
    # --debug is read by main(), so that it works at any place of the line; --import by `_import`.
    if version:
        print(f"arr-coc {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


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
            reason = usage().replace("Value error, ", "")  # the words of the library that checks types
            terminal.complain(reason + (f" (see {context.command_path} --help)" if context else ""))
            return 2
        if isinstance(error, ValueError):
            terminal.complain(str(error))
            return 2
        if isinstance(error, RecursionError):  # of a parser: JSON, TOML and headers nest as deep as they like
            terminal.complain("a file among the inputs is nested too deeply to be read: correct it")
            return 2
        if isinstance(error, OSError) and error.strerror:  # a full disk, a folder that is read-only
            place = "a file" if error.filename is None else shorten(str(error.filename))
            terminal.complain(
                f"failed: {place}: {error.strerror}; make room there or choose another place (--debug shows "
                "where)"
            )
            return 1
        terminal.complain(f"failed: {type(error).__name__}: {error} (--debug shows where)")
        return 1
