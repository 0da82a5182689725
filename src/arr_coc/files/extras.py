"""Packages that only some features need, and the line that installs them.

    install_line("video") -> "pip install 'av>=15'"

The packages themselves are named, and not `arr-coc[video]`: a package index need not have arr-coc, and an
installation from a checkout would be replaced. Law: as in pyproject.toml (`tests/files/test_extras.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

EXTRAS = {
    "app": ("gradio>=6.27,<7",),
    "pdf": ("pypdfium2>=5",),
    "video": ("av>=15",),
    "train": ("accelerate>=1.3",),
}
"""Extra of arr-coc -> its requirements."""


def install_line(extra: str, extras: Mapping[str, tuple[str, ...]] = EXTRAS) -> str:
    """The command that installs the packages of an extra, ready for a shell."""
    return "pip install " + " ".join(f"'{requirement}'" for requirement in extras[extra])
