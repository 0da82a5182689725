"""The command `arr-coc adapt`: trains an allocator from a checkpoint and a folder of images."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from arr_coc.cli import options, terminal
from arr_coc.files.paths import local_path


def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model on the Hub or on this disk, or bundled.")
    ],
    data: Annotated[
        str,
        typer.Option(
            metavar="FOLDER|NAME:DIR", help="Images with their questions, or a data set as of eval."
        ),
    ],
    out: options.AllocatorFolder = options.DEFAULT_FOLDER,
    split: Annotated[str | None, typer.Option(help="Of the data; its usual one if not given.")] = None,
    steps: Annotated[int | None, options.steps("Of each recipe; the recipe's own if not given.")] = None,
    minutes: Annotated[float | None, options.minutes("That learning may take in all.")] = None,
    budgets: Annotated[
        str, typer.Option(metavar="64,0.25", help="Visual tokens to keep where it is measured.")
    ] = "0.0625,0.25",
    questions: Annotated[
        int, typer.Option(min=1, metavar="N", help="So many held-out questions are measured, at most.")
    ] = 200,
    recipes: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME", help="Which recipes alone; all that apply if not given."),
    ] = None,
    push: Annotated[
        str | None, typer.Option(metavar="USER/NAME", help="Share it on the Hub under this name.")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="Of --push: for your account alone.")] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    as_json: options.AsJson = False,
) -> int:
    """Train an allocator for a model on your images, and measure what that gained.

    Every fifth image is held out, and measured before and after. Evidence boxes teach where to look; without
    any, the allocator learns from what the model itself uses. The same line resumes a run that was ended.
    """
    with terminal.quiet_stdout(as_json):
        with terminal.status("starting", as_json):
            from arr_coc.choose.budget import parse_budget
            from arr_coc.files.device import resolve_device
            from arr_coc.files.hub import check_hub_name, check_shared
            from arr_coc.store.checkpoint import find
            from arr_coc_lab.adaptation import Adaptation, adapt, parts_of

            terminal.quiet_transformers()
        resolve_device(device)
        if dtype == "float16":
            raise ValueError("dtype 'float16' can't be learned with: use float32 or bfloat16")
        if push is not None:  # before hours of learning
            check_hub_name(push)
            check_shared(find(model, None).base)
        wanted = Adaptation(
            model,
            data,
            split=split,
            steps=steps,
            minutes=minutes,
            budgets=tuple(parse_budget(text.strip()) for text in budgets.split(",")),
            questions=questions,
            recipes=None if recipes is None else parts_of(recipes),
            device=device,
            dtype=None if dtype == "auto" else dtype,
        )
        say = (lambda line: None) if as_json else terminal.note
        try:
            result = adapt(wanted, local_path(out), progress=not as_json, say=say)
        except KeyboardInterrupt:
            terminal.complain("stopped; the same line goes on where it was")
            return options.INTERRUPTED
        if result["signal"] is None and push is not None:
            result["address"] = _share(out, push, private)
    if as_json:
        terminal.print_json({"folder": out, **result})
    if result["signal"] is not None:
        terminal.complain(f"stopped in {result['part']}; the same line goes on from there")
        return 128 + result["signal"]
    if not as_json:
        _print_result(out, result)
    return 0


def _share(out: str, name: str, private: bool) -> str:
    """Upload the allocator with its model card; the address of the commit."""
    from arr_coc.files.hub import upload
    from arr_coc.store.card import SHARED

    return upload(local_path(out), name, SHARED, private=private or None)


def _print_result(out: str, result: dict[str, Any]) -> None:
    from arr_coc_lab.gain import in_words

    gained = result["gain"]
    rows = [("folder", out)]
    rows.append(("measured", f"{gained['questions']:,} held-out questions, {gained['images']:,} images"))
    rows += in_words(gained)
    rows += [("address", result["address"])] if "address" in result else []
    rows.append(("next", f"arr-coc ask IMAGE QUESTION --model {shlex.quote(out)}"))
    terminal.print_rows(rows)
