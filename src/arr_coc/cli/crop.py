"""The command `arr-coc crop`: pictures that stand for an image within a budget of tokens, for any model."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from arr_coc.cli import inputs, options, terminal
from arr_coc.files.atomic import check_writable
from arr_coc.files.paths import local_path, plain_name
from arr_coc.relevance.names import parse_relevance

if TYPE_CHECKING:
    from PIL import Image

    from arr_coc.pixels import Packed

FOLDER = "arr-coc-crop"  # where pictures go if --out isn't given
USUAL_TOKENS = 400
LAYOUTS = Literal["auto", "overview+crops", "crops", "strip", "crop", "mask", "shrunk"]

Packer = Callable[["Image.Image"], "Packed"]


def crop(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGE... QUESTION",
            help=options.IMAGE_HELP + ". Several, or a folder's, are packed one by one. The last word is the "
            "question. None: the built-in sample.",
        ),
    ] = None,
    rule: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="NAME|N",
            help="The model that the pictures are for, by whose rule tokens are counted: claude, gpt-5.4, "
            "gemini-low, qwen, gemma-4, mistral and others; N: one token for each N x N px.",
        ),
    ] = "32",
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            "-t",
            min=1,
            metavar="400",
            help="The most tokens that the pictures of one image may cost. Not given: 400, or the cheapest "
            "picture's.",
        ),
    ] = None,
    layout: Annotated[
        LAYOUTS,
        typer.Option(
            metavar="NAME",
            help="What is sent: overview+crops, crops, strip (one picture), crop (one box), mask, shrunk; "
            "auto: the one from which the answer is likeliest to be read.",
        ),
    ] = "auto",
    readable: options.Readable = options.READABLE,
    guide: options.Guide = None,
    relevance: options.Relevance = "auto",
    page: options.Page = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER|-",
            help=f"Where the pictures go: a folder ({FOLDER} if not given), or - for one PNG on stdout.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> int:
    """Cut out and enlarge the parts that a question needs, as pictures for any model.

    Send the pictures and their captions in place of the image. --json also says where in the image each part
    lies; it writes pictures only with --out. If an image of a folder can't be opened, its row says why, and
    the exit code is 1.
    """  # fmt: skip
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is imported
    request = inputs.read_question(words or ())
    one_picture = out == inputs.STDIN
    if one_picture and as_json:
        raise ValueError("--out - and --json both write to stdout: name a folder, or leave one of them out")
    if request.folder is not None and page is not None:
        raise ValueError("--page is of one PDF: leave it out, or name that")
    left_out, files = "", None
    if request.folder is not None:
        files, left_out = inputs.folder_images(request.folder)
    names = request.names or ("sample.png",)
    if one_picture and (files is not None or len(names) > 1):
        raise ValueError("--out - is one picture on stdout: name one image, or a folder for the pictures")
    pictures: Iterable[tuple[Path, Image.Image]]
    if files is None:  # a missing one is refused before anything is loaded
        pictures = _pictures(inputs.open_pictures(request, page), names)
    else:
        pictures = inputs.open_each(files, as_json, _refuse)
    target = None if one_picture or (as_json and out is None) else _folder(FOLDER if out is None else out)
    with terminal.quiet_stdout(as_json or one_picture):
        pack = _packer(
            request.question, rule, tokens, layout, readable, guide, relevance, one_picture, as_json
        )
    titles = _titles([Path(name) for name in names] if files is None else files, page, target)
    opened = 0
    for file, picture in pictures:
        opened += 1
        with terminal.quiet_stdout(as_json or one_picture), terminal.status("looking", as_json):
            packed = pack(picture)
        if one_picture:
            sys.stdout.buffer.write(packed.png())
            sys.stdout.buffer.flush()
            continue
        paths = [] if target is None else packed.save(target, titles[file], _source(file, page))
        _show(str(file), request.question, packed, paths, as_json)
    refused = len(files) - opened if files is not None else 0
    if left_out:
        terminal.complain(left_out)
    if refused:
        terminal.complain(f"{refused} of {len(files or ())} images could not be opened")
    return int(refused > 0)


def _packer(
    question: str,
    name: str,
    tokens: int | None,
    layout: str,
    readable: float,
    guide: str | None,
    relevance: str,
    one_picture: bool,
    quiet: bool,
) -> Packer:
    """Return the function that packs each image."""
    from arr_coc.pixels import find_rule

    rule = find_rule(name)
    allowed = max(USUAL_TOKENS, rule.cheapest) if tokens is None else tokens
    if relevance in ("trained", "gaze"):
        raise ValueError(f"--relevance {relevance} is of a model: crop needs none, so leave it out")
    parse_relevance(relevance)
    with terminal.starting(quiet or one_picture):
        from arr_coc.guide.guide import load_guide
        from arr_coc.pixels import pack_for
        from arr_coc.selector import Selector

        selector = Selector(load_guide(guide), relevance=relevance)

    def pack(image: Image.Image) -> Packed:
        packed = pack_for(image, question, allowed, rule, layout, selector, readable=readable)
        if one_picture and len(packed.pictures) > 1:
            if layout != "auto":
                raise ValueError(
                    f"layout {layout!r} makes {len(packed.pictures)} pictures: use strip for --out -"
                )
            packed = pack_for(image, question, allowed, rule, "strip", selector, readable=readable)
        return packed

    return pack


def _folder(name: str) -> Path:
    """Return a folder that can be written to; made if it is missing."""
    from arr_coc.files.atomic import make_folder

    folder = make_folder(local_path(name))
    try:
        check_writable(folder / "packed-1.png")
    except OSError as error:
        raise ValueError(
            f"--out {str(folder)!r} cannot be written ({error.strerror}): choose another place"
        ) from error
    return folder


def _pictures(pictures: Sequence[object], names: Sequence[str]) -> list[tuple[Path, Image.Image]]:
    """Pictures with their names; a ValueError for a clip."""
    from PIL import Image

    titled = []
    for name, picture in zip(names, pictures, strict=True):
        if not isinstance(picture, Image.Image):
            raise ValueError(f"{name!r} is a clip, and crop takes pictures: save a frame of it as PNG")
        titled.append((Path(name), picture))
    return titled


def _titles(files: Sequence[Path], page: int | None, folder: Path | None) -> dict[Path, str]:
    """Return a name for the pictures of each image: its own, with the ending where several have the same.

    No two are the same, also where upper and lower case are, and none is that of pictures in the folder that
    were not made of this image: such get a number.
    """
    from arr_coc.pixels.packed import is_made_of
    from arr_coc.pixels.planning import MAX_PICTURES

    there = {_same(path.name): path for path in folder.iterdir()} if folder is not None else {}

    def free(title: str, file: Path) -> bool:
        names = [_same(f"{title}-{number}.png") for number in range(1, MAX_PICTURES + 1)]
        mine = _source(file, page)
        return all(name not in there or is_made_of(there[name], mine) for name in names)

    part = "" if page is None else f"-page-{page}"
    short = {file: ("stdin" if str(file) == inputs.STDIN else file.stem) + part for file in files}
    counts = Counter(map(_same, short.values()))
    titles: dict[Path, str] = {}
    taken = {_same(title) for title in short.values() if counts[_same(title)] == 1}
    for file, title in short.items():
        alone = counts[_same(title)] == 1
        wanted = title if alone else file.name + part
        names = chain([wanted], (f"{wanted}-{number}" for number in count(2)))
        own = taken - {_same(title)} if alone else taken
        titles[file] = next(name for name in names if _same(name) not in own and free(name, file))
        taken.add(_same(titles[file]))
    return titles


def _same(name: str) -> str:
    """Return a text that is equal for names that some file system takes for one."""
    return plain_name(plain_name(name).casefold())


def _source(file: Path, page: int | None) -> str:
    """Return a name for an image that says nothing of where it lies."""
    place = inputs.STDIN if str(file) == inputs.STDIN else str(file.absolute())
    return hashlib.sha256(os.fsencode(f"{place}\n{page or ''}")).hexdigest()[:32]


def _refuse(file: Path, error: ValueError) -> None:
    terminal.print_rows([("image", str(file)), ("not opened", str(error))])


def _show(name: str, question: str, packed: Packed, paths: Sequence[Path], as_json: bool) -> None:
    """Print what was packed."""
    if as_json:
        facts = (
            {"image": name, "question": question} | packed.json() | {"paths": [str(path) for path in paths]}
        )
        terminal.print_json(facts)
        return
    from arr_coc.pixels import find_rule

    saved = 100 - 100 * packed.tokens / packed.whole_tokens
    cost = f"{packed.tokens:,} in place of {packed.whole_tokens:,} ({saved:.0f} % less)"
    rows = [
        ("image", name),
        ("question", question),
        ("layout", packed.layout),
        ("tokens", f"{cost}, counted as {find_rule(packed.rule).models}"),
    ]
    if packed.confidence is not None:
        rows.append(("confidence", f"{packed.confidence:.0%} that the picture holds what is asked for"))
    if packed.allocation is not None and packed.allocation.note:
        rows.append(("note", packed.allocation.note))
    rows += [
        (str(path), f"{picture.width} x {picture.height} px. {caption}")
        for path, picture, caption in zip(paths, packed.pictures, packed.captions, strict=True)
    ]
    terminal.print_rows(rows)
