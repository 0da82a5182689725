"""The command `arr-coc look`: where the model would look, layer by layer; nothing is answered."""

from __future__ import annotations

from typing import Annotated

import typer

from arr_coc.cli import inputs, options, terminal

PICTURE = "arr-coc-look.png"


def command(
    image: Annotated[
        str | None,
        typer.Argument(metavar="IMAGE", help=options.IMAGE_HELP + ". None: the built-in sample."),
    ] = None,
    question: Annotated[
        str | None, typer.Argument(metavar="QUESTION", help="What you want to know about it.")
    ] = None,
    budget: options.Budget = None,
    mode: options.ChoosingMode = None,
    model: options.Model = options.DEFAULT_MODEL,
    allocator: options.Allocator = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    page: options.Page = None,
    evidence: options.Evidence = None,
    out: options.Out = None,
    save: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where to save the allocation record, a .safetensors.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show where the model would look, layer by layer; nothing is answered.

    The picture goes to arr-coc-look.png if that can be written; with --json, which prints the whole record,
    only to where --out says.
    """
    request = inputs.read_question([word for word in (image, question) if word is not None])
    if request.folder is not None:
        raise ValueError(f"{image!r} is a folder: give the path of one image file")
    (picture,) = inputs.open_pictures(request, page)
    drawing_path = inputs.drawing_path(out, PICTURE, request.names, as_json)
    record_path = inputs.optional_path("--save", save, (".safetensors",), request.names)
    boxes = inputs.read_evidence(evidence)
    with terminal.quiet_stdout(as_json):
        allowed = inputs.read_budget(budget, as_json)
        loaded = inputs.load_model(model, device, dtype, as_json, allocator=allocator)
        with terminal.status("looking", as_json):
            session = loaded.session(picture)
            allocation = session.look(request.question, budget=allowed, mode=mode)
    if record_path:
        allocation.save(record_path)
    from arr_coc.inspect.evidence import score

    scored = score(boxes, allocation, picture.size)
    if as_json:
        recall = {"evidence_recall": scored.recall} if boxes else {}
        terminal.print_json(allocation.to_dict() | recall)
    else:
        terminal.print_allocation(request.title, request.question, allocation)
        if boxes:
            terminal.print_rows([("evidence", scored.text.removeprefix("evidence: ") or "outside of it")])
        if record_path:
            terminal.print_rows([("record", str(record_path))])
    if drawing_path:
        from arr_coc.inspect.observe import session_guidance
        from arr_coc.inspect.picture import draw_layers

        guidance = session_guidance(session, request.question, allocation.grid[1:])
        drawing = draw_layers(picture, allocation, request.question, boxes, guidance)
        terminal.save_picture(drawing, drawing_path, as_json, needed=out is not None)
