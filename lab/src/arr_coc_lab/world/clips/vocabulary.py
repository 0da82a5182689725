"""The words of drawn clips: colours, captions, slides, and the wording of questions.

What stands under HELD_OUT is drawn in the test split alone.
"""

from __future__ import annotations

from arr_coc_lab.world.vocabulary import COLOURS

TRAIN_COLOURS: dict[str, tuple[int, int, int]] = dict(COLOURS)
HELD_OUT_COLOURS: dict[str, tuple[int, int, int]] = {"brown": (120, 70, 25), "black": (15, 15, 15)}

CAPTION_WHO: tuple[str, ...] = (
    "The train", "Our guest", "The baker", "A small boat", "The teacher", "My sister",
    "The museum", "The pilot",
)  # fmt: skip
CAPTION_WHAT: tuple[str, ...] = (
    "arrives at nine", "waits outside", "needs more paper", "opens the gate", "sings at noon",
    "finds the map", "closes early", "goes home",
)  # fmt: skip
HELD_OUT_WHO: tuple[str, ...] = ("The captain", "A neighbour", "The library", "Our driver")
HELD_OUT_WHAT: tuple[str, ...] = ("buys two melons", "paints a door", "leaves on Friday", "mends the clock")

SLIDE_FIRST: tuple[str, ...] = (
    "Harbor", "Garden", "Winter", "Silver", "Market", "Bridge", "Forest", "Museum", "River", "Solar",
)  # fmt: skip
SLIDE_SECOND: tuple[str, ...] = (
    "Report", "Plan", "Survey", "Budget", "Review", "Journal", "Memo", "Guide", "Audit", "Forecast",
)  # fmt: skip
HELD_OUT_FIRST: tuple[str, ...] = ("Copper", "Island", "Autumn", "Desert", "Signal")
HELD_OUT_SECOND: tuple[str, ...] = ("Outline", "Digest", "Roster", "Tally", "Primer")

ORDINALS: tuple[str, ...] = ("first", "second", "third", "fourth", "fifth", "sixth")

PARAPHRASES: dict[str, tuple[str, ...]] = {
    "appear": (
        "When does the {name} appear? Answer in seconds.",
        "At which second does the {name} appear?",
        "After how many seconds does the {name} come into the picture?",
    ),
    "vanish": (
        "When does the {name} disappear? Answer in seconds.",
        "At which second does the {name} disappear?",
        "After how many seconds is the {name} gone?",
    ),
    "what": (
        "What appears at {time} seconds?",
        "Which shape appears at {time} seconds?",
        "What comes into the picture at {time} seconds?",
    ),
    "count": (
        "How many {what} are there in the clip?",
        "How many {what} does the clip show?",
        "Count the {what} in the clip.",
    ),
    "count at": (
        "How many shapes can be seen at {time} seconds?",
        "How many shapes are in the picture at {time} seconds?",
    ),
    "order": (
        "Which appears first, the {a} or the {b}?",
        "What comes first: the {a} or the {b}?",
        "Of the {a} and the {b}, which one appears first?",
    ),
    "view order": (
        "Which field comes into view first, {a} or {b}?",
        "Which one scrolls into view first: {a} or {b}?",
    ),
    "colour first": (
        "What colour is the {shape} at first?",
        "Which color does the {shape} have in the beginning?",
    ),
    "colour last": (
        "What colour is the {shape} in the end?",
        "Which color does the {shape} have last?",
    ),
    "colour after": (
        "What colour does the {shape} turn after {colour}?",
        "The {shape} is {colour}; which color comes next?",
    ),
    "turn": (
        "When does the {shape} turn {colour}? Answer in seconds.",
        "At which second does the {shape} become {colour}?",
    ),
    "colours": (
        "How many different colours does the {shape} have?",
        "How many colors does the {shape} go through?",
    ),
    "direction": (
        "In which direction does the {name} move?",
        "Which way does the {name} go: left, right, up or down?",
    ),
    "flash": (
        "What flashes up for a moment?",
        "Which shape is visible for one moment only?",
        "What can be seen only for an instant?",
    ),
    "flashes": (
        "How many times does the {name} flash up?",
        "How often does the {name} flash?",
    ),
    "counter at": (
        "What does the counter show at {time} seconds?",
        "Which number is on the counter at {time} seconds?",
    ),
    "counter first": ("What number does the counter start with?", "What is the first number of the counter?"),
    "counter last": ("What number does the counter end with?", "What is the last number of the counter?"),
    "counter when": (
        "What does the counter show when the {name} appears?",
        "Which number is on the counter as the {name} appears?",
    ),
    "clock at": ("What time does the clock show at {time} seconds?", "Read the clock at {time} seconds."),
    "clock first": ("What time does the clock show at the start?", "Which time is on the clock first?"),
    "clock last": ("What time does the clock show at the end?", "Which time is on the clock last?"),
    "clock when": (
        "What time does the clock show when the {name} appears?",
        "What time is it on the clock as the {name} appears?",
    ),
    "caption at": (
        "What does the caption say at {time} seconds?",
        "Read the caption at {time} seconds.",
    ),
    "caption first": ("What does the first caption say?", "Read the first caption."),
    "caption last": ("What does the last caption say?", "Read the last caption."),
    "caption after": (
        'Which caption comes after "{text}"?',
        'What does the caption after "{text}" say?',
    ),
    "caption while": (
        "What does the caption say while {event}?",
        "What is the caption while {event}?",
    ),
    "slide title": (
        "What is the title of the {ordinal} slide?",
        "Read the title of the {ordinal} slide.",
    ),
    "slide value": (
        "What is the {label} number on the slide {title}?",
        "On the slide {title}, what is the {label}?",
    ),
    "slide value at": (
        "What is written next to {label} on the {ordinal} slide?",
        "What is the {label} on the {ordinal} slide?",
    ),
    "slide when": (
        "When does the slide {title} come up? Answer in seconds.",
        "At which second does the slide {title} begin?",
    ),
    "slides": ("How many slides are there?", "How many different slides does the clip show?"),
}
