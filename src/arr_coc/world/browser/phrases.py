"""How questions are put: templates by kind, and paraphrases of labels by a lexicon.

phrase(rng, "value", label="Invoice number")     "What is the invoice number?"
paraphrases(rng, "Vendor")                       ["Who is the seller?"], no word of the label in it
"""

from __future__ import annotations

import random

KINDS: tuple[str, ...] = (
    "value", "crossing", "price", "switch", "card", "implied", "title", "section", "chart", "colour", "shape",
    "count", "presence", "comparison", "position", "paraphrase", "global", "anomaly", "yes-no",
    "unanswerable", "word", "term",
)  # fmt: skip
"""Kinds of questions."""

TEMPLATES: dict[str, tuple[str, ...]] = {
    "value": (
        "What is the {label}?",
        "What's the {label}?",
        "{Label}?",
        "Which {label} is given?",
        "Tell me the {label}.",
        "Find the {label}.",
        "What does it say for {label}?",
        "Read the {label}.",
        "what is {label}",
        "Can you read the {label} here?",
        "Give the value of {label}.",
        "What is written next to {label}?",
        "Please extract the {label}.",
        "{label}",
    ),
    "crossing": (
        "What is the {column} of {row}?",
        "What is the {column} for {row}?",
        "{column} of {row}?",
        "What {column} does {row} have?",
        "In the row {row}, what is the {column}?",
        "Look up {column} for {row}.",
        "Which value stands in column {column} and row {row}?",
        "For {row}, what is {column}?",
    ),
    "within": (
        "What is the {label} of {within}?",
        "What is the {label} in {within}?",
        "{within}: what is the {label}?",
        "In the section {within}, what is the {label}?",
        "What {label} does {within} have?",
    ),
    "price": (
        "How much is {label}?",
        "How much does {label} cost?",
        "What does {label} cost?",
        "What is the price of {label}?",
        "Price of {label}?",
    ),
    "date": ("When is the {label}?", "On what date is the {label}?", "What date is given for {label}?"),
    "time": ("At what time is the {label}?", "When is the {label}?", "What time is given for {label}?"),
    "name": ("Who is the {label}?", "What is the name of the {label}?", "Who is named as {label}?"),
    "place": ("Where is the {label}?", "Which place is given as {label}?"),
    "count": ("How many {label} are there?", "How many {label}?", "What is the number of {label}?"),
    "switch": (
        "Is {label} on or off?",
        "Is {label} enabled?",
        "Is {label} switched on?",
        "What is the state of {label}?",
    ),
    "word": (
        "Where does it say {label}?",
        "Where is the word {label}?",
        "Find {label}.",
        "Where does {label} stand?",
        'Locate "{label}".',
        "Where can I read {label}?",
    ),
    "title": (
        "What is the title of this page?",
        "What is the title?",
        "What is the main heading?",
        "What is this page called?",
        "Read the headline.",
    ),
    "section": (
        "What does the section {label} say?",
        "What is written under {label}?",
        'Summarise the section "{label}".',
        "Read the paragraph under {label}.",
        "What comes under the heading {label}?",
        "What is {label} about?",
    ),
    "term": (
        "What does {label} mean?",
        "What is {label}?",
        "How is {label} defined?",
        "Explain {label}.",
        "What is the definition of {label}?",
        "What does {label} do?",
    ),
    "global": (
        "Describe the image.",
        "Describe this page.",
        "Summarise this page.",
        "What is shown here?",
        "What is this?",
        "What is this page about?",
        "Give me an overview.",
    ),
    "anomaly": (
        "What is unusual here?",
        "Is anything odd in this picture?",
        "What stands out?",
        "What is different from the rest?",
        "Find the odd one out.",
        "What looks wrong here?",
    ),
}
"""Templates by kind, or by the sort of the value; {Label} is the label as a sentence begins."""


def phrase(rng: random.Random, kind: str, sort: str = "", **parts: str) -> str:
    """A question of a kind in one of its wordings.

    Args:
        rng: chooses the wording.
        kind: a key of TEMPLATES.
        sort: of the value asked for; where templates know it, one in three questions names it alone.
        parts: what is filled in: label, within, row, column. Labels lose their capital inside a sentence
            three times of four.
    """
    if parts.get("within"):
        kind = "within"
    elif sort in TEMPLATES and rng.random() < 0.34:
        kind = sort
    low = rng.random() < 0.75
    filled = {name: _lowered(text) if low and name != "within" else text for name, text in parts.items()}
    label = filled.get("label", "")
    return rng.choice(TEMPLATES[kind]).format(**filled, Label=label[:1].upper() + label[1:])


def _lowered(text: str) -> str:
    """A text without the capital of its first letter, unless it is all capitals or has digits."""
    plain = text[1:2].islower() and not any(c.isdigit() for c in text)
    return text[:1].lower() + text[1:] if plain else text


def paraphrases(rng: random.Random, label: str, within: str = "") -> list[str]:
    """Questions that mean a label without a word of it; none where the lexicon doesn't know it.

    Args:
        rng: chooses the wording.
        label: as printed.
        within: the card or section that it belongs to, if any.
    """
    return []
