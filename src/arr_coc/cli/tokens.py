"""The command `arr-coc tokens`: what a picture costs at each provider, and who would refuse it."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace
from typing import Annotated, Any

import typer

from arr_coc.cli import inputs, options, terminal
from arr_coc.files.images import identify, orientation_of
from arr_coc.files.paths import shorten
from arr_coc.pixels.limits import LIMITS, Header, Limits, read_header
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


def count_tokens(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Image files, or - for one on standard input.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="NAME|N",
            help="A model or a rule, such as claude-opus-5, gpt-5.4 or qwen; N: one token for each N x N px. "
            "Not given: all rules.",
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what a picture costs at each provider and engine, and who would refuse it.

    Tokens are counted by the rules that providers have published. Beside them stand the size at which the
    model reads the picture, what changes the price, and whose hard limits it breaks, alone or in a long chat.
    """
    known, rules = _rules(model)
    pictures = [(name, *_read(name)) for name in files]  # refused before anything is printed
    for number, (name, header, nbytes) in enumerate(pictures):
        facts = _facts(name, header, nbytes, known, rules)
        if as_json:
            terminal.print_json(facts)
            continue
        if number:
            print()
        _show(facts, "" if known else str(model))


def _rules(model: str | None) -> tuple[bool, list[Rule]]:
    """Return whether a name is known, and its rule; for no name, all rules."""
    if model is None:
        return True, [*RULES.values()]
    try:
        return True, [find_rule(model)]
    except ValueError:
        name = named_rule(model)
    return name is not None, [find_rule(OTHER_RULE if name is None else name)]


def _read(name: str) -> tuple[Header, int]:
    """Return what a file says of its picture, upright, and its bytes."""
    content = inputs.read_file(name)
    title = "standard input" if name == inputs.STDIN else f"image {shorten(name)}"
    if not content:
        raise ValueError(f"{title} is empty (0 bytes): save or download it again")
    header = read_header(content)
    if header is not None and header.kind == "HEIF":
        raise ValueError(f"{title} is HEIC, whose size isn't read: save it as PNG or JPEG")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns of what is refused here
        with identify(io.BytesIO(content), title) as image:
            turned = orientation_of(image) in TURNED
    if header is None:
        raise ValueError(f"{title} has more px than any provider takes: scale it down")
    return header._replace(size=header.size[::-1] if turned else header.size), len(content)


def _facts(name: str, header: Header, nbytes: int, known: bool, rules: list[Rule]) -> dict[str, Any]:
    """Return what is said of a picture, as JSON values."""
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
        "image": name,
        "size": list(header.size),
        "kind": header.kind,
        "bytes": nbytes,
        "damaged": header.damaged,
        "model_known": known,
        "rules": counted,
        "limits": taken,
    }


def _reasons(limits: Limits, header: Header, nbytes: int) -> list[str]:
    values = {name: getattr(limits, name) for name in ("held_side", "pixels", "letters", "least", "aspect")}
    values |= {"kind": header.kind, "kinds": ", ".join(limits.kinds)}
    return [BROKEN[name].format(**values) for name in limits.broken(header, nbytes)]


def _show(facts: dict[str, Any], unknown: str) -> None:
    width, height = facts["size"]
    title = "standard input" if facts["image"] == inputs.STDIN else facts["image"]
    about = f"{width} x {height} px, {facts['kind']}, {facts['bytes']:,} bytes"
    terminal.print_rows([(title, about + (", damaged" if facts["damaged"] else ""))], 0)
    if unknown:
        terminal.print_rows([("", f"{shorten(unknown)} isn't known: counted as one token for each "
                                  f"{OTHER_RULE} x {OTHER_RULE} px")], 0)  # fmt: skip
    rows = []
    for one in facts["rules"]:
        tokens = ("about " if one["approximate"] else "") + f"{one['tokens']:,}"
        seen = "{} x {}".format(*one["read_at"])
        price = "one price" if one["fixed"] else ""
        rows.append((
            one["rule"], tokens, f"{seen} scaled" if one["scaled"] else seen,
            ", ".join(filter(None, (price, one["knob"]))),
        ))  # fmt: skip
    terminal.print_table(("for", "tokens", "is read at", "beside its size"), rows)
    print()
    terminal.print_rows([(one["limits"], _verdict(one)) for one in facts["limits"]], 15)


def _verdict(facts: dict[str, Any]) -> str:
    many = facts["refused_among_more_than"]
    if facts["refused"]:
        return f"refused: {'; '.join(facts['refused'])}"
    return f"taken, but refused among more than {many} pictures" if many else "taken"
