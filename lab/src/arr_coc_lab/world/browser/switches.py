"""Switches, checkboxes and radio buttons as HTML."""

from __future__ import annotations


def switch(manner: str, on: bool) -> str:
    """Return the HTML of a switch.

    Args:
        manner: pill, square, text, word, check or segmented.
        on: its state.
    """
    back, side = ("var(--accent)", "right") if on else ("var(--line)", "left")
    if manner in ("pill", "square"):
        radius = "1em" if manner == "pill" else ".15em"
        knob = (
            f'<span style="position:absolute;top:.15em;{side}:.15em;width:1em;height:1em;'
            f'border-radius:{radius};background:var(--paper)"></span>'
        )
        return (
            '<span style="display:block;position:relative;width:2.4em;height:1.3em;'
            f'border-radius:{radius};background:{back}">{knob}</span>'
        )
    if manner == "text":
        return (
            f'<span style="background:{back};color:{"var(--paper)" if on else "var(--ink)"};'
            f'padding:.1em .6em;border-radius:.3em">{"ON" if on else "OFF"}</span>'
        )
    if manner == "word":
        return "Enabled" if on else "Disabled"
    if manner == "check":
        return (
            '<span style="display:block;width:1.3em;line-height:1.25em;text-align:center;'
            f'border:1px solid var(--ink)">{"✓" if on else "&nbsp;"}</span>'
        )
    look = "background:var(--accent);color:var(--paper);"
    return "".join(
        f'<span style="{look if lit else ""}border:1px solid var(--line);padding:.1em .5em">{word}</span>'
        for word, lit in (("Off", not on), ("On", on))
    )


def radio(on: bool) -> str:
    """Return the HTML of a radio button, chosen or free."""
    dot = "background:var(--accent);" if on else ""
    return (
        '<span style="display:block;width:1.2em;height:1.2em;border-radius:50%;padding:.22em;'
        'border:1px solid var(--ink)">'
        f'<span style="display:block;height:100%;border-radius:50%;{dot}"></span></span>'
    )
