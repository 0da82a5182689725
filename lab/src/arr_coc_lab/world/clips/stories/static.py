"""A story: a page that stays, where nothing changes."""

from __future__ import annotations

from PIL import Image

from arr_coc_lab.data.tracks import Evidence
from arr_coc_lab.world.canvas import Rect
from arr_coc_lab.world.clips.stage import Act, ClipQuestion, Stage, Story, inside, register
from arr_coc_lab.world.clips.stories.pages import drawn_page


def plan(stage: Stage, rect: Rect) -> Act:
    """Return a drawn page in all frames with its own questions; any frame is enough evidence."""
    x0, y0, x1, y1 = rect
    size = (x1 - x0, y1 - y0)
    page, questions = drawn_page(stage, size)
    last = stage.count - 1

    def item(box: Rect) -> Evidence:
        a, b, c, d = inside(box, size)
        return Evidence(0, last, ((a + x0, b + y0, c + x0, d + y0),))

    def paint(image: Image.Image, frame: int) -> Image.Image:
        image.paste(page.image, (x0, y0))
        return image

    own = [ClipQuestion(q.text, q.answer, "page", tuple(map(item, q.evidence))) for q in questions]
    return Act("static", paint, tuple(own))


register(Story("static", "page", 1, plan))
