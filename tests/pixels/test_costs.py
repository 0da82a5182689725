"""What a picture costs, as JSON values: the rules' own counts, and the limits that `fit` acts on."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from arr_coc.pixels import RULES
from arr_coc.pixels.costs import BROKEN, picture_costs, rules_for
from arr_coc.pixels.limits import LIMITS, fit, read_header
from image_files import encoded
from strict_upstream import pool


def test_rules_by_name() -> None:
    assert rules_for(None) == (True, [*RULES.values()])
    assert rules_for("gpt-5.4-mini")[1] == [RULES["gpt-5.4"]]
    known, (rule,) = rules_for("nobody's")
    assert (known, rule.name) == (False, "square 32")


def test_it_says_what_is_acted_on() -> None:
    """A picture that is taken, also in a long chat, is the one that `fit` leaves alone."""
    for content in pool():
        header = read_header(content)
        if header is None or header.kind == "HEIF":
            with pytest.raises(ValueError, match="the picture"):
                picture_costs(content, "the picture", [])
            continue
        facts = picture_costs(content, "the picture", [RULES["claude"]])
        json.dumps(facts, allow_nan=False)
        for one in facts["limits"]:
            taken = one["taken"] and not one["refused_among_more_than"]
            if not header.damaged and not header.doubtful and len(content) < 10**6:
                assert taken == (fit(content, LIMITS[one["limits"]]) is content)
            assert one["taken"] == (not one["refused"])


def test_every_limit_has_words() -> None:
    content = encoded(Image.new("RGB", (9000, 3), "red"), "BMP")
    header = read_header(content)
    assert header is not None
    names = {name for limits in LIMITS.values() for name in limits.broken(header, 10**9)}
    assert names <= BROKEN.keys()
    assert names >= {"kinds", "side", "letters", "least", "aspect"}
