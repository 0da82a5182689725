"""Runs VLMEvalKit's `run.py` with arr-coc among its models: the kit has no plugins.

    python -m arr_coc_lab.integrations.vlmeval --kit VLMEvalKit --mode sparse --budget 64 -- --data OCRBench

`--kit` is a checkout with its requirements installed; arguments after `--` go to `run.py`. Tested with a
stand-in for the documented interface, not with the kit itself.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from arr_coc.choose.budget import parse_budget
from arr_coc.files.paths import BUNDLED_NAME, local_path
from arr_coc.modes import find_mode
from arr_coc_lab.integrations.chat import Decoding, Reply, Responder, load


def model_class() -> type:
    """Return the class that VLMEvalKit calls, a `vlmeval.vlm.base.BaseModel`; ValueError without the kit."""
    try:
        from vlmeval.vlm.base import BaseModel
    except ImportError as error:
        raise ValueError(
            f"VLMEvalKit can't be imported ({error}): check it out, install its requirements, and give its "
            "folder as --kit"
        ) from error

    class ARRCOC(BaseModel):
        """A vision-language model that reads only the visual tokens a question needs.

        `replies` are the answers with their costs, in the order of the questions.
        """

        INTERLEAVE = True
        allowed_types = ("text", "image")

        def __init__(self, pretrained: str = BUNDLED_NAME, max_new_tokens: int = 128, **options: Any) -> None:
            self.decoding = Decoding(max_new_tokens=max_new_tokens)
            self.responder = Responder(load(pretrained, **options))
            self.replies: list[Reply] = []

        def generate_inner(self, message: Sequence[Mapping[str, str]], dataset: str | None = None) -> str:
            parts = [{"type": part["type"], part["type"]: part["value"]} for part in message]
            reply = self.responder.reply([{"role": "user", "content": parts}], self.decoding)
            self.replies.append(reply)
            return reply.text

    return ARRCOC


def register(name: str, **options: Any) -> None:
    """Add arr-coc to the models of VLMEvalKit, which loads it on first use.

    `name` is for `run.py --model`; `options` are those of the class of `model_class`. ValueError for a bad
    mode or budget, a kit that can't be imported, or a name it has already.
    """
    if options.get("mode") is not None:
        find_mode(options["mode"])
    if options.get("budget") is not None:
        parse_budget(options["budget"])
    made = model_class()
    from vlmeval.config import supported_VLM

    if name in supported_VLM:
        raise ValueError(f"VLMEvalKit has a model {name!r} already: choose another with --name")
    supported_VLM[name] = partial(made, **options)


def set_up(kit: Path, name: str, arguments: Sequence[str], **options: Any) -> Path:
    """Register arr-coc as `register` and set `sys.argv` for the kit's `run.py`; returns its path.

    `arguments` are for `run.py`, without `--model`; ValueError if `kit` has none.
    """
    script = kit / "run.py"
    if not script.is_file():
        raise ValueError(f"folder {str(kit)!r} has no run.py: give a checkout of VLMEvalKit as --kit")
    if "--model" in arguments or "--config" in arguments:
        raise ValueError("the launcher itself says --model: leave --model and --config out behind --")
    sys.path.insert(0, str(kit))
    register(name, **options)
    sys.argv = [str(script), "--model", name, *arguments]
    return script


def command(
    arguments: Annotated[list[str], typer.Argument(metavar="-- ARGUMENT...", help="Of the kit's run.py.")],
    kit: Annotated[str, typer.Option(metavar="FOLDER", help="The checkout of VLMEvalKit.")] = "VLMEvalKit",
    name: Annotated[str, typer.Option(help="Of the model, in the kit's files.")] = "arr-coc",
    pretrained: Annotated[str, typer.Option(help="A folder or Hub name, or bundled.")] = BUNDLED_NAME,
    mode: Annotated[str | None, typer.Option(help="The model's own if not given.")] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="273|0.25|auto", help="Visual tokens to keep.")
    ] = None,
    allocator: Annotated[str | None, typer.Option(help="For the model.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cuda:1.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Such as bfloat16.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Of an answer.")] = 128,
) -> None:
    """Evaluate arr-coc with VLMEvalKit."""
    options: dict[str, Any] = {"mode": mode, "budget": budget, "allocator": allocator}
    options |= {"device": device, "dtype": dtype}
    options |= {"pretrained": pretrained, "max_new_tokens": max_new_tokens}
    try:
        script = set_up(local_path(kit), name, arguments, **options)
    except ValueError as error:
        print(f"arr-coc: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    # outside of the try: the kit's own errors keep their traceback
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    typer.run(command)
