"""The rendered world: pages that a browser lays out, with questions and evidence boxes from the DOM.

    with Chromium() as chromium:
        page = render_page(chromium, seed=7, split="test")

`types` has one file per page type, `vocabulary` and `phrases` the words, `style` and `fonts` the look,
`chromium` the browser.
"""

from arr_coc_lab.world.browser.chromium import Chromium, Shot, Word
from arr_coc_lab.world.browser.page import Inquired, RenderedPage, render_page, write_page

__all__ = ["Chromium", "Inquired", "RenderedPage", "Shot", "Word", "render_page", "write_page"]
