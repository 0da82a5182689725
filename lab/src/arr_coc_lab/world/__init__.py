"""The bundled world: pages and scenes drawn from a seed, with questions, answers and evidence boxes.

    page = draw_page(seed=7, size=(1024, 1024), split="test")
    page.image, page.questions[0].text, page.questions[0].answer, page.questions[0].evidence

No picture is stored and none is downloaded: everything is drawn with Pillow from fonts that ship with Pillow
and matplotlib. `vocabulary` lists the words, `layout` divides a page, `canvas` and `blocks` draw it, and
`questions` makes the questions. `text` draws pages of nothing but text.
"""

from arr_coc_lab.world.canvas import Fact, Thing
from arr_coc_lab.world.page import PAGES, Page, draw_page, page_seed, pages_of
from arr_coc_lab.world.questions import Question
from arr_coc_lab.world.text import FILLERS, draw_text_page, transcript

__all__ = [
    "FILLERS", "PAGES", "Fact", "Page", "Question", "Thing",
    "draw_page", "draw_text_page", "page_seed", "pages_of", "transcript",
]  # fmt: skip
