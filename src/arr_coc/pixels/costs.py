"""What a picture costs at each provider, as JSON values, and who would refuse it. Imports no torch.

known, rules = rules_for("claude-opus-5")                       None: all rules
picture_costs(content, "page.png", rules)["rules"][0]["tokens"]
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from arr_coc.files.images import identify, orientation_of
from arr_coc.pixels.limits import LIMITS, Limits, PictureHeader, read_header
from arr_coc.pixels.naming import OTHER_RULE, named_rule
from arr_coc.pixels.rules import RULES, Rule, find_rule

TURNED = (5, 6, 7, 8)  # orientations in which width and height change places
BROKEN = {
    "kinds": "{kind} isn't taken: {kinds} are",
    "animated": "it is animated: a still picture is taken",
    "side": "a side has more than {held_side:,} px",
    "pixels": "it has more than {pixels:,} px",
    "letters": "its base64 has more than {letters:,} bytes",
    "least": "a side has fewer than {least} px",
    "aspect": "it is longer than {aspect} times its width",
}
"""What a picture breaks, by the names of `Limits.broken`."""


def rules_for(model: str | None) -> tuple[bool, list[Rule]]:
    """Return whether the name of a model or a rule is known, and its rule; for no name, all rules."""
    if model is None:
        return True, [*RULES.values()]
    try:
        return True, [find_rule(model)]
    except ValueError:
        name = named_rule(model)
    return name is not None, [find_rule(OTHER_RULE if name is None else name)]


def picture_costs(content: bytes, name: str, rules: Sequence[Rule]) -> dict[str, Any]:
    """Return what a picture costs by each rule and which limits it breaks, as JSON values.

    Args:
        content: of its file, of which the header alone is read.
        name: of the picture in messages.
        rules: by which tokens are counted.

    Raises:
        ValueError: it is no picture that can be opened, or too large.
    """
    header, nbytes = _upright_header(content, name), len(content)
    counted = []
    for rule in rules:
        size, tokens = rule.read(*header.size)
        counted.append({
            "rule": rule.name, "models": rule.models, "tokens": tokens, "read_at": list(size),
            "scaled": size[0] * size[1] < header.size[0] * header.size[1], "fixed": rule.fixed,
            "approximate": rule.approximate, "knob": rule.knob, "source": rule.source, "date": rule.date,
        })  # fmt: skip
    taken = []
    for limits in LIMITS.values():
        alone = replace(limits, many_side=0)
        refused = _reasons(alone, header, nbytes)
        in_a_chat = [] if refused else _reasons(limits, header, nbytes)
        taken.append({
            "limits": limits.name, "title": limits.title, "taken": not refused, "refused": refused,
            "refused_among_more_than": limits.many if in_a_chat else None,
            "most_pictures": limits.pictures or None, "source": limits.source, "date": limits.date,
            "unverified": list(limits.unverified),
        })  # fmt: skip
    return {
        "size": list(header.size),
        "kind": header.kind,
        "bytes": nbytes,
        "damaged": header.damaged,
        "rules": counted,
        "limits": taken,
    }


def _reasons(limits: Limits, header: PictureHeader, nbytes: int) -> list[str]:
    values = {name: getattr(limits, name) for name in ("held_side", "pixels", "letters", "least", "aspect")}
    values |= {"kind": header.kind, "kinds": ", ".join(limits.kinds)}
    return [BROKEN[name].format(**values) for name in limits.broken(header, nbytes)]


def _upright_header(content: bytes, name: str) -> PictureHeader:
    """Return what a file says of its picture, its size upright; ValueError if it is none."""
    if not content:
        raise ValueError(f"{name} is empty (0 bytes): save or download it again")
    header = read_header(content)
    if header is not None and header.kind == "HEIF":
        raise ValueError(f"{name} is HEIC, whose size isn't read: save it as PNG or JPEG")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of what is refused here
        with identify(io.BytesIO(content), name) as image:
            turned = orientation_of(image) in TURNED
    if header is None:
        raise ValueError(f"{name} has more px than any provider takes: scale it down")
    return header._replace(size=header.size[::-1] if turned else header.size)
