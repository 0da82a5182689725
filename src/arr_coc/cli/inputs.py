"""Input of commands: images with a question, output paths, a budget, a model."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arr_coc.cli import terminal
from arr_coc.files.atomic import check_writable
from arr_coc.files.paths import find_alike, local_path, shorten
from arr_coc.files.question import check_question

if TYPE_CHECKING:
    from PIL import Image

    from arr_coc.choose.budget import Budget
    from arr_coc.data.record import Box
    from arr_coc.model import ARRCOCModel
    from arr_coc.video.opening import Visual

STDIN = "-"
IMAGE_TYPES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")  # image files of a folder
MAX_KINDS = 4  # endings of a folder's other files that are listed, the most frequent
MAX_BYTES = 2**28  # of an image on standard input; what a file may hold is limited by its pixels
SAMPLE = Path(__file__).parents[1] / "bundled" / "sample.json"
PICTURE_TYPES = (".png", ".jpg", ".jpeg", ".webp")  # endings of pictures that can be written

# ---- images and questions -----------------------------------------------------------------------------


def open_picture(name: str, page: int | None = None) -> Image.Image:
    """Open an image by its name on the command line, RGB and upright.

    Args:
        name: a path, or "-" for standard input.
        page: of a PDF, from 1; None: its only one.

    Raises:
        ValueError: it can't be opened, or `page` is given for another format, or missing in the PDF.
    """
    from arr_coc.files.images import open_image
    from arr_coc.files.pdf import is_pdf, open_page

    source, title = (name, shorten(name)) if name != STDIN else (_standard_input(), "standard input")
    if is_pdf(source):
        return open_page(source, page, title)
    if page is not None:
        raise ValueError(f"{title} is no PDF, so it has no page {page}: leave --page out")
    try:
        return open_image(source)
    except ValueError as error:
        if name == STDIN:
            raise ValueError(f"standard input: {error}") from error
        raise


def read_file(name: str) -> bytes:
    """Read a file by its name on the command line, or standard input for "-".

    Raises:
        ValueError: it is missing, no file, longer than MAX_BYTES, or can't be read.
    """
    if name == STDIN:
        return _standard_input()
    try:
        path = local_path(name)
        if not path.is_file():
            there = "is no file" if path.exists() else "does not exist"
            raise ValueError(f"image {shorten(name)} {there}: give the path of an image file")
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"image {shorten(name)} is longer than {MAX_BYTES >> 20} MiB: scale it down")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"image {shorten(name)} cannot be read ({error.strerror}): check its name and permissions"
        ) from error


def open_each(
    files: Sequence[Path], as_json: bool, print_refusal: Callable[[Path, ValueError], None]
) -> Iterator[tuple[Path, Image.Image]]:
    """Yield the images of a folder one by one; failures are printed as JSON or by `print_refusal`."""
    for file in files:
        try:
            picture = open_picture(str(file))
        except ValueError as error:
            if as_json:
                terminal.print_json({"images": [str(file)], "error": str(error)})
            else:
                print_refusal(file, error)
            continue
        yield file, picture


def folder_images(folder: Path) -> tuple[list[Path], str]:
    """Return the image files directly in a folder, sorted, and a line about what was left out, or "".

    Left out are subfolders, other files and links out of the folder; hidden files aren't mentioned.

    Raises:
        ValueError: there is none, or the folder can't be read.
    """
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise ValueError(f"folder {shorten(folder)} cannot be read ({error.strerror})") from error
    inside = folder.resolve()
    files, links, folders = [], 0, 0
    kinds: Counter[str] = Counter()
    for path in entries:
        if path.suffix.lower() in IMAGE_TYPES:
            leads_out = path.is_symlink() and not _resolved(path).is_relative_to(inside)
            links += leads_out
            files += [] if leads_out else [path]
        elif path.is_dir():
            folders += 1
        else:
            kinds[path.suffix.lower() or "no ending"] += 1
    counts = [f"{kind} {count}" for kind, count in kinds.most_common(MAX_KINDS)]
    counts += ["..."] if len(kinds) > MAX_KINDS else []
    parts = [
        f"{_count(kinds.total(), 'other file')} ({', '.join(counts)})" if kinds else "",
        _count(folders, "folder") if folders else "",
        f"{_count(links, 'link')} out of the folder" if links else "",
    ]
    left_out = ", ".join(part for part in parts if part)
    line = f"left out of folder {shorten(folder)}: {left_out}" if left_out else ""
    if not files:
        types = ", ".join(IMAGE_TYPES)
        raise ValueError(f"folder {shorten(folder)} holds no image file ({types}){line and '; ' + line}")
    return files, line


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number > 1)}"


def _resolved(path: Path) -> Path:
    """Return the target of a link; a circular link itself, for its reader to refuse."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path.parent.resolve() / path.name


def _standard_input() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        raise ValueError("- reads an image from standard input, which is the keyboard: pipe a file into it")
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"standard input is longer than {MAX_BYTES >> 20} MiB: give the image as a file")
    return data


class ImagesAndQuestion(NamedTuple):
    """The images and the question of a command line of `ask` or `look`.

    Attributes:
        names: of the images, as written; none: the built-in sample.
        question: without surrounding space.
        folder: its images are asked about one by one; None: the images of `names`, together.
    """

    names: tuple[str, ...]
    question: str
    folder: Path | None = None

    @property
    def title(self) -> str:
        """The images' name in a row of output."""
        return ", ".join(self.names) or "the built-in sample"


def read_question(words: Sequence[str]) -> ImagesAndQuestion:
    """Return the names of images and the question after them; those of the built-in sample without words.

    Raises:
        ValueError: no question or an invalid one, or a folder together with other images.
    """
    if not words:
        if not SAMPLE.is_file():
            raise ValueError(
                "the built-in sample is missing from this installation: give an image and a question"
            )
        return ImagesAndQuestion((), json.loads(SAMPLE.read_text(encoding="utf-8"))["question"])
    names, last = tuple(map(_on_disk, words[:-1])), words[-1]
    if len(words) == 2 and _is_file(last) and not _is_file(words[0]) and " " in words[0]:
        raise ValueError(f"the question {words[0]!r:.60} stands before the image: give {last!r} first")
    if "" in names:
        raise ValueError("an image's name is empty: give the path of a file or a folder")
    if not names and last.rstrip().endswith("?") and not _is_file(last):
        raise ValueError(f"no image before the question {last!r:.60}: give its path first")
    if not names or _is_file(last):
        raise ValueError(
            f'no question about {words[0]!r}: add one in quotes, for example "What is the title?"'
        )
    question = check_question(last).strip()
    folders = [name for name in names if name != STDIN and local_path(name).is_dir()]
    if folders and len(names) > 1:
        raise ValueError(
            f"{folders[0]!r} is a folder, whose images are asked about one by one: give it alone"
        )
    if names.count(STDIN) > 1:
        raise ValueError("standard input (-) holds one image: name it once")
    return ImagesAndQuestion(names, question, local_path(folders[0]) if folders else None)


def open_pictures(request: ImagesAndQuestion, page: int | None, fps: float | None = None) -> list[Visual]:
    """Return the images and clips that are asked about together; `page` is of a PDF, `fps` of a video.

    Raises:
        ValueError: one can't be opened, or `fps` is given without a video.
    """
    from arr_coc.video.opening import is_clip

    if fps is not None and not any(map(is_clip, request.names)):
        raise ValueError("--fps is of videos, and there is none: leave it out")
    if not request.names:
        if page is not None:
            raise ValueError(f"the built-in sample is no PDF, so it has no page {page}: leave --page out")
        return [open_picture(str(SAMPLE.with_suffix(".png")))]
    try:
        return [_open(name, page, fps) for name in request.names]
    except ValueError as error:
        if len(request.names) > 1 and not any(map(_is_file, request.names[1:])):
            raise ValueError(f"{error}; a question of several words goes into quotes") from error
        raise


def _open(name: str, page: int | None, fps: float | None) -> Visual:
    """One image or clip."""
    from arr_coc.video.opening import is_clip, open_visual

    if not is_clip(name):
        return open_picture(name, page)
    if page is not None:
        raise ValueError(f"{name!r} is no PDF, so it has no page {page}: leave --page out")
    return open_visual(name, fps)


def _on_disk(name: str) -> str:
    """Return an image's name as it stands on the disk, where only its blanks or accents are written
    otherwise.
    """
    if name in ("", STDIN):
        return name
    path = local_path(name)
    place = find_alike(path)
    return name if place == path else str(place)


def _is_file(name: str) -> bool:
    try:
        return local_path(name).is_file()
    except ValueError:
        return False


# ---- places to write to -------------------------------------------------------------------------------


def output_path(option: str, path: str, suffixes: Sequence[str], images: Sequence[str] = ()) -> Path:
    """Return the path of an output, checked to be writable before anything is computed.

    Args:
        option: of the command line.
        path: its value.
        suffixes: allowed ones, such as ".png".
        images: the user's own files, which must not be overwritten.

    Raises:
        ValueError: another suffix, one of the images, or a path that can't be written.
    """
    target = local_path(path)
    if target.suffix.lower() not in suffixes:
        raise ValueError(f"{option} {str(target)!r} must end in {' or '.join(suffixes)}")
    try:
        existed = target.exists()
        if existed and not (target.is_file() or target.is_dir()):  # a pipe would wait for its reader
            raise ValueError(f"{option} {str(target)!r} is not a regular file: choose another place")
        if existed and any(_is_file(image) and target.samefile(local_path(image)) for image in images):
            raise ValueError(f"{option} {str(target)!r} is the image itself: choose another place")
        check_writable(target)
    except OSError as error:
        reason = f"cannot be written ({error.strerror}): choose another place"
        raise ValueError(f"{option} {str(target)!r} {reason}") from error
    return target


def optional_path(
    option: str, path: str | None, suffixes: Sequence[str], images: Sequence[str] = ()
) -> Path | None:
    """As `output_path`; None where the option isn't given."""
    return None if path is None else output_path(option, path, suffixes, images)


def drawing_path(out: str | None, usual: str, images: Sequence[str], as_json: bool) -> Path | None:
    """Return the path of a drawing: --out, or else the `usual` file, or None if that can't be written.

    With --json nothing is drawn without --out. `images` must not be overwritten.

    Raises:
        ValueError: as `output_path`, for --out.
    """
    if out is not None:
        return output_path("--out", out, PICTURE_TYPES, images)
    if as_json:
        return None
    try:
        return output_path("--out", usual, PICTURE_TYPES, images)
    except ValueError as error:  # a read-only folder doesn't prevent an answer
        terminal.complain(f"no picture will be drawn: {error}")
        return None


# ---- boxes, budgets and models ------------------------------------------------------------------------


def read_evidence(texts: Sequence[str] | None, pictures: Sequence[Visual]) -> tuple[Box, ...]:
    """Return the boxes (x0, y0, x1, y1) in px that the texts of --evidence give.

    Raises:
        ValueError: one isn't four numbers, is empty or outside of the picture, or the pictures are not one.
    """
    if not texts:
        return ()
    if len(pictures) != 1:
        raise ValueError("--evidence is of one image: leave it out, or ask about one")
    from PIL import Image

    if not isinstance(pictures[0], Image.Image):
        raise ValueError("--evidence is for images, and this is a clip: leave it out")
    boxes = []
    for text in texts:
        try:
            x0, y0, x1, y1 = (float(part) for part in text.split(","))
        except ValueError as error:
            raise ValueError(f"--evidence {text!r} is not x0,y0,x1,y1 in px, as in 10,20,110,40") from error
        boxes.append((x0, y0, x1, y1))
    from arr_coc.data.record import check_boxes_within as check_in
    from arr_coc.trace.evidence import check_boxes

    check_boxes(boxes)
    check_in(boxes, pictures[0].size, "--evidence", "the image")
    return tuple(boxes)


def read_budget(text: str | None, quiet: bool, coverage: float | None = None) -> Budget | None:
    """Return the budget that a text or a coverage means; None (the model's own) without both.

    Raises:
        ValueError: neither a count, a fraction nor "auto"; a coverage that is no share; or both.
    """
    if text is None and coverage is None:
        return None
    with terminal.starting(quiet):
        from arr_coc.choose.budget import coverage_budget, parse_budget
    return coverage_budget(None if text is None else parse_budget(text), coverage)


def load_model(name: str, device: str, dtype: str, quiet: bool, **settings: Any) -> ARRCOCModel:
    """Load a model with its allocator, with a spinner on a terminal unless `quiet`.

    Args:
        name: of a model on the Hub, a folder or "bundled".
        device: as in `resolve_device`.
        dtype: as in `resolve_dtype`.
        quiet: no spinner or progress bar.
        settings: other arguments of `ARRCOCModel.from_pretrained`.

    Raises:
        ValueError: the model can't be loaded, or there is no such device.
    """
    with terminal.starting(quiet):
        from arr_coc.files.device import resolve_device
        from arr_coc.files.paths import BUNDLED_NAME, is_local
        from arr_coc.model import ARRCOCModel

    settings |= {"device": resolve_device(device), "dtype": dtype}
    settings = {name: value for name, value in settings.items() if value is not None}
    download = name != BUNDLED_NAME and not is_local(name)
    terminal.quiet_transformers(bars=download and not quiet)
    if download and not quiet:  # a download shows its own progress
        terminal.note(f"loading {name}")
        return ARRCOCModel.from_pretrained(name, **settings)
    with terminal.starting(quiet, "loading the model"):
        return ARRCOCModel.from_pretrained(name, **settings)
