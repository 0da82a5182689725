"""Packages that some features of the lab need, and the command that installs them."""

from __future__ import annotations

from functools import partial

from arr_coc.files import plugins as extras

# extra of arr-coc-lab -> its requirements
EXTRAS = {
    "parquet": ("pyarrow>=18",),
    "world": ("playwright>=1.50", "wordfreq>=3.1", "faker>=30"),
    "lmms": ("lmms-eval>=0.7.3,<0.8",),
    "scale": ("ray[data]>=2.60,<3", "pyarrow>=18"),
    "pages": ("datasets>=3",),
}

install_line = partial(extras.install_line, extras=EXTRAS)
