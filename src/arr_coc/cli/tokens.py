"""The command `arr-coc tokens`: what a picture costs at each provider, and who would refuse it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from arr_coc.cli import inputs, options, terminal
from arr_coc.files.paths import shorten


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

    Tokens are counted by the rules that providers have published. Each row also says the size at which the
    model reads the picture, and which settings change the count. Below it stands who accepts the picture.
    """
    from arr_coc.pixels.costs import picture_costs, rules_for

    is_known, rules = rules_for(model)
    pictures = []
    for name in files:  # refused before anything is printed
        title = "standard input" if name == inputs.STDIN else f"image {shorten(name)}"
        costs = picture_costs(inputs.read_file(name), title, rules)
        pictures.append({"image": name, "model_known": is_known} | costs)
    for number, facts in enumerate(pictures):
        if as_json:
            terminal.print_json(facts)
            continue
        if number:
            print()
        _show(facts, "" if is_known else str(model))


def _show(facts: dict[str, Any], unknown: str) -> None:
    width, height = facts["size"]
    title = "standard input" if facts["image"] == inputs.STDIN else facts["image"]
    about = f"{width} x {height} px, {facts['kind']}, {facts['bytes']:,} bytes"
    terminal.print_rows([(title, about + (", damaged" if facts["damaged"] else ""))], 0)
    if unknown:
        words = f"{shorten(unknown)} isn't known: counted as {facts['rules'][0]['models']}"
        terminal.print_rows([("", words)], 0)
    rows = []
    for one in facts["rules"]:
        tokens = ("about " if one["approximate"] else "") + f"{one['tokens']:,}"
        size = "{} x {}".format(*one["read_at"])
        causes = ", ".join(filter(None, ("" if one["fixed"] else "size", one["knob"])))
        rows.append((
            one["rule"], tokens, f"{size} scaled" if one["scaled"] else size,
            causes or "nothing",
        ))  # fmt: skip
    terminal.print_table(("counted as", "tokens", "is read at", "depends on"), rows)
    print()
    taken = [one["limits"] for one in facts["limits"] if _verdict(one) == ""]
    others = [(one["limits"], _verdict(one)) for one in facts["limits"] if _verdict(one)]
    terminal.print_rows([("accepted by", ", ".join(taken) or "none"), *others], 15)


def _verdict(facts: dict[str, Any]) -> str:
    """Return why a provider refuses the picture, at once or in a long chat; "" if it doesn't."""
    many = facts["refused_among_more_than"]
    if facts["refused"]:
        return f"refused: {'; '.join(facts['refused'])}"
    return f"accepted, but refused among more than {many} pictures" if many else ""
