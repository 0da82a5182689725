"""Screenshots of one session, one after another: decide what of a new one has to be sent again.

sent, history = next_file(None, first, "parts", find_rule("claude"))         whole: it is the first
sent, history = next_file(history, second, "parts", find_rule("claude"))
sent.frame.kind                           "whole", "unchanged" or "parts"
sent.frame.parts, sent.files              captions, with boxes in px of the whole screen; PNGs of those

A decision follows from a screenshot and those before it alone, so that what was sent stays as it was. All
places are in px of the screen as it was last shown whole: an agent clicks in one space of coordinates.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from arr_coc.files.images import identify, open_image, orientation_of
from arr_coc.pixels.regions import merged

if TYPE_CHECKING:
    from arr_coc.pixels.lines import PixelBox
    from arr_coc.pixels.rules import Rule

SCREENS = ("unchanged", "parts", "off")
"""What is done with screenshots: a sentence for one like the last; parts, too; nothing."""
MAX_FRAME_PIXELS = 9_000_000  # of a screenshot; larger ones go whole
OWN_SIZE = 0.98  # of a screenshot's sides, read at less of which by a model, it has no parts
TOLERANCE = 3  # levels of 255 by which a channel of a px may differ and be the same
BLOCK = 8  # px of the side of the squares in which changes are found
MAX_UNCHANGED = 3  # sentences in a row before a screenshot is sent again
MAX_PARTS = 4  # of a screenshot
MAX_AGE = 12  # screenshots since the last whole one, before the next is whole
WHOLE_FROM = 0.6  # share of the whole screenshot's tokens from which on its parts aren't worth it
MARGIN, MIN_SIDES = 16, (160, 80)  # px around a change, and the least width and height of a part
FRAME = 24  # px that a part costs more at each side, for its caption
CARET_WIDTH, CARET_HEIGHTS = 3, (10, 64)  # px of a text cursor
SMALL = (192, 96)  # px, the width and height of what may be a clock or a spinner
MAX_RESTLESS = 16  # small changes of a pair of screenshots of which some may be clocks or spinners
MAX_ALONE = 2  # changes of a pair that may all be clocks or spinners: one of each
MAX_MERGED = 48  # boxes that are merged one by one
MIN_SCROLLED, MIN_VOTES = 0.08, 24  # share of a screen that has moved, and rows of print that say so
DIMMED = (0.15, 0.92)  # of its light that a screen keeps behind a dialog
MIN_DIMMED = 0.5  # share of a screen whose colours one change of light explains
STRIP = 64  # px of width in which rows are compared
WIDE = 1280  # px of a screen of scale 1: lengths grow with wider ones
UNCHANGED = "The screen is unchanged since the screenshot above."

Pixels = NDArray[np.uint32]  # [H, W], padded to whole blocks: red, green, blue and 255 in its four bytes
Blocks = NDArray[np.bool_]  # [H / BLOCK, W / BLOCK]
_HASH = np.random.default_rng(7).integers(1, 2**13, STRIP).astype(np.float64)


class Screen(NamedTuple):
    """A decoded screenshot: its size (width, height) in px, and its pixels."""

    size: tuple[int, int]
    pixels: Pixels


class FramePart(NamedTuple):
    """A sentence about a screenshot, and the box (x0, y0, x1, y1) of the part that is sent with it.

    Where the sentence goes alone, the box is None.
    """

    caption: str
    box: PixelBox | None


class ShownFrame(NamedTuple):
    """What is sent of a screenshot.

    Attributes:
        kind: "whole": as it came; "unchanged": a sentence; "parts": sentences, and parts at full size.
        why: of a whole one: "first", "size" (another one than before), "much" (has changed), "again" (after
            MAX_UNCHANGED sentences) or "age" (after MAX_AGE others); of another how it was explained:
            "", "scroll", "opened" or "closed".
        parts: in order; none of a whole one.
    """

    kind: str
    why: str = ""
    parts: tuple[FramePart, ...] = ()


class SmallChanges(NamedTuple):
    """Small boxes that changed from one screenshot to the next, with what was there, and whether all did."""

    boxes: tuple[tuple[PixelBox, Pixels], ...]
    alone: bool


class FrameHistory(NamedTuple):
    """What is known of a session's screenshots up to one of them.

    Attributes:
        size: of all of them.
        canvas: the screen as it was shown, parts put in their places.
        last: the last screenshot itself.
        under: the screen as it was shown before a dialog darkened it; None: there is no dialog.
        restless: of the last three pairs of screenshots.
        unchanged: sentences since the last picture.
        age: screenshots since the last whole one.
        parted: whether parts were sent since then.
    """

    size: tuple[int, int]
    canvas: Pixels
    last: Pixels
    under: Pixels | None = None
    restless: tuple[SmallChanges, ...] = ()
    unchanged: int = 0
    age: int = 0
    parted: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        held = {id(one): one.nbytes for one in (self.canvas, self.last, self.under) if one is not None}
        return sum(held.values()) + 4096


class SentFile(NamedTuple):
    """What is sent of a screenshot's file: a PNG for each of its parts, b"" where one has no picture."""

    size: tuple[int, int]
    frame: ShownFrame
    files: tuple[bytes, ...] = ()


def next_file(
    history: FrameHistory | None, content: bytes, way: str, rule: Rule, side: int = 0
) -> tuple[SentFile, FrameHistory | None]:
    """Decide what is sent of a screenshot's file, as `next_frame`, and return the history with it.

    A model that reads the screen at less than OWN_SIZE of its sides gets no parts: its px would be others. So
    does a server that gets it scaled down to `side` px, the most of a side that it takes; 0: any number.
    A picture that is thin or has to be turned is whole ("other"), and the next one is a first one.

    Raises:
        ValueError: a file that can't be read, or of more than MAX_FRAME_PIXELS.
    """
    image = open_image(content, MAX_FRAME_PIXELS)
    with identify(io.BytesIO(content), "the screenshot") as header:
        size, upright = header.size, orientation_of(header) == 1
    if image.size != size or not upright:  # `open_image` has let it grow, or turned it
        return SentFile(size, ShownFrame("whole", "other")), None
    width, height = rule.seen(*size)
    small = min(width / size[0], height / size[1]) < OWN_SIZE or 0 < side < max(size)
    frame, history = next_frame(history, open_frame(image), "unchanged" if small else way, rule.tokens)
    files = [b"" if box is None else _png(image.crop(box)) for _, box in frame.parts]
    return SentFile(size, frame, tuple(files)), history


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=6)
    return file.getvalue()


def open_frame(image: Image.Image) -> Screen:
    """Return a screenshot's pixels as `next_frame` takes them."""
    colours = np.asarray(image.convert("RGBA")).view(np.uint32)[..., 0]
    height, width = colours.shape
    padded = np.zeros((-(-height // BLOCK) * BLOCK, -(-width // BLOCK) * BLOCK), np.uint32)
    padded[:height, :width] = colours
    return Screen((width, height), padded)


def next_frame(
    history: FrameHistory | None, screen: Screen, way: str, tokens: Callable[[int, int], int]
) -> tuple[ShownFrame, FrameHistory]:
    """Decide what is sent of a screenshot, and return the history with it.

    What doesn't count as a change: channels that differ by TOLERANCE, one text cursor that appears or goes,
    and a small place that had also changed in the two pairs of screenshots before, in one of these three
    almost alone, and shows nothing that it did in them, as clocks with seconds and spinners. Such places
    are named.

    Args:
        history: what was returned for the screenshot before it; None for the first of a session.
        screen: the new one.
        way: "unchanged" or "parts".
        tokens: what a picture of some width and height costs.
    """
    new = screen.pixels
    if history is None or history.size != screen.size:
        why = "first" if history is None else "size"
        return ShownFrame("whole", why), FrameHistory(screen.size, new, new)
    scale = max(1, round(screen.size[0] / WIDE))
    changed = differing(history.canvas, new)
    boxes = touching_blocks(blocks_of(changed))
    history = history._replace(
        restless=(*history.restless[-2:], _small_changes(history, new, boxes, scale)),
        last=new,
        age=history.age + 1,
    )
    whole = FrameHistory(screen.size, new, new, restless=history.restless)
    if not (kept := _that_count(boxes, changed, history, scale)):
        if history.unchanged >= MAX_UNCHANGED:
            return ShownFrame("whole", "again"), whole._replace(under=history.under)
        caption = UNCHANGED if not history.parted else UNCHANGED.replace("screenshot", "parts of it")
        caption += _moving(boxes, screen.size)
        sentence = ShownFrame("unchanged", "", (FramePart(caption, None),))
        return sentence, history._replace(unchanged=history.unchanged + 1)
    if way == "unchanged":
        return ShownFrame("whole", "much"), whole
    if history.age > MAX_AGE:
        return ShownFrame("whole", "age"), whole._replace(under=history.under)
    guess = _explained(history, new, changed, screen.size)
    if guess.why:
        left = differing(guess.pixels, new)
        boxes = touching_blocks(blocks_of(left))
        kept = _that_count(boxes, left, history, scale)
    grouped = kept if len(kept) <= MAX_MERGED else _grouped(kept, new.shape)
    cut = [_with_margin(box, screen.size, scale) for box in grouped]
    cut = sorted(merged(cut, FRAME * scale, MAX_PARTS), key=lambda box: (box[1], box[0]))
    cost = sum(tokens(x1 - x0, y1 - y0) for x0, y0, x1, y1 in cut)
    if cost > WHOLE_FROM * tokens(*screen.size):
        return ShownFrame("whole", "much"), whole
    canvas = guess.pixels.copy()
    for box in cut:
        _cut(canvas, box)[:] = _cut(new, box)
    lead = f"Only a part of the screen has changed since the screenshot above. {guess.caption}".strip()
    captions = [_caption(box, screen.size) for box in cut] or [""]
    captions[0] = f"{lead}{_moving([one for one in boxes if one not in kept], screen.size)} {captions[0]}"
    parts = tuple(FramePart(text.strip(), box) for text, box in zip(captions, cut or [None], strict=True))
    history = history._replace(canvas=canvas, under=guess.under, unchanged=0, parted=True)
    return ShownFrame("parts", guess.why, parts), history


def _caption(box: PixelBox, size: tuple[int, int]) -> str:
    x0, y0, x1, y1 = box
    return (
        f"This is x {x0} to {x1}, y {y0} to {y1} of the screen of {size[0]} x {size[1]} px, at full size: "
        f"add {x0} to x and {y0} to y of a place in it to click there."
    )


def _moving(boxes: Sequence[PixelBox], size: tuple[int, int]) -> str:
    """Return what is said of places whose change doesn't count; nothing without any."""
    if not boxes:
        return ""
    ends = ((x0, min(x1, size[0]), y0, min(y1, size[1])) for x0, y0, x1, y1 in boxes)
    places = "; ".join("x {} to {}, y {} to {}".format(*one) for one in ends)
    return f" Not counted is what changes by itself (a cursor, a clock): {places}."


# ---- what differs ---------------------------------------------------------------------------------------


def differing(one: Pixels, other: Pixels) -> NDArray[np.bool_]:
    """Return where two screens differ by more than TOLERANCE, [H, W]."""
    mask = one != other
    rows = np.flatnonzero(mask.any(1))
    if not len(rows):
        return mask
    span = slice(rows[0], rows[-1] + 1)
    first, second = one[span].view(np.uint8), other[span].view(np.uint8)
    far = (np.maximum(first, second) - np.minimum(first, second)) > TOLERANCE
    mask[span] = far.view(np.uint32) != 0
    return mask


def blocks_of(mask: NDArray[np.bool_]) -> Blocks:
    """Return which blocks have a px of a mask [H, W] of whole blocks."""
    height, width = mask.shape
    rows = np.ascontiguousarray(mask).view(np.uint64) != 0  # BLOCK px of one byte each
    return rows.reshape(height // BLOCK, BLOCK, width // BLOCK).any(1)


def touching_blocks(blocks: Blocks) -> list[PixelBox]:
    """Return the boxes, in px, of blocks that touch, by a corner too, from top to bottom."""
    padded = np.zeros((blocks.shape[0], blocks.shape[1] + 2), np.int8)
    padded[:, 1:-1] = blocks
    steps = np.diff(padded, axis=1)
    rows, starts = np.nonzero(steps == 1)
    ends = np.nonzero(steps == -1)[1]
    parent = list(range(len(rows)))

    def root(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    first = np.searchsorted(rows, np.arange(blocks.shape[0] + 1))
    lefts, rights = starts.tolist(), ends.tolist()
    for row in range(1, blocks.shape[0]):
        above, below = int(first[row - 1]), int(first[row])
        while above < first[row] and below < first[row + 1]:
            if lefts[above] <= rights[below] and lefts[below] <= rights[above]:
                parent[root(below)] = root(above)
            if rights[above] < rights[below]:
                above += 1
            else:
                below += 1
    boxes: dict[int, list[int]] = {}
    for at, row in enumerate(rows.tolist()):
        box = boxes.setdefault(root(at), [lefts[at], row, rights[at], row + 1])
        box[0], box[2], box[3] = min(box[0], lefts[at]), max(box[2], rights[at]), row + 1
    made = ((x0 * BLOCK, y0 * BLOCK, x1 * BLOCK, y1 * BLOCK) for x0, y0, x1, y1 in boxes.values())
    return sorted(made, key=lambda box: (box[1], box[0]))


def _cut(pixels: NDArray, box: PixelBox) -> NDArray:
    return pixels[box[1] : box[3], box[0] : box[2]]


def _is_small(box: PixelBox, scale: int) -> bool:
    return box[2] - box[0] <= SMALL[0] * scale and box[3] - box[1] <= SMALL[1] * scale


def _that_count(
    boxes: Sequence[PixelBox], changed: NDArray[np.bool_], history: FrameHistory, scale: int
) -> list[PixelBox]:
    """Return the boxes of changes that count."""
    carets = [box for box in boxes if _is_caret(box, changed, history, scale)]
    calm = carets if len(carets) == 1 else []  # two: the cursor is in another field now
    return [box for box in boxes if box not in calm and not _is_restless(box, history, scale)]


def _is_caret(box: PixelBox, changed: NDArray[np.bool_], history: FrameHistory, scale: int) -> bool:
    """Return whether a change is a bar of one colour on ground of one colour."""
    if box[2] - box[0] > 2 * BLOCK * scale or box[3] - box[1] > CARET_HEIGHTS[1] * scale + 2 * BLOCK:
        return False
    rows, columns = np.nonzero(_cut(changed, box))
    y0, x0, y1, x1 = rows.min(), columns.min(), rows.max() + 1, columns.max() + 1
    low, high = CARET_HEIGHTS
    if x1 - x0 > CARET_WIDTH * scale or not low * scale <= y1 - y0 <= high * scale:
        return False
    bar = (int(box[0] + x0), int(box[1] + y0), int(box[0] + x1), int(box[1] + y1))
    return all(np.ptp(_cut(pixels, bar)) == 0 for pixels in (history.canvas, history.last))


def _small_changes(history: FrameHistory, new: Pixels, boxes: Sequence[PixelBox], scale: int) -> SmallChanges:
    """Return what is small of the changes since the last screenshot, which may not be what was shown."""
    if not np.array_equal(history.last, history.canvas):
        boxes = touching_blocks(blocks_of(differing(history.last, new)))
    small = [box for box in boxes if _is_small(box, scale)]
    if len(small) > MAX_RESTLESS:
        return SmallChanges((), alone=False)
    kept = tuple((box, _cut(history.last, box).copy()) for box in small)
    return SmallChanges(kept, alone=len(small) == len(boxes) <= MAX_ALONE)


def _is_restless(box: PixelBox, history: FrameHistory, scale: int) -> bool:
    """Return whether a small place has changed in the last three pairs of screenshots, to something new.

    In one of them hardly anything else did: the number of things in a basket changes with other things.
    """
    if len(history.restless) < 3 or not _is_small(box, scale) or not any(p.alone for p in history.restless):
        return False
    there = [[one for one in pair.boxes if _share_place(one[0], box)] for pair in history.restless]
    return all(there) and not any(
        np.array_equal(_cut(history.last, place), was) for pair in there for place, was in pair
    )


def _share_place(one: PixelBox, other: PixelBox) -> bool:
    near = 2 * BLOCK
    inside = (
        all(a <= b + near for a, b in zip(big[:2], little[:2], strict=True))
        and all(a >= b - near for a, b in zip(big[2:], little[2:], strict=True))
        for big, little in ((one, other), (other, one))
    )
    return any(inside)


def _grouped(boxes: Sequence[PixelBox], shape: tuple[int, ...]) -> list[PixelBox]:
    """Return few boxes around many: of those that are within a few blocks of each other, one."""
    near = 2
    while len(boxes) > MAX_MERGED:
        blocks = np.zeros((shape[0] // BLOCK, shape[1] // BLOCK), bool)
        for box in boxes:
            x0, y0, x1, y1 = (side // BLOCK for side in box)
            blocks[max(0, y0 - near) : y1 + near, max(0, x0 - near) : x1 + near] = True
        boxes, near = touching_blocks(blocks), 2 * near
    return list(boxes)


def _with_margin(box: PixelBox, size: tuple[int, int], scale: int) -> PixelBox:
    """Return a box with a margin, of a least size, inside the screen."""
    sides = []
    for low, high, least, end in zip(box[:2], box[2:], MIN_SIDES, size, strict=True):
        grow = max(MARGIN * scale, -(-(least * scale - (high - low)) // 2))
        start, stop = low - grow, high + grow
        start, stop = start - max(0, stop - end), stop - min(0, start)
        sides.append((max(0, start), min(end, stop)))
    (x0, x1), (y0, y1) = sides
    return x0, y0, x1, y1


# ---- what explains a change -----------------------------------------------------------------------------


class _Guess(NamedTuple):
    """A screen as it would be if what is said in the caption were all that happened."""

    why: str
    pixels: Pixels
    caption: str = ""
    under: Pixels | None = None


def _explained(
    history: FrameHistory, new: Pixels, changed: NDArray[np.bool_], size: tuple[int, int]
) -> _Guess:
    """Return the guess that leaves the least to be sent; that nothing in particular happened is one."""
    plain = _Guess("", history.canvas, under=history.under)
    guesses = [(int(blocks_of(changed).sum()), plain)]
    if guesses[0][0] < MIN_SCROLLED / 2 * changed.size / BLOCK**2:
        return plain

    def offer(guess: _Guess) -> None:
        guesses.append((int(blocks_of(differing(guess.pixels, new)).sum()), guess))

    if history.under is not None:
        offer(_Guess("closed", history.under, "What lay over the screen is closed: it is as it was before."))
    if (moved := _scrolled(history.canvas, new, changed, size)) is not None:
        pixels, (x0, y0, x1, y1), shift = moved
        caption = (
            f"The area x {x0} to {x1}, y {y0} to {y1} has scrolled: what is in it now was {abs(shift)} px "
            f"further {'down' if shift > 0 else 'up'} before."
        )
        offer(_Guess("scroll", pixels, caption, history.under))
    if history.under is None and (dark := _dimmed(history.canvas, new)) is not None:
        offer(_Guess("opened", dark, "All else is as it was, in another light, behind it.", history.canvas))
    best = min(guesses, key=lambda one: one[0])  # of equal ones the first
    return best[1] if best[0] <= 0.8 * guesses[0][0] else plain


def _scrolled(
    before: Pixels, new: Pixels, changed: NDArray[np.bool_], size: tuple[int, int]
) -> tuple[Pixels, PixelBox, int] | None:
    """Find the area that was scrolled up or down: return the screen with it moved, its box, and the px.

    If nothing was scrolled, return None.
    """
    columns = np.flatnonzero(blocks_of(changed).any(0)) * BLOCK
    left = int(columns[0])
    strips = (int(columns[-1]) + BLOCK - left) // STRIP
    height = before.shape[0]
    if strips < 1:
        return None
    span = slice(left, left + strips * STRIP)

    def hashed(pixels: Pixels) -> NDArray[np.float64]:
        colours = (pixels[:, span] & 0xFFFFFF).astype(np.float64).reshape(height, strips, STRIP)
        return (colours @ _HASH) * strips + np.arange(strips)  # whole numbers below 2^53

    old, now = hashed(before), hashed(new)
    values, at, counts = np.unique(old, return_index=True, return_counts=True)
    rows = np.broadcast_to(np.arange(height)[:, None], old.shape)
    moved = now != old
    places = np.minimum(np.searchsorted(values, now[moved]), len(values) - 1)
    once = (values[places] == now[moved]) & (counts[places] == 1)
    votes = np.bincount(at[places[once]] // strips - rows[moved][once] + height, minlength=2 * height)
    shift = int(votes.argmax()) - height
    if not shift or votes.max() < MIN_VOTES:
        return None
    # The area is where blocks have changed, and hold what was `shift` px from there.
    same = np.zeros(before.shape, bool)
    to = slice(max(0, -shift), height - max(0, shift))
    same[to] = new[to] == before[to.start + shift : to.stop + shift]
    explained = blocks_of(changed) & ~blocks_of(~same)
    across, down = explained.sum(0), explained.sum(1)
    wide, high = (np.flatnonzero(one >= max(1, one.max() // 10)) * BLOCK for one in (across, down))
    if not len(wide) or not len(high):
        return None
    x0, x1, y0, y1 = int(wide[0]), int(wide[-1]) + BLOCK, int(high[0]), int(high[-1]) + BLOCK
    mostly = same[:, x0:x1].mean(1) > 0.98
    while y0 > to.start and mostly[y0 - 1]:
        y0 -= 1
    while y1 < to.stop and mostly[y1]:
        y1 += 1
    x1, y1 = min(x1, size[0]), min(y1, size[1])
    if (x1 - x0) * (y1 - y0) < MIN_SCROLLED * size[0] * size[1]:
        return None
    made = before.copy()
    made[y0:y1, x0:x1] = before[y0 + shift : y1 + shift, x0:x1]
    return made, (x0, y0, x1, y1), shift


def _dimmed(screen: Pixels, new: Pixels) -> Pixels | None:
    """Return a screen in the other light that most of it is in now; None: in none."""
    before, after = screen[::8, ::8].ravel(), new[::8, ::8].ravel()
    colours, which, counts = np.unique(before, return_inverse=True, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")[:12]
    pairs, weights = [], []
    for one in frequent:
        became, times = np.unique(after[which == one], return_counts=True)
        pairs.append((colours[one], became[times.argmax()]))
        weights.append(float(times.max()))
    values = np.array(pairs, np.uint32).view(np.uint8).reshape(len(pairs), 2, 4)[..., :3].astype(np.float64)
    weight = np.array(weights)
    for _ in range(3):  # new = gain * screen + a colour; what isn't so is left out the next time
        if weight.sum() == 0:
            return None
        means = np.average(values, axis=0, weights=weight)
        apart = values - means
        spread = (weight[:, None] * apart[:, 0] ** 2).sum()
        if spread == 0:
            return None
        gain = float((weight[:, None] * apart[:, 0] * apart[:, 1]).sum() / spread)
        off = np.abs(gain * apart[:, 0] - apart[:, 1]).max(1)
        weight = np.where(off <= max(TOLERANCE, np.median(off)), weight, 0.0)
    if not DIMMED[0] <= gain <= DIMMED[1]:
        return None
    table = np.arange(256)[:, None] * gain + (means[1] - gain * means[0])
    table = np.clip(np.rint(table), 0, 255).astype(np.uint8)
    made = screen.view(np.uint8).reshape(*screen.shape, 4).copy()
    for channel in range(3):
        made[..., channel] = table[:, channel][made[..., channel]]
    dark = made.view(np.uint32)[..., 0]
    dark[screen == 0] = 0  # what fills up the last blocks has no light
    explained = 1 - differing(dark[::8, ::8].copy(), new[::8, ::8].copy()).mean()
    return dark if explained >= MIN_DIMMED else None
