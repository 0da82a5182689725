"""Questions that ask for a place on a picture in px, such as "Answer with x, y" or "Click the menu".

asks_for_coordinates("Return the bounding box of the total.")     True
asks_for_coordinates("Which coordinates are printed on the map?") False
"""

from __future__ import annotations

import re

_PRESS = r"(?:(?:double|right|left)[- ])?(?:click|tap|press)"
_SAY = (
    r"(?:answer|draw|find|format|get|give|list|locate|name|output|predict|print|provide|reply|report|respond|"
    r"return|state|tell|use|write)"
)
PATTERNS = re.compile(
    "|".join((
        r"\bbounding[- ]box|\bb-?box|\b(?:box|point)_2d\b|</?(?:point|box|bbox)>|\bpyautogui\b|\bclick\(",
        r"(?<!solve for )\bx[012]?\s*[,/]\s*y[012]?\b(?! (?:axes|axis|chart|diagram|graph|plot))",
        r"\bx[01] y[01]\b|\bcoords\b|\b(?:left, top|top, left)\b",
        r"\b[xy]_?(?:min|max)\b|[\"']x[12]?[\"']\s*:|\b(?:which|what) x and y\b",
        rf"\b{_SAY}\b[^.?!]{{0,60}}\bcoordinates?\b|\b(?:pixel|screen|normali[sz]ed|relative) coordinates?\b",
        r"\bcoordinates? (?:of|for) (?:the|this|that|each|every|all)\b[^.?!]*"
        r"\b(?:button|icon|link|field|checkbox|menu|tab|cursor|logo|image|picture|screen|screenshot|photo)\b",
        r"\b(?:position|place|location|offset|distance|where)\b[^.?!]{0,12} in (?:px|pixels)\b",
        r"\bcent(?:er|re) (?:point|pixel) of\b|\bmove the (?:mouse|cursor|pointer)\b",
        r"\b(?:px|pixels) from the (?:left|right|top|bottom)\b",
        r"\b(?:where|which (?:pixel|point|spot))[^.?!]{0,20} "
        rf"(?:should|must|shall|do|can|would|to)\b[^.?!]{{0,12}}\b{_PRESS}(?:ped|ed)?\b",
        rf"\b{_PRESS} (?:position|point|location)\b|\bpolygons?\b",
        # A command at the beginning of a sentence, or behind a comma.
        rf"(?:^|[.!?:;,\n]\s*)(?:(?:now|please|then|and) )*(?:{_PRESS}|point (?:to|at)|drag|hover(?: over)?)"
        r" (?:on |at )?(?:an?|it|my|that|the|this|your|[\"'“‘])",
        # "Click on Save changes", "Click OK": what a control says may stand without quotes.
        rf"(?:^|[.!?:;,\n]\s*)(?:(?:now|please|then|and) )*(?:{_PRESS} on |click (?-i:[A-Z]))",
    )),
    re.IGNORECASE,
)  # fmt: skip
PRINTED = re.compile(
    r"\b(?:printed|written|given|gps|geographic(?:al)?|latitude|longitude|legend|polygons? (?:is|are|on|in)|"
    r"in the (?:table|text|list))\b",
    re.IGNORECASE,
)
"""Words of a question about coordinates that stand on the picture, as on a map."""


def asks_for_coordinates(question: str) -> bool:
    """Return whether a question wants a place on the picture in px, by its phrasing; English alone is known.

    Such an answer is in px of the picture that the model sees: of one made of parts they would mislead.
    """
    return PRINTED.search(question) is None and PATTERNS.search(question) is not None
