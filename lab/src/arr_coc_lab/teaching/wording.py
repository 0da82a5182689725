"""How people put a question: other wordings, what they say around it, small letters, slips of the keyboard.

    as_typed("What is the total?", rng)   "According to this page, tell me the totl."

What is asked for stays the same, so the evidence does too.
"""

from __future__ import annotations

import random
import re
from string import ascii_lowercase

WHAT_IS = re.compile(r"what(?: is|'s|s) (the [^?.]+)\??", re.IGNORECASE)
"""A question of which all but its middle may be put in another way."""
ORDERS = (
    "Tell me {}.", "Give me {}.", "Find {}.", "Read {}.", "Read off {}, please.", "I need {}.",
    "Look up {}.", "Could you tell me {}?", "Can you find {}?", "Do you see {}?", "Please state {}.",
    "Extract {}.", "What would {} be?", "Which is {}?", "I want to know {}.", "Name {}.", "{}?", "{}",
    "And {}?", "What about {}?", "Where can I find {}?", "Where is {} given?", "Show me {}.", "Locate {}.",
    "Return {}.",
)  # fmt: skip
BEFORE = (
    "According to this page, ", "According to the document, ", "According to the screenshot, ",
    "Based on the image, ", "Based on what is shown, ", "From the picture: ", "Going by this document, ",
    "Hey, ", "Hi! ", "In the image, ", "In this picture, ", "In this screenshot, ", "Look at the image. ",
    "Look at the page and answer: ", "On this page, ", "On the screen, ", "Please answer: ",
    "Please tell me: ", "Q: ", "Question: ", "Quick question: ", "Read the document and answer. ", "So, ",
    "Using the image, ", "You are given a screenshot. ",
)  # fmt: skip
AFTER = (
    " Answer briefly.", " Answer in one word.", " Answer the question using a single word or phrase.",
    " Answer with a number or a name.", " Be brief.", " Be precise.", " Do not explain.",
    " Give a short answer.", " Give only the value.", " Give the exact text.", " I can't find it.",
    " I need it quickly.", " Just the answer.", " No explanation, please.", " Please.", " Quote it.",
    " Reply with the answer only.", " Thanks!", " Thank you.", " Write only the answer.",
)  # fmt: skip

SHORT = 4
"""Letters of a word in which nobody slips."""


def as_typed(text: str, rng: random.Random) -> str:
    """A question as somebody may put it: two in five as it is.

    Args:
        text: the question.
        rng: source of every choice.
    """
    if rng.random() < 0.25:
        text = reworded(text, rng)
    roll = rng.random()
    if roll < 0.15:
        before = rng.choice(BEFORE)
        text = before + (text if before[-2] in ".!:" else text[:1].lower() + text[1:])
    elif roll < 0.3:
        text = text + rng.choice(AFTER)
    roll = rng.random()
    if roll < 0.12:
        return text.lower() if roll < 0.09 else text.upper()
    return misspelt(text, rng) if roll > 0.9 else text


def reworded(text: str, rng: random.Random) -> str:
    """A question like "What is the X?" put in another way; all others stay as they are."""
    match = WHAT_IS.fullmatch(text.strip())
    if match is None:
        return text
    other = rng.choice(ORDERS).format(match[1])
    return other[:1].upper() + other[1:]


def misspelt(text: str, rng: random.Random) -> str:
    """A question with a wrong or a lacking letter in most of its long words."""
    words = text.split()
    for i, word in enumerate(words):
        if len(word) > SHORT and rng.random() < 0.7:
            words[i] = slip(word, rng)
    return " ".join(words)


def slip(word: str, rng: random.Random) -> str:
    """A word of three letters or more with one of its inner letters wrong or lacking."""
    at = rng.randrange(1, len(word) - 1)
    letter = rng.choice(ascii_lowercase)
    return rng.choice((word[:at] + letter + word[at + 1 :], word[:at] + word[at + 1 :]))
