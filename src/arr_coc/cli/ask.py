"""The command `arr-coc ask`: an answer from a fraction of the visual tokens, and a picture of which ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arr_coc.cli import inputs, options, terminal
from arr_coc.relevance.names import parse_relevance

if TYPE_CHECKING:
    from PIL import Image

    from arr_coc.answer import Answer
    from arr_coc.data.record import Box
    from arr_coc.video.opening import Visual

PICTURE = "arr-coc-ask.png"
MAX_NOTES = 3  # most frequent notes of a folder's answers that are printed


def ask_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGE... QUESTION",
            help=options.IMAGE_HELP
            + ". Or a video. Several are asked about together, a folder's one by one. The last word is the "
            "question. None: the built-in sample.",
        ),
    ] = None,
    budget: options.Budget = None,
    coverage: options.Coverage = None,
    mode: options.Mode = None,
    gestalt: options.Gestalt = None,
    magnify: options.Magnify = "1",
    model: options.Model = options.DEFAULT_MODEL,
    allocator: options.Allocator = None,
    guide: options.Guide = None,
    relevance: options.Relevance = "auto",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    page: options.Page = None,
    fps: options.Fps = None,
    evidence: options.Evidence = None,
    max_new_tokens: options.MaxNewTokens = 32,
    compare: Annotated[
        bool, typer.Option("--compare", help="Answer from all tokens too, and time both from the start.")
    ] = False,
    out: options.Out = None,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Save the answer with every map and reason, as .safetensors, for arr-coc view and app.",
        ),
    ] = None,
    as_json: options.AsJson = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if choosing fails. Not given: all tokens are read then.")
    ] = False,
) -> int:
    """Answer a question about an image, and draw which cells were read for it.

    The drawing goes to arr-coc-ask.png; with --json only --out makes one.

    In a folder, each image gets an answer in a row of its own, with --json a JSON object per line. Nothing is
    drawn. If an image can't be opened, its row says why, and the exit code is 1.
    """
    # Waiting threads sleep: spinning takes twice the processor time where other programs want the cores.
    # Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    request = inputs.read_question(words or ())
    parse_relevance(relevance)
    parts = {"allocator": allocator, "guide": guide, "relevance": relevance}
    settings: dict[str, Any] = {**parts, "mode": mode, "strict": strict}
    load = partial(inputs.load_model, model, device, dtype, as_json, **settings)
    length: dict[str, Any] = {"max_new_tokens": max_new_tokens}
    how: dict[str, Any] = length | {"gestalt": gestalt, "magnify": magnify}
    if request.folder is not None:
        of_one = {
            "--out": out,
            "--trace": trace,
            "--page": page,
            "--fps": fps,
            "--compare": compare,
            "--evidence": evidence,
        }
        if option := next((option for option, value in of_one.items() if value), None):
            raise ValueError(f"{option} is for one answer, and a folder has many: leave it out")
        files, left_out = inputs.folder_images(request.folder)
        with terminal.quiet_stdout(as_json):
            allowed = inputs.read_budget(budget, as_json, coverage)
            reply = partial(load().ask, question=request.question, budget=allowed, **how)
        code = _answer_each(files, reply, as_json)
        if left_out:
            terminal.complain(left_out)
        return code

    pictures = inputs.open_pictures(request, page, fps)
    boxes = inputs.read_evidence(evidence, pictures)
    subject: Any = pictures if len(pictures) > 1 else pictures[0]
    drawing_path = inputs.drawing_path(out, PICTURE, request.names, as_json)
    trace_path = inputs.optional_path("--trace", trace, (".safetensors",), request.names)
    with terminal.quiet_stdout(as_json):
        allowed = inputs.read_budget(budget, as_json, coverage)
        loaded = load()
        # Each call opens a session of its own, so both sides of a comparison encode the image themselves.
        every = partial(loaded.ask, subject, request.question, mode="full", **length)
        ours = partial(loaded.ask, subject, request.question, budget=allowed, **how)
        with terminal.status("answering", as_json):
            if compare:  # untimed first calls: they pay one-time set-up
                ours(max_new_tokens=1)
                every(max_new_tokens=1)
            answer = ours()
            full = every() if compare else None
        if trace_path:
            from arr_coc.trace.observe import observe

            with terminal.status("looking closer", as_json):
                session = loaded.session(list(pictures))
                observed = observe(session, request.question, budget=allowed, evidence=boxes, **how)
            observed.save(trace_path)
    if as_json:
        terminal.print_json(_to_dict(request.names, answer, full))
    else:
        terminal.print_answer(request.title, request.question, answer, full, loaded.about)
        for picture, allocation in zip(pictures, answer.allocations, strict=True):
            terminal.print_steps(picture, allocation)
        if boxes:
            from arr_coc.trace.evidence import score

            scored = score(boxes, answer.allocation, pictures[0].size)
            terminal.print_evidence(scored)
        if trace_path:
            terminal.print_rows([("trace", f"{trace_path} (arr-coc view {trace_path})")])
    if drawing_path:
        drawing = _drawing(pictures, request.question, answer, boxes)
        terminal.save_picture(drawing, drawing_path, as_json, needed=out is not None)
    return 0


def _drawing(pictures: Sequence[Visual], question: str, answer: Answer, boxes: Sequence[Box]) -> Image.Image:
    """Return the drawings of an answer's images and clips, one below the other."""
    from PIL import Image

    from arr_coc.modes.notes import joined
    from arr_coc.trace.evidence import Guidance
    from arr_coc.trace.picture import draw_allocation, with_note
    from arr_coc.video.filmstrip import filmstrip

    guided = [Guidance.of(coupling) for coupling in answer.couplings] or [None] * len(pictures)
    finer = f"visual tokens read: {terminal.tokens_text(answer)}" if answer.magnified else None
    note = joined(finer, answer.note)
    drawings = [
        draw_allocation(picture, allocation, question, answer.text, boxes, guidance)
        if isinstance(picture, Image.Image)
        else filmstrip(picture, allocation)
        for picture, allocation, guidance in zip(pictures, answer.allocations, guided, strict=True)
    ]
    if len(drawings) == 1:
        return with_note(drawings[0], note)
    width, height = max(d.width for d in drawings), sum(d.height for d in drawings)
    sheet = Image.new("RGB", (width, height), "white")
    top = 0
    for drawing in drawings:
        sheet.paste(drawing, (0, top))
        top += drawing.height
    return with_note(sheet, note)


def _answer_each(files: Sequence[Path], reply: Callable[[Image.Image], Answer], as_json: bool) -> int:
    """Answer one question about every image of a folder, one row each; returns the exit code."""
    from arr_coc.choose.stem import FOREIGN

    width = max(len(file.name) for file in files)
    answered = foreign = 0
    notes: Counter[str] = Counter()

    def print_refusal(file: Path, error: ValueError) -> None:
        terminal.print_rows([(file.name, f"not answered: {error}")], width)

    for file, picture in inputs.open_each(files, as_json, print_refusal):
        answered += 1
        with terminal.quiet_stdout(as_json), terminal.status(f"answering {len(files)} images", as_json):
            answer = reply(picture)
        foreign += answer.foreign
        if as_json:
            terminal.print_json(_to_dict([str(file)], answer, None))
        else:
            terminal.print_rows([(file.name, answer.text)], width)
            notes.update(_notes(answer))
    for text, count in notes.most_common(MAX_NOTES):
        terminal.complain(f"{count} of {len(files)} images: {text}")
    if len(notes) > MAX_NOTES:
        terminal.complain(f"{len(notes) - MAX_NOTES} other notes: --json has each beside its answer")
    if foreign:
        terminal.complain(f"{foreign} of {len(files)} images: {FOREIGN}")
    if answered < len(files):
        terminal.complain(f"{len(files) - answered} of {len(files)} images could not be opened")
    return int(answered < len(files))


def _notes(answer: Answer) -> list[str]:
    """Return the notes on an answer, without the one about unfamiliar pictures."""
    from arr_coc.choose.stem import FOREIGN, OTHERWISE

    note = (answer.note or "").removeprefix(FOREIGN).removeprefix(OTHERWISE)
    return [text for text in (note, terminal.FALLBACK if answer.fallback else "") if text]


def _to_dict(names: Sequence[str], answer: Answer, full: Answer | None) -> dict[str, object]:
    """Return the object that --json prints."""
    return {
        "images": list(names),
        "answer": answer.text,
        "kept": answer.kept,
        "total": answer.total,
        "read": answer.read,
        "grid": list(answer.grid),
        "mode": answer.mode,
        "magnified": list(answer.magnified or ()),
        "note": answer.note,
        "foreign": answer.foreign,
        "budget": answer.budget,
        "fallback": answer.fallback,
        "evidence": [terminal.evidence_json(boxes) for boxes in answer.evidence],
        "ms": _rounded(answer.ms),
        "full": {"answer": full.text, "ms": _rounded(full.ms)} if full else None,
    }


def _rounded(ms: dict[str, float]) -> dict[str, float]:
    return {stage: round(value, 2) for stage, value in ms.items()}
