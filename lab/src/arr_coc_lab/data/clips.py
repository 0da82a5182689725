"""Helpers for data sets of clips: finding a clip's file, and writing options into a question.

`Example.image` is the path of a video or of a folder of frames, `question` ends in its options, one a line
("A. a dog"), and `answers` are the right letter and its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from arr_coc.data.record import check_inside, check_name
from arr_coc.files.validation import short
from arr_coc.video import VIDEO_SUFFIXES

CLIP_SUFFIXES = (*VIDEO_SUFFIXES, ".gif")
LETTERS = "ABCDEFGH"  # of options, in order
# Appended to multiple-choice questions about clips by lmms-eval and LongVideoBench's program.
LETTER = "\nAnswer with the option's letter from the given choices directly."


def find_clip(folder: Path, name: str, where: str, under: Iterable[str] = ("",)) -> Path:
    """Return the clip called `name` in one of the subfolders `under` of `folder`: a file, or a folder of
    frames.

    `name` is a file name, stem or relative path; it is tried as it is, then with each of `CLIP_SUFFIXES`.
    ValueError, with the question's place `where`, if there is none or the name leads out of the folder.
    """
    check_name(name, where)
    places = [folder / base for base in dict.fromkeys(under)]
    named = PurePosixPath(name)
    stem = named.with_suffix("") if named.suffix.lower() in CLIP_SUFFIXES else named
    for path in [p / named for p in places] + [p / f"{stem}{end}" for p in places for end in CLIP_SUFFIXES]:
        try:
            is_there, is_folder = path.exists(), path.is_dir()
        except OSError:  # a name too long for the disk, or a folder that may not be entered
            continue
        if is_there:
            for each in (path, *(path.iterdir() if is_folder else ())):  # frames of a clip
                check_inside(each, folder, f"{where}: clip {short(name)}")
            return path
    searched = " or ".join(str(place) for place in places)
    raise ValueError(f"{where}: clip {short(name)} is not in {searched}: unpack the videos there")


def with_options(question: str, options: Sequence[str]) -> str:
    """Return a question with its options below it, one a line: "A. a dog"."""
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join([question, *lines])


def check_options(options: Sequence[str], where: str) -> None:
    """Raise ValueError unless there are 2 to 8 options."""
    if not 2 <= len(options) <= len(LETTERS):
        raise ValueError(f"{where}: {len(options)} options are no choice: give 2 to {len(LETTERS)}")


def choice_answers(options: Sequence[str], index: int, where: str) -> tuple[str, str]:
    """Return the right letter and its option's text; ValueError if there is no such option."""
    if not 0 <= index < len(options):
        raise ValueError(f"{where}: option {index} is none of {len(options)}: correct the file")
    return LETTERS[index], options[index]
