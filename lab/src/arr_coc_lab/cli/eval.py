"""The command `arr-coc eval`: methods x budgets on one model, a line per question, a table and a plot."""

from __future__ import annotations

from typing import Annotated

import typer

from arr_coc.cli import options, terminal
from arr_coc.files.paths import local_path
from arr_coc_lab.cli.report import show_summary


def command(
    data: Annotated[
        str,
        typer.Option(
            metavar="world|FOLDER|NAME:DIR",
            help="Drawn pages, images of yours with questions.jsonl, or textvqa:DIR and so on.",
        ),
    ] = "world",
    model: options.Model = options.DEFAULT_MODEL,
    allocator: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FOLDER", help="The allocator; with a name, one more row arr-coc:NAME."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME,...", help="Which methods; all that can run if not given."),
    ] = None,
    budgets: Annotated[
        str,
        typer.Option(metavar="273,0.25,auto", help="Visual tokens to keep; saccade and coc have their own."),
    ] = "273, 228, 128, 114, 64, 57, auto",
    relevance: options.Relevance = "auto",
    questions: Annotated[
        int | None, typer.Option(min=1, help="How many; 2000 drawn ones if not given.")
    ] = None,
    size: Annotated[int, typer.Option(min=64, max=4096, help="Side of drawn pages in px.")] = 1024,
    split: Annotated[str | None, typer.Option(help="Of the data; its usual one if not given.")] = None,
    per_image: Annotated[int, typer.Option(min=1, help="Most questions of a drawn page.")] = 5,
    timed: Annotated[int, typer.Option(min=0, help="Questions to time alone, one method at a time.")] = 10,
    seed: Annotated[
        int, typer.Option(min=0, help="Of all that is random, and of which held-out pages are drawn.")
    ] = 0,
    part: Annotated[
        str, typer.Option(metavar="I/N", help="Every N-th image from the I-th on; `report` joins the files.")
    ] = "1/1",
    query_blind: Annotated[
        str | None, typer.Option(metavar="FILE.safetensors", help="The trained query-blind scorer, a rival.")
    ] = None,
    own_answers: Annotated[
        bool,
        typer.Option(
            "--own-answers",
            help="Score questions without an answer against the model's own, all tokens read.",
        ),
    ] = False,
    vtc_filter: Annotated[
        bool,
        typer.Option(
            "--vtc-filter", help="Score only what all tokens answer and the image shrunk to as many doesn't."
        ),
    ] = False,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="idpruner|f3a|hilo|visionrl2|uniprune",
            help="As a published table was made: its split, prompt, limits and budgets, its rows beside.",
        ),
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="NAME", help="NAME.jsonl, .json and .png are written.")
    ] = "arr-coc-eval",
    as_json: options.AsJson = False,
) -> None:
    """Measure methods and budgets side by side on one model. The same line resumes a run that was ended."""
    if like is not None:
        from arr_coc_lab.results.like import find_table

        split = find_table(like).set_of(data.partition(":")[0].strip().lower(), split).split
    if data != "world":  # refused before anything is loaded
        from arr_coc_lab.data.folder import data_spec, open_scored

        data = data_spec(data, own_answers)
        open_scored(data, split, questions, own_answers)
    named = [name.strip() for name in (methods or "").split(",")]
    if "arr-coc" in named and "arr-coc sparse" not in named and not as_json:
        terminal.note(
            "arr-coc encodes every cell; the fast one is arr-coc sparse, which encodes the kept ones"
        )
    with terminal.quiet_stdout(as_json):
        with terminal.status("starting", as_json):
            from arr_coc.choose.budget import parse_budget
            from arr_coc.files.device import resolve_device
            from arr_coc_lab.evaluate import Settings, evaluate
            from arr_coc_lab.evaluate.run import WORLD
            from arr_coc_lab.results.files import writing
            from arr_coc_lab.world import draw_page, pages_of

            terminal.quiet_transformers()
        resolve_device(device)  # refused before a folder is made
        settings = Settings(
            data=data,
            model=model,
            allocators=tuple(allocator or ()),
            methods=None if methods is None else tuple(name.strip() for name in methods.split(",")),
            budgets=tuple(parse_budget(text.strip()) for text in budgets.split(",")),
            questions=questions,
            size=size,
            split=split,
            per_image=per_image,
            timed=timed,
            seed=seed,
            part=_part(part),
            query_blind=query_blind,
            device=None if device == "auto" else device,  # as files of earlier runs have it
            dtype=None if dtype == "auto" else dtype,
            relevance=None if relevance == "auto" else relevance,
            own_answers=own_answers or None,
            like=like,
            vtc_filter=vtc_filter,
            out=local_path(out),
        )
        if data == WORLD:
            draw_page(
                pages_of(seed)[0], (size, size), split or "test"
            )  # a bad size or split should leave no file behind
        with writing(settings.lines.parent):
            settings.lines.parent.mkdir(parents=True, exist_ok=True)
        try:
            summary = evaluate(settings, progress=not as_json)
        except KeyboardInterrupt as stopped:
            terminal.complain(
                str(stopped) or "stopped before the first question; the same command begins anew"
            )
            raise typer.Exit(options.INTERRUPTED) from stopped
    show_summary(summary, settings.file(".png"), "short", as_json)


def _part(text: str) -> tuple[int, int]:
    """(1, 2) of "1/2"."""
    i, sign, n = text.partition("/")
    if not (sign and i.strip().isdigit() and n.strip().isdigit()):
        raise ValueError(f"part {text!r} is not I/N: use 1/2 and 2/2, for example")
    return int(i), int(n)
