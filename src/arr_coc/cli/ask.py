"""The command `arr-coc ask`: an answer from a fraction of the visual tokens, and a picture of which ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from arr_coc.cli import inputs, options, terminal

if TYPE_CHECKING:
    from arr_coc.session import Answer


def command(
    image: options.ImagePath = None,
    question: options.Question = None,
    budget: options.Budget = None,
    mode: options.Mode = options.DEFAULT_MODE,
    gestalt: options.Gestalt = None,
    model: options.Model = options.DEFAULT_MODEL,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    compare: Annotated[
        bool, typer.Option("--compare", help="Answer with all tokens too, and time both.")
    ] = False,
    out: options.Out = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.safetensors", help="Save all there is to see, for arr-coc view and arr-coc app."
        ),
    ] = None,
    as_json: options.AsJson = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if choosing fails; else all are used.")
    ] = False,
) -> None:
    """Answer a question about an image, and draw what the answer was made from.

    Without IMAGE and QUESTION: the built-in sample. The picture goes to arr-coc-ask.png; with --json
    only to where --out says.
    """
    picture, name, text = inputs.open_question(image, question)
    if out is None and not as_json:
        out = "arr-coc-ask.png"
    drawing_path = inputs.optional_path("--out", out, inputs.PICTURE_TYPES, image)
    trace_path = inputs.optional_path("--trace", trace, (".safetensors",), image)
    with terminal.quiet_stdout(as_json):
        allowed = inputs.read_budget(budget, as_json)
        loaded = inputs.load_model(model, device, dtype, as_json, mode=mode, strict=strict)
        with terminal.status("answering", as_json):
            if compare:  # the first calls pay for what is set up only once, which is no one's cost
                loaded.ask(picture, text, budget=allowed, max_new_tokens=1, gestalt=gestalt)
                loaded.ask(picture, text, mode="full", max_new_tokens=1)
            answer = loaded.ask(picture, text, budget=allowed, gestalt=gestalt)
            full = loaded.ask(picture, text, mode="full") if compare else None
        if trace_path:
            with terminal.status("looking closer", as_json):
                from arr_coc.inspect.observe import observe

                observe(loaded.session(picture), text, budget=allowed, gestalt=gestalt).save(trace_path)
    if as_json:
        terminal.print_json(_to_dict(answer, full))
    else:
        terminal.print_answer(name, text, answer, full)
        if trace_path:
            terminal.print_rows([("trace", f"{trace_path} (arr-coc view {trace_path})")])
    if drawing_path:
        from arr_coc.inspect.picture import draw_allocation

        terminal.save_picture(
            draw_allocation(picture, answer.allocation, text, answer.text), drawing_path, as_json
        )


def _to_dict(answer: Answer, full: Answer | None) -> dict[str, object]:
    """What --json prints."""
    return {
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


def _rounded(ms: dict[str, float]) -> dict[str, float]:
    return {stage: round(value, 2) for stage, value in ms.items()}
