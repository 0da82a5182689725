"""The entry point of `arr-coc`: the table of commands, plugins among them, and how a failure is reported.

A command checks its options, calls the library and prints the result. Results go to stdout, everything else
to stderr; with --json stdout holds one object, of a folder of images one per line. Whatever can be refused is
refused before a model is loaded. Exit codes: 0 done, 1 failed, 2 bad use.
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
from arr_coc.cli import app, ask, crop, info, look, serving, terminal, tokens, train
from arr_coc.files.paths import shorten
from arr_coc.files.plugins import import_modules, missing, plugin, plugins

EXAMPLES: dict[str, tuple[str, ...]] = {  # lines at the end of a command's --help
    "ask": (
        "arr-coc ask",
        'arr-coc ask page.png "What is the invoice number?" --budget 0.25 --compare',
        'arr-coc ask before.png after.png "What has changed?"',
        'arr-coc ask paper.pdf --page 3 "Who wrote this?"',
        'arr-coc ask scans "What is the total?" --json > totals.jsonl',
        'cat page.png | arr-coc ask - "What is the title?"',
    ),
    "look": (
        "arr-coc look",
        'arr-coc look page.png "Where is the date?" --model bundled --mode sparse --out look.png',
        'arr-coc look scans "What is the total?" --json > cells.jsonl',
    ),
    "crop": (
        "arr-coc crop",
        'arr-coc crop page.png "When will the parcel arrive?" --for claude --tokens 300 --out pictures',
        'arr-coc crop scans "What is the total?" --for gpt-5.4 --json > places.jsonl',
        'cat page.png | arr-coc crop - "Who signed it?" --for 28 --tokens 200 --out - > part.png',
    ),
    "tokens": (
        "arr-coc tokens page.png",
        "arr-coc tokens screenshots/*.png --for claude-opus-5 --json",
    ),
    "info": ("arr-coc info", "arr-coc info --model Qwen/Qwen3-VL-2B-Instruct --dtype bfloat16"),
    "draw": ("arr-coc draw", "arr-coc draw --count 20 --size 1280x960 --seed 100 --out pages"),
    "app": ("arr-coc app", "arr-coc app trace.safetensors --port 8000"),
    "proxy": (
        "arr-coc proxy --upstream http://127.0.0.1:11434",
        "arr-coc proxy --upstream https://api.openai.com/v1 --tokens 600 --for gpt-5 --port 9000",
    ),
    "mcp": (
        "arr-coc mcp screenshots",
        "arr-coc mcp scans reports --for claude",
        'arr-coc mcp --around "npx @playwright/mcp@latest" --screens parts',
    ),
    "view": ("arr-coc view trace.safetensors --out answer.html",),
    "train": (
        "arr-coc train list",
        "arr-coc train distill steps=200 --out my-allocator",
        "arr-coc train guide --pages pages --out my-guide",
        "arr-coc train guide --stage relevance --from bundled --pages jsonl:mine --out my-guide",
    ),
    "adapt": (
        "arr-coc adapt bundled --data pages --steps 20 --out my-allocator",
        "arr-coc adapt Qwen/Qwen3-VL-2B-Instruct --data mine --minutes 60 --push me/my-allocator",
    ),
    "world": (
        "arr-coc world pages --pages 2000 --documents 500",
        "arr-coc world receipts --type receipt --pages 9 --show 9",
        "arr-coc world mine --html my-app --views 500 --show 9",
    ),
    "eval": (
        "arr-coc eval --questions 100 --methods full,arr-coc,random --budgets 273,64",
        "arr-coc eval --data textvqa:TextVQA --out textvqa",
    ),
    "report": (
        "arr-coc report arr-coc-eval.jsonl",
        "arr-coc report part1.jsonl part2.jsonl --out whole",
    ),
    "bench": ("arr-coc bench", "arr-coc bench --modes stock,prune@64,sparse@64 --rounds 5"),
    "space": ('arr-coc space my-space --title "What it reads"',),
}


broken: dict[str, str] = {}
"""By command of another distribution that can't be imported, why."""


class _HelpColumns:
    """Help that names the type of an option's value; flags and arguments have none."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)  # ty: ignore[missing-attribute] (of the class it is mixed into)
        for param in params:
            if getattr(param, "is_flag", False) or param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: ""
        return params


class _Command(_HelpColumns, TyperCommand):
    """A command whose help ends with its examples."""

    def get_help(self, ctx: Any) -> str:
        text = super().get_help(ctx)  # empty if typer has printed it already, in colour
        if self.name not in EXAMPLES:
            return text
        # Not the epilog of typer, which up to 0.25 joins its lines to one.
        examples = "\n".join(("Examples:", *(f"  {line}" for line in EXAMPLES[self.name])))
        console = Console(highlight=False)
        with console.capture() as printed:
            console.print(Padding(Text(examples), 1))
        return "\n\n".join(filter(None, (text, printed.get().rstrip())))


class _Commands(_HelpColumns, TyperGroup):
    """All commands; one of a distribution that is not installed is refused with how to install it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in broken:
            raise ValueError(broken[args[0]])
        if args and args[0] in ORDER and args[0] not in self.commands:
            raise ValueError(missing(f"command {args[0]!r}"))
        return super().resolve_command(ctx, args)


commands = typer.Typer(
    cls=_Commands,
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
    # Lines are broken by the terminal's width, not as in the source.
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
    commands.command(name, cls=_Command, help=escape(text))(function)


OWN = {  # commands of this distribution
    "ask": ask.ask_command,
    "look": look.look_command,
    "crop": crop.crop,
    "tokens": tokens.count_tokens,
    "info": info.info,
    "app": app.app,
    "proxy": serving.proxy,
    "mcp": serving.mcp,
    "view": app.view_command,
    "space": app.space,
    "train": train.train_command,
}
# Commands in the order of the help, those of daily use first; those of other distributions follow.
ORDER = tuple(
    "ask look crop tokens info draw app proxy mcp view train adapt world eval report bench space".split()
)

for _name in (*ORDER, *sorted(plugins("commands").keys() - set(ORDER))):
    if _name in OWN or _name in plugins("commands"):
        try:
            register_command(_name, OWN.get(_name) or plugin("commands", _name))
        except ValueError as _error:  # a broken distribution leaves the other commands usable
            broken[_name] = str(_error)


def _import(context: typer.Context, names: list[str] | None) -> list[str]:
    """Import the user's modules while options are parsed, so that their commands are known."""
    import_modules(names or ())
    if names:  # built-in commands anew too: their help lists what was registered
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
        code, message = _outcome(error)
        terminal.complain(message)
        return code


def _outcome(error: Exception) -> tuple[int, str]:
    """Return the exit code of a failure, and its line on stderr."""
    usage = getattr(error, "format_message", None)
    if usage:  # typer's own: an unknown option, a missing value
        context = getattr(error, "ctx", None)
        reason = usage().replace("Value error, ", "")  # the type-checking library's words
        return 2, reason + (f" (see {context.command_path} --help)" if context else "")
    if isinstance(error, ValueError):
        return 2, str(error)
    if isinstance(error, RecursionError):  # of a parser: JSON, TOML and headers nest as deep as they like
        return 2, "a file among the inputs is nested too deeply to be read: correct it"
    hint = "(--debug shows where)"
    if isinstance(error, OSError) and error.strerror:  # a full disk, a read-only folder
        place = "a file" if error.filename is None else shorten(str(error.filename))
        return 1, f"failed: {place}: {error.strerror}; make room there or choose another place {hint}"
    return 1, f"failed: {type(error).__name__}: {error} {hint}"
