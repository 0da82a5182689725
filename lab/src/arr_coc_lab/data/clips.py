"""What the readers of data sets of clips share: finding a clip, and writing options as a model is given them.

A question of such a set is an `Example` whose `image` is the path of a video or of a folder of frames, whose
`question` ends in its options, one a line ("A. a dog"), and whose `answers` are the right letter and the text
behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from arr_coc.data.record import check_inside, check_name
from arr_coc.files.saved import short
from arr_coc.video import VIDEO_SUFFIXES

CLIP_SUFFIXES = (*VIDEO_SUFFIXES, ".gif")
LETTERS = "ABCDEFGH"
"""The letters of options, in order."""
LETTER = "\nAnswer with the option's letter from the given choices directly."
"""What lmms-eval and the program of LongVideoBench append to a multiple-choice question about a clip."""


def find_clip(folder: Path, name: str, where: str, under: Iterable[str] = ("",)) -> Path:
    """The clip called `name` in one of the subfolders `under` of `folder`: a file, or a folder of frames.

    The name as it is comes first in all of them, then with each of `CLIP_SUFFIXES` in place of its own.

    Args:
        folder: of the data set.
        name: a file name, stem or relative path as the data set writes it.
        where: file and place of the question, for messages.
        under: subfolders, "" for the folder itself.

    Raises:
        ValueError: the name leads out of the folder, or there is no such clip.
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
    """A question with its options below it, one a line: "A. a dog"."""
    lines = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False)]
    return "\n".join([question, *lines])


def check_options(options: Sequence[str], where: str) -> None:
    """Raises ValueError unless there are 2 to 8 options."""
    if not 2 <= len(options) <= len(LETTERS):
        raise ValueError(f"{where}: {len(options)} options are no choice: give 2 to {len(LETTERS)}")


def choice_answers(options: Sequence[str], index: int, where: str) -> tuple[str, str]:
    """The right letter and its option's text.

    Raises:
        ValueError: there is no such option.
    """
    if not 0 <= index < len(options):
        raise ValueError(f"{where}: option {index} is none of {len(options)}: correct the file")
    return LETTERS[index], options[index]
