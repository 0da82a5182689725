"""Packages that only some features need, and the line that installs them.

    install_line("video") -> "pip install 'av>=15'"

The packages themselves are named, and not `arr-coc[video]`: a package index need not have arr-coc, and an
installation from a checkout would be replaced. Law: as in pyproject.toml (`tests/core/test_extras.py`).
"""

from __future__ import annotations

EXTRAS = {
    "app": ("gradio>=6.27,<7",),
    "pdf": ("pypdfium2>=5",),
    "video": ("av>=15",),
    "train": ("accelerate>=1.3",),
    "parquet": ("pyarrow>=18",),
    "world": ("playwright>=1.50", "wordfreq>=3.1", "faker>=30"),
    "lmms": ("lmms-eval>=0.7.3,<0.8",),
    "pages": ("datasets>=3",),
}
"""Extra of arr-coc -> its requirements."""


def install_line(extra: str) -> str:
    """The command that installs the packages of an extra, ready for a shell."""
    return "pip install " + " ".join(f"'{requirement}'" for requirement in EXTRAS[extra])
