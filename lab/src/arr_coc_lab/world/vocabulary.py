"""The vocabulary of the bundled world: words and colours that are drawn, and the wording of questions."""

from __future__ import annotations

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (222, 40, 38),
    "orange": (245, 140, 20),
    "yellow": (250, 222, 45),
    "green": (45, 160, 65),
    "cyan": (60, 200, 215),
    "blue": (35, 75, 205),
    "purple": (130, 50, 170),
    "pink": (250, 140, 185),
}

SHAPES: tuple[str, ...] = ("circle", "square", "triangle", "star", "cross", "ring", "diamond", "heart")

# Letters and digits that differ in every font: no O or I beside 0 and 1.
ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"

LABELS: tuple[str, ...] = (
    "invoice", "total", "date", "order", "room", "gate", "seat", "flight", "phone", "price", "weight",
    "batch", "serial", "account", "client", "vendor", "depot", "ticket", "track", "license", "region",
    "status", "tax", "zone", "lot", "cargo",
)  # fmt: skip

# Texts that a question names by their kind, not by a label printed beside them.
KINDS: tuple[str, ...] = ("title", "note", "gray", "small")

TITLE_FIRST: tuple[str, ...] = (
    "Harbor", "Garden", "Monthly", "Winter", "Silver", "Market", "Bridge", "Forest",
    "Museum", "Travel", "Annual", "Night", "River", "Solar", "Urban", "Coffee",
)  # fmt: skip
TITLE_SECOND: tuple[str, ...] = (
    "Report", "Plan", "Ledger", "Survey", "Budget", "Index", "Review", "Journal",
    "Schedule", "Memo", "Catalog", "Guide", "Audit", "Brief", "Record", "Forecast",
)  # fmt: skip

# Words of running text, which no question is about.
FILLER: tuple[str, ...] = (
    "about", "after", "along", "and", "because", "before", "below", "between", "carry", "early", "every",
    "from", "given", "hold", "into", "just", "known", "later", "many", "near", "never", "often", "other",
    "over", "people", "quite", "rather", "same", "since", "some", "still", "such", "than", "that", "their",
    "then", "these", "they", "through", "under", "until", "upon", "very", "were", "while", "with", "within",
    "would", "years", "your",
)  # fmt: skip

FAMILIES: tuple[str, ...] = (
    "value", "table", "title", "note", "gray", "small",
    "colour", "shape", "count", "larger", "left", "presence",
)  # fmt: skip

PARAPHRASES: dict[str, tuple[str, ...]] = {
    "value": (
        "What is the {label} number?",
        "What is the {label}?",
        "Read the {label} field.",
        "What does the {label} field say?",
        "Which value is given for {label}?",
        "Tell me the {label}, please.",
        "What is written next to {label}?",
        "Find the value of {label}.",
        "{Label}?",
        "Can you read the {label} for me?",
    ),
    "title": (
        "What is the title?",
        "Read the title.",
        "What is the title of this page?",
        "Which title does the page have?",
        "Tell me the title, please.",
    ),
    "note": (
        "What does the note say?",
        "Read the note.",
        "What is written on the note?",
        "Tell me what the note says.",
    ),
    "gray": (
        "What does the gray text say?",
        "Read the gray text.",
        "What is written in gray?",
        "Can you read the faint gray text?",
    ),
    "small": (
        "What does the small text say?",
        "Read the small print.",
        "What is written in small print?",
        "Can you read the small text?",
    ),
    "colour": (
        "What colour is the {shape}?",
        "What color is the {shape}?",
        "Which colour does the {shape} have?",
        "Tell me the colour of the {shape}.",
        "The {shape} is which color?",
    ),
    "shape": (
        "What shape is the {colour} one?",
        "Which shape is {colour}?",
        "What is the shape of the {colour} thing?",
        "Tell me the shape of the {colour} object.",
        "What {colour} shape is there?",
    ),
    "count": (
        "How many {what} are there?",
        "How many {what} can you see?",
        "Count the {what}.",
        "What is the number of {what}?",
        "Tell me how many {what} there are.",
    ),
    "larger": (
        "Which is larger, the {a} or the {b}?",
        "Which one is bigger, the {a} or the {b}?",
        "What is larger: the {a} or the {b}?",
        "Of the {a} and the {b}, which is larger?",
    ),
    "left": (
        "Which is further left, the {a} or the {b}?",
        "Which one is more to the left, the {a} or the {b}?",
        "What is further left: the {a} or the {b}?",
        "Of the {a} and the {b}, which is further left?",
    ),
    "presence": (
        "Is there {a}?",
        "Is there {a} in the image?",
        "Can you see {a}?",
        "Do you see {a} anywhere?",
        "Does the page show {a}?",
    ),
}
PARAPHRASES["table"] = PARAPHRASES["value"]


def with_article(name: str) -> str:
    """Return a name with its article: `a red circle`, `an orange circle`."""
    return ("an " if name[0] in "aeiou" else "a ") + name


def plural(shape: str) -> str:
    """Return the plural of a shape's name: `crosses` for `cross`, `circles` for `circle`."""
    return shape + ("es" if shape.endswith("s") else "s")
