"""Chats: bubbles of two or more people with names, times and days."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, put, room
from arr_coc_lab.world.browser.drawing import VIVID, icon, ink_on, shade
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

USUAL = (
    "Are you coming tonight?", "On my way!", "Can you send me the file?", "Sounds good, thanks.",
    "Running ten minutes late.",
    "Did you see the news?", "Happy birthday!", "Which platform does it leave from?",
    "I left the keys at reception.", "No worries.",
    "The meeting is moved to room 4.", "Let's talk tomorrow.", "Who has the tickets?",
    "Good morning everyone", "Call me when you land.",
)  # fmt: skip
SAID = (
    "What did {name} say at {time}?",
    "What did {name} write at {time}?",
    "What is {name}'s message of {time}?",
    "At {time}, what does {name} say?",
)
AT = ("Which message is from {time}?", "What was written at {time}?", "What does the message of {time} say?")
WHEN = ('When did {name} write "{text}"?', 'At what time was "{text}" sent?', 'When was "{text}" written?')
WHO = ('Who wrote "{text}"?', "Who asked or said: {text}", 'Who sent the message "{text}"?')
ABOUT = ("Who wrote about {word}?", "Who mentions {word}?", "Which message mentions {word}?")


@page_type("chat")
def chat(sheet: Sheet) -> str:
    """Return a bar with the partner's or the group's name, the bubbles, and a field to type in."""
    width, height = room(sheet)
    size = sheet.style.size
    group = sheet.chance(0.45)
    people = list(dict.fromkeys(sheet.words.first_name() for _ in range(sheet.choose(2, 4) if group else 1)))
    title = sheet.text(sheet.words.title(1, 3) if group else people[0], "b", 'style="font-size:1.1em"')
    status = sheet.text(
        sheet.one(("online", "typing…", f"last active {sheet.words.time()}", f"{len(people) + 1} members"))
    )
    count = max(3, min(14, int((height - 6 * size) / (size * 4.6))))
    measure = width if sheet.style.narrow else min(width, size * 50)
    clock, messages = sheet.choose(6 * 60, 20 * 60), []
    hue = sheet.one(("blue", "green", "purple", "turquoise", "grey", "pink"))
    mine, theirs = f"background:{shade(sheet.rng, hue)};color:{ink_on(hue)}", "background:var(--card)"
    for _ in range(count):
        clock += sheet.choose(1, 25)
        messages.append(_message(sheet, "" if sheet.chance(0.4) else sheet.one(people), clock, group))
    bubbles = _bubbles(sheet, messages, mine, theirs)
    _ask(sheet, messages, people)
    absent = sheet.words.first_name()
    while absent in people:
        absent = sheet.words.first_name()
    finish(
        sheet,
        title,
        put(
            sheet, ("What did {name} write?", "When did {name} answer?", "What does {name} say?"), name=absent
        ),
    )
    sheet.ask(
        "value",
        put(sheet, ("What stands below the name?", "What is the status at the top?")),
        status.plain,
        title,
        status,
    )
    face = (
        f'<span style="width:2.2em;height:2.2em;border-radius:50%;'
        f'background:{shade(sheet.rng, sheet.one(VIVID))}"></span>'
    )
    head = (
        f'<div style="display:flex;gap:.7em;align-items:center;border-bottom:1px solid var(--line);'
        f'padding-bottom:.5em">{face}<div>{title}<div class="muted" style="font-size:.8em">'
        f"{status}</div></div></div>"
    )
    day = (
        f'<div class="muted" style="text-align:center;font-size:.8em;margin:.6em">'
        f"{sheet.one(('Today', 'Yesterday', sheet.words.date()))}</div>"
    )
    field = (
        f'<div class="muted" style="border:1px solid var(--line);border-radius:1.5em;padding:.4em 1em;'
        f'margin-top:.7em">{sheet.one(("Message", "Write a message…", "Aa"))} <span '
        f'style="float:right">{icon("microphone", size)}</span></div>'
    )
    return f'<div style="max-width:{measure:.0f}px;margin:0 auto">{head}{day}{bubbles}{field}</div>'


class _Message:
    """A message: its sender ("" for the reader), its time and its pieces."""

    def __init__(self, who: str, time: str, name: Piece | None, text: Piece, clock: Piece) -> None:
        self.who, self.time, self.name, self.text, self.clock = who, time, name, text, clock


def _message(sheet: Sheet, who: str, clock: int, group: bool) -> _Message:
    """Return a message with its pieces; in a group every bubble of others has a name."""
    plain = sheet.one(USUAL) if sheet.chance(0.3) else sheet.words.sentence(2, 14)
    time = f"{clock // 60 % 24:02}:{clock % 60:02}"
    return _Message(
        who, time, sheet.text(who) if group and who else None, sheet.text(plain), sheet.text(time)
    )


def _bubbles(sheet: Sheet, messages: list[_Message], mine: str, theirs: str) -> str:
    """Return the bubbles as HTML, the reader's at the right."""
    radius, inside = sheet.choose(0, 20), sheet.chance(0.6)
    parts = []
    for message in messages:
        own = not message.who
        colour = mine if own else f"{theirs};border:1px solid var(--line)"
        name = (
            f'<div style="font-weight:bold;font-size:.85em;color:var(--accent)">{message.name}</div>'
            if message.name
            else ""
        )
        clock = f'<div style="font-size:.75em;opacity:.75;text-align:right">{message.clock}</div>'
        box = (
            f'<div style="{colour};border-radius:{radius}px;padding:.4em .8em">'
            f"{name}{message.text}{clock if inside else ''}</div>"
        )
        parts.append(
            f'<div style="max-width:78%;margin:.45em 0;align-self:flex-{"end" if own else "start"}">'
            f"{box}{'' if inside else clock}</div>"
        )
    return f'<div style="display:flex;flex-direction:column">{"".join(parts)}</div>'


def _ask(sheet: Sheet, messages: list[_Message], people: list[str]) -> None:
    """Ask for messages by sender and time, for senders and for words that occur once."""
    texts = [message.text.plain for message in messages]
    for message in messages:
        text = message.text.plain
        named = [message.name] if message.name else []
        if message.name:
            sheet.ask(
                "crossing",
                put(sheet, SAID, name=message.who, time=message.time),
                text,
                message.name,
                message.text,
                message.clock,
            )
        else:
            sheet.ask("value", put(sheet, AT, time=message.time), text, message.text, message.clock)
        if texts.count(text) > 1:
            continue
        if message.name or not message.who:
            sheet.ask("value", put(sheet, WHO, text=text), message.who or "the reader", *named, message.text)
        sheet.ask(
            "value",
            put(sheet, WHEN, name=message.who or "I", text=text),
            message.time,
            message.text,
            message.clock,
        )
        word = sheet.one(text.strip(".?!").replace(",", "").split())
        if (
            len(word) > 4
            and sum(word.lower() in other.lower() for other in (*texts, *people)) == 1
            and message.name
        ):
            sheet.ask("implied", put(sheet, ABOUT, word=word), message.who, *named, message.text)
    last = messages[-1]
    sheet.ask(
        "position",
        put(sheet, ("What is the last message?", "What was written last?")),
        last.text.plain,
        last.text,
    )
