"""What commands read before they work: modules of the user's, an image with a question, a budget, a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arr_coc.cli import terminal

if TYPE_CHECKING:
    from PIL import Image

    from arr_coc.core.attending import Budget
    from arr_coc.model import ARRCOCModel

SAMPLE = Path(__file__).parents[1] / "bundled" / "sample.json"
PICTURE_TYPES = (".png", ".jpg", ".jpeg", ".webp")


def open_question(image: str | None, question: str | None) -> tuple[Image.Image, str, str]:
    """The image, what to call it, and the question; the built-in sample's where no image is named.

    Raises:
        ValueError: an image that can't be read, or no question about it.
    """
    from arr_coc.core.images import open_image

    if image is None:
        if not SAMPLE.is_file():
            raise ValueError(
                "the built-in sample is missing from this installation: give an image and a question"
            )
        sample = json.loads(SAMPLE.read_text(encoding="utf-8"))
        return open_image(SAMPLE.with_suffix(".png")), "the built-in sample", sample["question"]
    if question is None:
        raise ValueError(f'no question about {image!r}: add one in quotes, for example "What is the title?"')
    if not question.strip():
        raise ValueError(f"the question is empty ({question!r}): ask something about the image")
    return open_image(image), image, question.strip()


def output_path(option: str, path: str, suffixes: Sequence[str], image: str | None = None) -> Path:
    """Where to write, tried now, so that no answer is computed for nothing.

    Args:
        option: of the command line.
        path: its value.
        suffixes: those that are allowed, such as ".png".
        image: the user's own file, which is not to be written over.

    Raises:
        ValueError: another suffix, the image itself, or a place that can't be written.
    """
    target = Path(path).expanduser()
    if target.suffix.lower() not in suffixes:
        raise ValueError(f"{option} {str(target)!r} must end in {' or '.join(suffixes)}")
    try:
        existed = target.exists()
        if existed and image is not None and target.samefile(Path(image).expanduser()):
            raise ValueError(f"{option} {str(target)!r} is the image itself: choose another place")
        with target.open("ab"):
            pass
    except OSError as error:
        reason = f"cannot be written ({error.strerror}): choose another place"
        raise ValueError(f"{option} {str(target)!r} {reason}") from error
    if not existed:
        target.unlink()
    return target


def optional_path(
    option: str, path: str | None, suffixes: Sequence[str], image: str | None = None
) -> Path | None:
    """As `output_path`; None where the option isn't given."""
    return None if path is None else output_path(option, path, suffixes, image)


def read_budget(text: str | None, quiet: bool) -> Budget | None:
    """The budget that a text means; None, which leaves it to the model, where there is none.

    Raises:
        ValueError: neither a count, a fraction nor "auto".
    """
    if text is None:
        return None
    with terminal.status("starting", quiet):
        from arr_coc.core.attending import parse_budget
    return parse_budget(text)


def load_model(name: str, device: str, dtype: str, quiet: bool, **settings: Any) -> ARRCOCModel:
    """Load a model with its allocator, and say so on a terminal.

    Args:
        name: of a model on the Hub, a folder or "bundled".
        device: as `device.resolve_device` takes it.
        dtype: as `device.resolve_dtype` takes it.
        quiet: no spinner and no progress bar of a download.
        settings: other arguments of `ARRCOCModel.from_pretrained`.

    Raises:
        ValueError: what can't be loaded, or a device that isn't there.
    """
    with terminal.status("starting", quiet):
        from arr_coc.core.device import resolve_device
        from arr_coc.model import ARRCOCModel
        from arr_coc.store.hub import BUNDLED, is_local

    settings |= {"device": resolve_device(device), "dtype": dtype}
    download = name != BUNDLED and not is_local(name)
    terminal.quiet_transformers(bars=download and not quiet)
    if download and not quiet:  # a download shows its own progress
        terminal.note(f"loading {name}")
        return ARRCOCModel.from_pretrained(name, **settings)
    with terminal.status("loading the model", quiet):
        return ARRCOCModel.from_pretrained(name, **settings)
