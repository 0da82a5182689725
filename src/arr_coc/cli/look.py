"""The command `arr-coc look`: where the model would look, layer by layer; nothing is answered."""

from __future__ import annotations

from typing import Annotated

import typer

from arr_coc.cli import inputs, options, terminal


def command(
    image: options.ImagePath = None,
    question: options.Question = None,
    budget: options.Budget = None,
    mode: options.ChoosingMode = options.DEFAULT_MODE,
    model: options.Model = options.DEFAULT_MODEL,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    out: options.Out = None,
    save: Annotated[
        str | None, typer.Option(metavar="FILE.safetensors", help="Where to save the allocation record.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show where the model would look, layer by layer; nothing is answered.

    The picture goes to arr-coc-look.png; with --json, which prints the whole record, only to where --out
    says.
    """
    picture, name, text = inputs.open_question(image, question)
    if out is None and not as_json:
        out = "arr-coc-look.png"
    drawing_path = inputs.optional_path("--out", out, inputs.PICTURE_TYPES, image)
    record_path = inputs.optional_path("--save", save, (".safetensors",), image)
    with terminal.quiet_stdout(as_json):
        allowed = inputs.read_budget(budget, as_json)
        loaded = inputs.load_model(model, device, dtype, as_json)
        with terminal.status("looking", as_json):
            allocation = loaded.look(picture, text, budget=allowed, mode=mode)
    if record_path:
        allocation.save(record_path)
    if as_json:
        terminal.print_json(allocation.to_dict())
    else:
        terminal.print_allocation(name, text, allocation)
        if record_path:
            terminal.print_rows([("record", str(record_path))])
    if drawing_path:
        from arr_coc.inspect.picture import draw_layers

        terminal.save_picture(draw_layers(picture, allocation, text), drawing_path, as_json)
