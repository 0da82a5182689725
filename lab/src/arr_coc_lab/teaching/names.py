"""Names of drawn things: icons, figures and shapes.

names_of("cart")          ("shopping cart", "cart", "trolley")
name_words("cart")        ("shopping", "cart", "trolley")
"""

from __future__ import annotations

from functools import lru_cache

from arr_coc.guide.lexicon import STOP_WORDS
from arr_coc.guide.question import split_words
from arr_coc_lab.world.browser.drawing import SHAPES as FIGURES
from arr_coc_lab.world.browser.icon_sets import CALLED
from arr_coc_lab.world.vocabulary import SHAPES

EVERY = tuple(sorted({*CALLED, *FIGURES, *SHAPES}))  # everything that is drawn
# words of names that do not tell things apart
SAYING_NOTHING = frozenset("button four group into letter nine sign three two".split())


def names_of(thing: str) -> tuple[str, ...]:
    """Return the usual names of a thing, at least its own."""
    return CALLED.get(thing, (thing,))


@lru_cache(maxsize=1024)
def name_words(thing: str) -> tuple[str, ...]:
    """Return the distinct normal words of a thing's names, without those that do not tell things apart."""
    words = dict.fromkeys(word for name in names_of(thing) for word in split_words(name))
    telling = tuple(word for word in words if word not in STOP_WORDS and word not in SAYING_NOTHING)
    return telling or tuple(words)
