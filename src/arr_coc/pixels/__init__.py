"""Pack a picture for any model: what a question needs of it, cut out and enlarged within a budget of tokens.

packed = pack_for("page.png", "When will the parcel arrive?", tokens=256, rule="claude")
packed.pictures, packed.captions     what to send, and a sentence for each
packed.to_original(x, y)             where a point of an answer lies in the image
ranked_units(page, allocation)       the facts of a page that a question needs, as boxes, best first
"""

from arr_coc.pixels.packed import Packed, Place
from arr_coc.pixels.packing import LAYOUTS, pack, pack_for
from arr_coc.pixels.page import PrintedPage, find_page
from arr_coc.pixels.rules import RULES, Rule, find_rule
from arr_coc.pixels.units import PageUnit, ranked_units

__all__ = [
    "LAYOUTS", "RULES", "Packed", "PageUnit", "Place", "PrintedPage", "Rule", "find_page", "find_rule",
    "pack", "pack_for", "ranked_units",
]  # fmt: skip
