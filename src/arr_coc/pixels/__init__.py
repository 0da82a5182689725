"""Pack a picture for any model: what a question needs of it, cut out and enlarged within a budget of tokens.

packed = pack_for("page.png", "When will the parcel arrive?", tokens=256, rule="claude")
packed.pictures, packed.captions     what to send, and a sentence for each
packed.to_original(x, y)             where a point of an answer lies in the image
ranked_units(page, allocation)       the facts of a page that a question needs, as boxes, best first

Names are imported when they are first used: counting tokens needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arr_coc.pixels.packed import Packed, Place
    from arr_coc.pixels.packing import LAYOUTS, pack, pack_for, pack_legibly
    from arr_coc.pixels.page import PrintedPage, find_page
    from arr_coc.pixels.rules import RULES, Rule, find_rule
    from arr_coc.pixels.units import PageUnit, ranked_units

_HOMES = {
    "packed": ("Packed", "Place"),
    "packing": ("LAYOUTS", "pack", "pack_for", "pack_legibly"),
    "page": ("PrintedPage", "find_page"),
    "rules": ("RULES", "Rule", "find_rule"),
    "units": ("PageUnit", "ranked_units"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "LAYOUTS", "RULES", "Packed", "PageUnit", "Place", "PrintedPage", "Rule", "find_page", "find_rule",
    "pack", "pack_for", "pack_legibly", "ranked_units",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
