"""The command `arr-coc look`: which cells a question needs, and why.

Without a model the guide or another source of relevance decides; for the guide transformers isn't imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from arr_coc.cli import inputs, options, terminal
from arr_coc.relevance.names import parse_relevance

if TYPE_CHECKING:
    from arr_coc.choose.allocation import Allocation
    from arr_coc.choose.budget import Budget
    from arr_coc.data.record import Box
    from arr_coc.guide.coupling import Coupling
    from arr_coc.relevance.deciding import Decision
    from arr_coc.video.opening import Visual

PICTURE = "arr-coc-look.png"


class LookResult(NamedTuple):
    """The choice for one image, and the guide's coupling with the question, if the guide was used."""

    allocation: Allocation
    coupling: Coupling | None


Looker = Callable[[Sequence["Visual"]], Sequence[LookResult]]  # chooses cells of visuals asked about together


def look_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGE... QUESTION",
            help=options.IMAGE_HELP
            + ". Or a video. Several, or a folder's, are shown one after the other. The last word is the "
            "question. None: the built-in sample.",
        ),
    ] = None,
    budget: options.Budget = None,
    coverage: options.Coverage = None,
    mode: options.ChoosingMode = None,
    gestalt: options.Gestalt = None,
    magnify: options.Magnify = "1",
    model: options.LookModel = None,
    allocator: options.Allocator = None,
    guide: options.Guide = None,
    relevance: options.Relevance = "auto",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    page: options.Page = None,
    fps: options.Fps = None,
    evidence: options.Evidence = None,
    out: options.Out = None,
    save: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Where to save the record of the choice, a .safetensors."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Where to save the kept cells for other engines, a .json."),
    ] = None,
    as_json: options.AsJson = False,
) -> int:
    """Show which cells a question needs, and why. The question is not answered.

    The guide chooses, or another source of relevance; neither needs a model. With --model that model chooses,
    as in ask.

    A drawing of the choice goes to arr-coc-look.png; with --json, which prints the whole record, only --out
    makes one. Each of several images has a drawing (arr-coc-look-1.png is of the first) and, with --json, a
    line. For a folder only --out makes drawings. If an image of it can't be opened, its row says why, and the
    exit code is 1.
    """
    if model is None:
        # Waiting threads sleep: by default they spin, which takes many times the guide's own work where other
        # programs want the same cores. Read when torch is imported.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    request = inputs.read_question(words or ())
    several = request.folder is not None or len(request.names) > 1
    of_folder = {"--page": request.folder and page, "--fps": request.folder and fps}
    of_one = {"--save": save, "--keep": keep, "--evidence": evidence} | of_folder
    if several and (option := next((option for option, value in of_one.items() if value), None)):
        raise ValueError(f"{option} is of one image: leave it out, or look at one")
    if model is None:
        of_model = relevance if relevance in ("trained", "gaze") else None
        finer = None if magnify == "1" else magnify
        named = {"--mode": mode, "--gestalt": gestalt, "--magnify": finer, "--allocator": allocator}
        named[f"--relevance {of_model}"] = of_model
        if option := next((option for option, value in named.items() if value is not None), None):
            raise ValueError(f"{option} is of a model: name one with --model ({options.DEFAULT_MODEL!r})")
    parse_relevance(relevance)
    files, left_out = None, ""
    if request.folder is not None:
        files, left_out = inputs.folder_images(request.folder)
    names = request.names if files is None else tuple(map(str, files))
    pictures = inputs.open_pictures(request, page, fps) if files is None else []
    if files is not None and out is None:
        targets: list[Path | None] = [None] * len(files)
    else:
        targets = _drawing_paths(out, names, several, as_json)
    record_path = inputs.optional_path("--save", save, (".safetensors",), names)
    keep_path = inputs.optional_path("--keep", keep, (".json",), names)
    boxes = inputs.read_evidence(evidence, pictures)
    with terminal.quiet_stdout(as_json):
        allowed, model_type = inputs.read_budget(budget, as_json, coverage), None
        if model is None:
            choose = _without_model(request.question, allowed, guide, relevance, device, dtype, as_json)
        else:
            loaded = inputs.load_model(
                model, device, dtype, as_json, allocator=allocator, guide=guide, relevance=relevance
            )
            model_type = loaded.config.model_type

            def choose(pictures: Sequence[Visual]) -> Sequence[LookResult]:
                session = loaded.session(list(pictures) if len(pictures) > 1 else pictures[0])
                how: Any = {"mode": mode or loaded.default_mode, "gestalt": gestalt, "magnify": magnify}
                plan = session.plan(request.question, budget=allowed, **how)
                couplings = plan.couplings or (None,) * len(pictures)
                return [LookResult(*each) for each in zip(plan.allocations, couplings, strict=True)]

    def look_quietly(pictures: Sequence[Visual]) -> Sequence[LookResult]:
        with terminal.quiet_stdout(as_json), terminal.status("looking", as_json):
            return choose(pictures)

    if files is not None:
        code = _look_each(files, targets, look_quietly, request.question, as_json)
        if left_out:
            terminal.complain(left_out)
        return code
    looks = look_quietly(pictures)
    if record_path:
        looks[0].allocation.save(record_path)
    if keep_path:
        _save_keep_list(keep_path, looks[0], pictures[0], request.question, model_type)
    titles = names or (request.title,)
    for name, picture, each, target in zip(titles, pictures, looks, targets, strict=True):
        _show(name, request.question, picture, each, as_json, several, boxes, (record_path, keep_path))
        _draw(picture, each, request.question, target, as_json, out is not None, boxes)
    return 0


def _without_model(
    question: str,
    budget: Budget | None,
    guide: str | None,
    relevance: str,
    device: str,
    dtype: str,
    quiet: bool,
) -> Looker:
    """Return a `Looker` without a model: the guide, or another source of relevance, chooses for each image by
    itself.
    """
    with terminal.starting(quiet):
        from arr_coc.choose.budget import DEFAULT_BUDGET
        from arr_coc.guide.guide import load_guide
        from arr_coc.selector import Selector
        from arr_coc.video import FrameSource

        selector = Selector(
            load_guide(guide, dtype, "cpu" if device == "auto" else device), relevance=relevance
        )
    allowed = DEFAULT_BUDGET if budget is None else budget

    def decide(visual: Visual) -> Decision:
        if isinstance(visual, FrameSource):
            return selector.decide_clip(visual, question, allowed)
        return selector.decide(visual, question, allowed)

    def look(pictures: Sequence[Visual]) -> Sequence[LookResult]:
        decisions = [decide(picture) for picture in pictures]
        return [LookResult(decision.allocations[0], decision.coupling) for decision in decisions]

    return look


def _save_keep_list(
    path: Path, look: LookResult, picture: Visual, question: str, model_type: str | None
) -> None:
    """Write the kept cells of one picture; the pixels of a clip have no digest."""
    from PIL import Image

    from arr_coc.choose.keep_list import KeepList

    still = picture if isinstance(picture, Image.Image) else None
    KeepList.of(look.allocation, question, still, model_type).save(path)


def _drawing_paths(out: str | None, names: Sequence[str], several: bool, as_json: bool) -> list[Path | None]:
    """Return the path of each image's drawing; several have their numbers in the name."""
    if not several:
        return [inputs.drawing_path(out, PICTURE, names, as_json)]
    if out is not None:
        inputs.output_path("--out", out, inputs.PICTURE_TYPES)

    def numbered(file: str, number: int) -> str:
        path = Path(file)
        return str(path.with_name(f"{path.stem}-{number}{path.suffix}"))

    return [
        inputs.drawing_path(out and numbered(out, number), numbered(PICTURE, number), names, as_json)
        for number in range(1, len(names) + 1)
    ]


def _look_each(
    files: Sequence[Path], targets: Sequence[Path | None], look: Looker, question: str, as_json: bool
) -> int:
    """Choose for every image of a folder by itself; returns the exit code."""
    opened, target_of = 0, dict(zip(files, targets, strict=True))

    def print_refusal(file: Path, error: ValueError) -> None:
        terminal.print_rows([("image", str(file)), ("not opened", str(error))])

    for file, picture in inputs.open_each(files, as_json, print_refusal):
        opened += 1
        (each,) = look([picture])
        _show(str(file), question, picture, each, as_json, True)
        _draw(picture, each, question, target_of[file], as_json, True)
    if opened < len(files):
        terminal.complain(f"{len(files) - opened} of {len(files)} images could not be opened")
    return int(opened < len(files))


def _show(
    name: str,
    question: str,
    picture: Visual,
    look: LookResult,
    as_json: bool,
    several: bool,
    boxes: Sequence[Box] = (),
    records: Sequence[Path | None] = (),
) -> None:
    """Print the rows of one image, or with --json its record, which names the image if there are several."""
    from arr_coc.pixels.units import unit_evidence
    from arr_coc.trace.evidence import score

    scored, units = score(boxes, look.allocation, picture.size), unit_evidence(picture, look.allocation)
    if as_json:
        facts = ({"images": [name]} if several else {}) | look.allocation.to_dict()
        if look.coupling is not None:
            facts["coupling"] = look.coupling.to_dict()
        facts["evidence"] = terminal.evidence_json(units)
        if boxes:
            facts["evidence_recall"] = scored.recall
        terminal.print_json(facts)
        return
    terminal.print_allocation(name, question, look.allocation, look.coupling, units)
    terminal.print_steps(picture, look.allocation)
    if boxes:
        terminal.print_evidence(scored)
    for title, path in zip(("record", "keep list"), records, strict=False):
        if path:
            terminal.print_rows([(title, str(path))])


def _draw(
    picture: Visual,
    look: LookResult,
    question: str,
    target: Path | None,
    as_json: bool,
    needed: bool,
    boxes: Sequence[Box] = (),
) -> None:
    """Draw the layers of one image, if there is a target."""
    if target is None:
        return
    from PIL import Image

    from arr_coc.trace.evidence import Guidance
    from arr_coc.trace.picture import draw_layers, with_note
    from arr_coc.video.filmstrip import filmstrip

    guidance = None if look.coupling is None else Guidance.of(look.coupling)
    drawing = (
        draw_layers(picture, look.allocation, question, boxes, guidance)
        if isinstance(picture, Image.Image)
        else filmstrip(picture, look.allocation)
    )
    terminal.save_picture(with_note(drawing, look.allocation.note), target, as_json, needed=needed)
