"""The command `arr-coc look`: which cells a question needs, layer by layer; nothing is answered.

Without a model the guide alone decides, and transformers isn't imported.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from arr_coc.cli import inputs, options, terminal

if TYPE_CHECKING:
    from PIL import Image

    from arr_coc.core.attending import Budget
    from arr_coc.core.realizing import Decision

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
    model: options.LookModel = None,
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
    """Show which cells a question needs, layer by layer; nothing is answered.

    The guide decides, which needs no model; with --model that model does, as in ask.

    The picture goes to arr-coc-look.png if that can be written; with --json, which prints the whole record,
    only to where --out says.
    """
    if model is None:
        # Threads that wait for one another sleep: spinning, as they do by themselves, takes many times the
        # guide's own work where other programs want the same cores. Read when torch is imported.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    request = inputs.read_question([word for word in (image, question) if word is not None])
    if request.folder is not None:
        raise ValueError(f"{image!r} is a folder: give the path of one image file")
    (picture,) = inputs.open_pictures(request, page)
    drawing_path = inputs.drawing_path(out, PICTURE, request.names, as_json)
    record_path = inputs.optional_path("--save", save, (".safetensors",), request.names)
    boxes = inputs.read_evidence(evidence)
    with terminal.quiet_stdout(as_json):
        allowed = inputs.read_budget(budget, as_json)
        if model is None:
            named = {"--mode": mode, "--allocator": allocator}
            if option := next((option for option, value in named.items() if value is not None), None):
                raise ValueError(f"{option} is of a model: name one with --model ({options.DEFAULT_MODEL!r})")
            decision = _guided(picture, request.question, allowed, device, dtype, as_json)
            allocation = decision.allocations[0]
            coupling = decision.couplings[0]
        else:
            loaded = inputs.load_model(model, device, dtype, as_json, allocator=allocator)
            with terminal.status("looking", as_json):
                session = loaded.session(picture)
                prepared = session.prepared(request.question, budget=allowed, mode=mode)
            allocation = prepared.allocations[0]
            coupling = next(iter(prepared.couplings), None)
    if record_path:
        allocation.save(record_path)
    from arr_coc.inspect.evidence import score

    scored = score(boxes, allocation, picture.size)
    if as_json:
        facts = allocation.to_dict()
        if coupling is not None:
            facts["coupling"] = coupling.to_dict()
        if boxes:
            facts["evidence_recall"] = scored.recall
        terminal.print_json(facts)
    else:
        terminal.print_allocation(request.title, request.question, allocation, coupling)
        if boxes:
            terminal.print_rows([("evidence", scored.text.removeprefix("evidence: ") or "outside of it")])
        if record_path:
            terminal.print_rows([("record", str(record_path))])
    if drawing_path:
        from arr_coc.inspect.guidance import Guidance
        from arr_coc.inspect.picture import draw_layers

        guidance = None if coupling is None else Guidance.of(coupling)
        drawing = draw_layers(picture, allocation, request.question, boxes, guidance)
        terminal.save_picture(drawing, drawing_path, as_json, needed=out is not None)


def _guided(
    picture: Image.Image, question: str, budget: Budget | None, device: str, dtype: str, quiet: bool
) -> Decision:
    """What the guide decides alone."""
    with terminal.starting(quiet):
        from arr_coc.core.attending import DEFAULT_BUDGET
        from arr_coc.core.guide.store import load_guide
        from arr_coc.core.selector import Selector

        selector = Selector(load_guide(dtype=dtype, device="cpu" if device == "auto" else device))
    with terminal.status("looking", quiet):
        return selector.decide(picture, question, DEFAULT_BUDGET if budget is None else budget)
