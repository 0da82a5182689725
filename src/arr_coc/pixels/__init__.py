"""Pack a picture for any model: what a question needs of it, cut out and enlarged within a budget of tokens.

packed = pack_for("page.png", "When will the parcel arrive?", tokens=256, rule="claude")
packed.pictures, packed.captions     what to send, and a sentence for each
packed.to_original(x, y)             where a point of an answer lies in the image
"""

from arr_coc.pixels.packed import Packed, Place
from arr_coc.pixels.packing import LAYOUTS, pack, pack_for, pack_legibly
from arr_coc.pixels.rules import RULES, Rule, find_rule

__all__ = ["LAYOUTS", "RULES", "Packed", "Place", "Rule", "find_rule", "pack", "pack_for", "pack_legibly"]
