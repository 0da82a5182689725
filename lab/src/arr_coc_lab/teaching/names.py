"""What things are called: names of icons, figures and shapes as lessons use them.

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

EVERY = tuple(sorted({*CALLED, *FIGURES, *SHAPES}))
"""All that is drawn."""
SAYING_NOTHING = frozenset("button four group into letter nine sign three two".split())
"""Words of names that don't tell what a thing is."""


def names_of(thing: str) -> tuple[str, ...]:
    """What people call a thing, one name at least: its own where no others are on record."""
    return CALLED.get(thing, (thing,))


@lru_cache(maxsize=1024)
def name_words(thing: str) -> tuple[str, ...]:
    """The normal words of a thing's names that tell what it is, each once."""
    words = dict.fromkeys(word for name in names_of(thing) for word in split_words(name))
    telling = tuple(word for word in words if word not in STOP_WORDS and word not in SAYING_NOTHING)
    return telling or tuple(words)
