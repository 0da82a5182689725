"""E-mails: subject, headers, a body with a few facts in it, attachments; at times a list of other mails."""

from __future__ import annotations

import html

from arr_coc_lab.world.browser.fields import Entry, Field, Labels, close, key_values
from arr_coc_lab.world.browser.parts import button, draw_look, frame, many, prose, room
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

SUBJECTS = (
    "Meeting on Thursday", "Your invoice", "Re: Budget", "Welcome", "Invitation", "Reminder",
    "Re: Question about the order", "Password changed", "Newsletter", "Your appointment",
    "Fwd: Travel plans", "Job offer", "Re: Draft of the contract", "Delivery failed", "Photos", "Holiday",
    "Minutes of the meeting", "Feedback wanted", "Server maintenance",
)  # fmt: skip
FACTS = (
    ("Meeting room", "code"), ("Date", "date"), ("Time", "time"), ("Order number", "code"),
    ("Amount due", "price"), ("Deadline", "date"), ("Address", "address"), ("Booking code", "code"),
    ("Dial-in", "phone"), ("Check-in", "time"), ("Agenda", "word"), ("Budget", "price"), ("Project", "word"),
    ("Venue", "place"), ("Guests", "count"), ("Access code", "code"), ("Budget code", "code"),
    ("Confirmation", "code"), ("Starts", "time"), ("Ends", "time"), ("Speaker", "name"),
    ("Invoice total", "price"), ("Ticket", "code"), ("Hotel", "company"), ("Version", "code"),
    ("Salary", "price"),
)  # fmt: skip
FILES = (
    "report.pdf",
    "invoice.pdf",
    "photo.jpg",
    "budget.xlsx",
    "slides.pptx",
    "contract.docx",
    "notes.txt",
    "map.png",
    "data.csv",
    "archive.zip",
)
HELLO, BYE = (
    ("Dear {},", "Hi {},", "Hello {}!", "Good morning {},", "{},"),
    ("Best regards", "Kind regards", "Cheers", "Thanks", "Yours sincerely", "See you soon", "All the best"),
)
WHO = {
    "From": ("Who sent this e-mail?", "Who wrote this?", "Who is it from?", "Who is the sender?"),
    "To": ("Who received it?", "Who is it addressed to?", "Who is the recipient?"),
    "Date": ("When was it sent?", "On which day was this written?", "When did the mail arrive?"),
    "Cc": ("Who got a copy?", "Who is in copy?"),
}  # fmt: skip


@page_type("email")
def email(sheet: Sheet) -> str:
    """One mail; on wide pages perhaps the inbox beside it."""
    words, labels = sheet.words, Labels(sheet, FACTS)
    subject = sheet.text(
        sheet.one(SUBJECTS) if sheet.chance(0.5) else words.title(2, 6), sheet.one(("h1", "h2"))
    )
    sheet.ask(
        "title",
        sheet.one(("What is the subject of the e-mail?", "What is the subject?", sheet.phrase("title"))),
        subject.plain,
        subject,
    )
    writer, reader = words.name(), words.name()
    entries = [
        Entry("From", "", f"{writer} <{words.email()}>" if sheet.chance(0.4) else writer),
        Entry("To", "", sheet.one((reader, words.email()))),
    ]
    if sheet.chance(0.4):
        entries.append(Entry("Cc", "", sheet.one((words.name(), words.email()))))
    entries.insert(
        sheet.choose(0, len(entries)),
        Entry("Date", "", f"{words.date()} {words.time()}" if sheet.chance(0.6) else words.date()),
    )
    labels.used |= {entry.label.lower() for entry in entries}
    headers = key_values(
        sheet, entries, look=draw_look(sheet, "flush", "colon", "colon", "spread", "table", "inline")
    )
    for field in headers.fields:
        name = field.label.plain.rstrip(" :")
        sheet.ask("implied", sheet.one(WHO[name]), field.value.plain, field.label, field.value)
    body, fields = _body(sheet, labels, reader, writer)
    files = (
        "".join(_file(sheet, name) for name in sheet.rng.sample(FILES, sheet.choose(1, 3)))
        if sheet.chance(0.45)
        else ""
    )
    close(sheet, labels, (*headers.fields, *fields), lone=False)
    ends = "".join(
        button(sheet, text)
        for text in sheet.rng.sample(
            ("Reply", "Forward", "Delete", "Archive", "Reply all", "Print"), sheet.choose(0, 4)
        )
    )
    mail = (
        f'{subject}<div style="border-bottom:1px solid var(--line);padding-bottom:.5em">'
        f"{headers.html}</div>{body}<div>{files}</div><div>{ends}</div>"
    )
    if sheet.style.width > 52 * sheet.style.size and sheet.chance(0.45):
        return (
            f'<div style="display:flex;gap:1.3em"><div style="flex:0 0 17em">{_inbox(sheet)}'
            f'</div><div style="flex:1;min-width:0">{mail}</div></div>'
        )
    return frame(sheet, mail, 0.1)


def _body(sheet: Sheet, labels: Labels, reader: str, writer: str) -> tuple[str, list[Field]]:
    """Greeting, paragraphs, facts in a list or in sentences, and a signature."""
    fields: list[Field] = []
    paragraphs = [f"<p>{prose(sheet, 1, 4)}</p>" for _ in range(many(sheet, 1, min(6, room(sheet, 0.12))))]
    facts = labels.draw(sheet.choose(1, max(1, min(6, room(sheet, 0.2)))))
    if sheet.chance(0.5):
        block = key_values(sheet, facts)
        fields += block.fields
        paragraphs.insert(sheet.choose(0, len(paragraphs)), f'<div style="margin:.6em 0">{block.html}</div>')
    else:
        for label, sort, value in facts:
            field = Field(sheet.text(label[:1].lower() + label[1:]), sheet.text(value), sort)
            sheet.field(field.label, field.value, sort=sort)
            fields.append(field)
            inner = sheet.one(
                (
                    "The {} is {}.",
                    "Please note the {}: {}.",
                    "Our {} will be {}.",
                    "As for the {}, it is {} now.",
                )
            ).format(field.label, field.value)
            paragraphs.insert(
                sheet.choose(0, len(paragraphs)),
                (
                    f"<p>{html.escape(sheet.words.sentence(3, 9))} {inner} "
                    f"{html.escape(sheet.words.sentence(3, 9))}</p>"
                ),
            )
    hello = html.escape(sheet.one(HELLO).format(reader.split()[0]))
    bye = sheet.text(sheet.one(BYE))
    name = sheet.text(writer)
    sheet.ask(
        "implied",
        sheet.one(("Who signed the mail?", "Whose signature is it?", "Which name stands at the end?")),
        writer,
        bye,
        name,
    )
    job = (
        f"<br>{html.escape(sheet.words.job())}, {html.escape(sheet.words.company())}"
        if sheet.chance(0.5)
        else ""
    )
    return (
        f'<p>{hello}</p>{"".join(paragraphs)}<p>{bye}<br>{name}<span class="muted">{job}</span></p>',
        fields,
    )


def _file(sheet: Sheet, name: str) -> Piece | str:
    """Return an attachment with its size."""
    title, size = (
        sheet.text(name),
        sheet.text(
            f"{sheet.rng.uniform(0.1, 900):.1f} {sheet.one(('KB', 'MB'))}", attributes='class="muted"'
        ),
    )
    sheet.ask(
        "value",
        sheet.one(("How big is {}?", "What is the size of {}?", "{}: how large?")).format(name),
        size.plain,
        title,
        size,
    )
    return (
        '<span style="display:inline-block;border:1px solid var(--line);'
        f'border-radius:var(--radius);padding:.3em .7em;margin:.2em .4em .2em 0">{title} '
        f"{size}</span>"
    )


def _inbox(sheet: Sheet) -> str:
    """Return a list of other mails: sender, subject, time."""
    rows, senders = [], set()
    for _ in range(max(2, room(sheet, 0.9, 3.6))):
        sender = sheet.words.name()
        if sender in senders:
            continue
        senders.add(sender)
        name, topic = (
            sheet.text(sender, attributes=f'style="font-weight:{sheet.one(("400", "700"))}"'),
            sheet.text(sheet.words.words(2, 5).capitalize()),
        )
        moment = sheet.text(sheet.words.time(), attributes='class="muted"')
        sheet.ask(
            "value",
            sheet.one(("What does {} write about?", "What is the subject of the mail from {}?")).format(
                sender
            ),
            topic.plain,
            name,
            topic,
        )
        sheet.ask(
            "value",
            sheet.one(("At what time did {} write?", "When did the mail from {} arrive?")).format(sender),
            moment.plain,
            name,
            moment,
        )
        rows.append(
            '<div style="border-bottom:1px solid var(--line);padding:.3em 0"><div '
            f'class="row">{name}{moment}</div><div style="font-size:.9em">{topic}</div></div>'
        )
    return "".join(rows)
