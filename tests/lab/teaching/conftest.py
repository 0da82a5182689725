"""Pages that Pillow draws, in a cache as `arr-coc world` makes it, and settings of a run of seconds."""

import io
import random
from pathlib import Path

import pytest

from arr_coc_lab.teaching.page import OpenPage, easy_page
from arr_coc_lab.teaching.recipe import GuideRecipe, load_guide_recipe
from arr_coc_lab.world.browser import cache
from arr_coc_lab.world.browser.page import Inquired, RenderedPage

WORDS = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet")


def page(seed: int, side: int = 256) -> OpenPage:
    """A page that asks where some of its words stand, what all of it is about, and for what it has not."""
    drawn = easy_page(random.Random(seed), WORDS, side)
    questions = [
        Inquired("word", f"Where does it say {word.text}?", word.text, (word.box,))
        for word in drawn.words[::3]
    ]
    questions += [
        Inquired("global", "What is this about?", "", ()),
        Inquired("unanswerable", "Zulu?", "", ()),
    ]
    return drawn._replace(questions=tuple(questions))


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cache with six pages."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "train").mkdir()
    for seed in range(6):
        drawn, png = page(seed), io.BytesIO()
        drawn.image.save(png, "PNG")
        rendered = RenderedPage(png.getvalue(), drawn.questions, drawn.words, "easy", None, seed, "train")
        cache.write(folder / "train" / str(seed), rendered)
    return folder


@pytest.fixture(scope="session")
def tiny(pages: Path):
    """The recipe at a size for tests: tiny(steps=2)."""

    def build(**changes: object) -> GuideRecipe:
        small = {
            "size": 128,
            "batch": 2,
            "windows": 1,
            "easy": 4,
            "workers": 0,
            "save_every": 100,
            "log_every": 1,
        }
        return load_guide_recipe({"pages": (str(pages),), **small, **changes})

    return build
