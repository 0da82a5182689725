"""Curricula vitae: contact data, posts, education, skills with bars or dots, languages."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, labels, put, room
from arr_coc_lab.world.browser.drawing import icon
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

SKILLS = (
    "Python",
    "Excel",
    "SQL",
    "Photoshop",
    "Project management",
    "Negotiation",
    "Accounting",
    "Java",
    "First aid",
    "Driving licence",
    "Public speaking",
    "AutoCAD",
    "SAP",
    "Figma",
    "Teaching",
    "Cooking",
    "Welding",
)
LEVELS = ("native", "fluent", "good", "basic", "C1", "B2", "A2", "advanced", "beginner")
TONGUES = (
    "English",
    "German",
    "French",
    "Spanish",
    "Italian",
    "Polish",
    "Dutch",
    "Portuguese",
    "Swedish",
    "Turkish",
    "Arabic",
    "Japanese",
)
DEGREES = ("BSc", "MSc", "BA", "MA", "PhD", "Diploma", "Apprenticeship", "Abitur", "A levels", "MBA")
HEADS = {
    "work": ("Experience", "Work experience", "Employment", "Career"),
    "school": ("Education", "Studies", "Training"),
    "skills": ("Skills", "Strengths", "Competences"),
    "tongues": ("Languages", "Language skills"),
    "about": ("Profile", "About me", "Summary"),
    "contact": ("Contact", "Personal data"),
}
CONTACTS = {
    "email": ("Email", "E-mail", "Mail"),
    "phone": ("Phone", "Tel.", "Mobile"),
    "address": ("Address", "Home"),
    "date": ("Date of birth", "Born"),
}
ICON = {"email": "mail", "phone": "phone", "address": "pin", "date": "calendar"}


@page_type("curriculum_vitae")
def curriculum_vitae(sheet: Sheet) -> str:
    """Return a name, a profession, and sections in one or two columns."""
    height = room(sheet)[1]
    name = sheet.text(sheet.words.name(), "h1", 'style="margin-bottom:.1em"')
    job = sheet.text(sheet.words.job())
    sheet.ask(
        "value",
        put(
            sheet,
            ("What is the profession?", "Which job does this person have?", "What does {name} do?"),
            name=name.plain,
        ),
        job.plain,
        name,
        job,
    )
    sheet.ask(
        "value",
        put(sheet, ("Whose CV is this?", "What is the name of the person?", "Who is this?")),
        name.plain,
        name,
    )
    heads = {key: sheet.text(sheet.one(options), "h2") for key, options in HEADS.items()}
    about = sheet.text(sheet.words.paragraph(1, 3))
    sheet.ask(
        "section",
        sheet.phrase("section", label=heads["about"].plain),
        about.plain,
        heads["about"],
        about,
    )
    many = 2 if height < 40 * sheet.style.size else sheet.choose(2, 4)
    main = [
        f"{heads['about']}<p>{about}</p>",
        heads["work"] + _posts(sheet, many),
        heads["school"] + _schools(sheet, heads["school"]),
    ]
    side = [
        heads["contact"] + _contact(sheet),
        heads["skills"] + _skills(sheet),
        heads["tongues"] + _tongues(sheet),
    ]
    sheet.rng.shuffle(side)
    finish(
        sheet,
        None,
        put(
            sheet,
            (
                "What is the date of the wedding?",
                "Where is the marital status?",
                "What is the salary?",
                "Which hobbies are listed?",
                "Who are the references?",
            ),
        ),
    )
    top = f'{name}<p class="accent" style="font-size:1.15em">{job}</p>'
    if sheet.style.width < 640:
        return top + side[0] + "".join(main) + "".join(side[1:])
    order = (("".join(main), 2), ("".join(side), 1))
    cells = "".join(
        f'<div style="flex:{share};min-width:0" class="{"card" if share == 1 else ""}">{html}</div>'
        for html, share in (order if sheet.chance(0.5) else order[::-1])
    )
    return f'{top}<div style="display:flex;gap:2em">{cells}</div>'


def _contact(sheet: Sheet) -> str:
    """Lines of contact data with labels or icons."""
    rows, plain = [], sheet.chance(0.5)
    for sort in sheet.rng.sample(list(CONTACTS), sheet.choose(2, 4)):
        value = sheet.text(sheet.words.of(sort), "span", 'style="overflow-wrap:anywhere"')
        if plain:
            label = sheet.text(sheet.one(CONTACTS[sort]), "span", 'class="muted"')
            sheet.field(label, value, sort="date" if sort == "date" else "")
        else:
            label = sheet.block(
                icon(ICON[sort], sheet.style.size), "span", 'style="display:inline-block;line-height:1"'
            )
            words = {
                "email": "What is the e-mail address?",
                "phone": "What is the phone number?",
                "address": "Where does this person live?",
                "date": "When was this person born?",
            }
            sheet.ask("value", words[sort], value.plain, label, value)
        rows.append(f'<div style="margin:.3em 0">{label} {value}</div>')
    return "".join(rows)


def _posts(sheet: Sheet, count: int) -> str:
    """Posts from the newest to the oldest, with firm, years and what was done."""
    year, parts = sheet.choose(2019, 2026), []
    firms: list[str] = []
    while len(firms) < count:
        firm = sheet.words.company()
        if not any(firm in other or other in firm for other in firms):
            firms.append(firm)
    for i, firm_name in enumerate(firms):
        start = year - sheet.choose(1, 5)
        job, firm = sheet.text(sheet.words.job(), "b"), sheet.text(firm_name)
        years = sheet.text(f"{start} – {'today' if not i and sheet.chance(0.5) else year}")
        year = start
        tasks = [sheet.text(sheet.words.sentence(4, 10)) for _ in range(sheet.choose(0, 3))]
        for text, answer, value in (
            (
                put(
                    sheet,
                    (
                        "What was the position at {firm}?",
                        "As what did this person work at {firm}?",
                        "Which job is listed at {firm}?",
                    ),
                    firm=firm_name,
                ),
                job.plain,
                job,
            ),
            (
                put(
                    sheet,
                    (
                        "When was this person at {firm}?",
                        "From when to when is {firm} listed?",
                        "Which years belong to {firm}?",
                    ),
                    firm=firm_name,
                ),
                years.plain,
                years,
            ),
        ):
            sheet.ask("value", text, answer, firm, value)
        if tasks:
            sheet.ask(
                "section",
                put(
                    sheet,
                    ("What did this person do at {firm}?", "Which tasks are listed for {firm}?"),
                    firm=firm_name,
                ),
                tasks[0].plain,
                firm,
                *tasks,
            )
        if not i:
            sheet.ask(
                "implied",
                put(
                    sheet,
                    (
                        "What is the latest post?",
                        "Where did this person work last?",
                        "Who is the most recent employer?",
                    ),
                ),
                f"{job.plain}, {firm_name}",
                job,
                firm,
                years,
            )
        listed = (
            f'<ul style="margin:.2em 0">{"".join(f"<li>{task}</li>" for task in tasks)}</ul>' if tasks else ""
        )
        parts.append(
            f'<div style="margin-bottom:.8em"><div class="row">{job}<span class="muted" '
            f'style="white-space:nowrap">{years}</span></div><div>{firm}</div>{listed}</div>'
        )
    return "".join(parts)


def _schools(sheet: Sheet, head: Piece) -> str:
    """Degrees with their places and years."""
    parts = []
    for degree_name in sheet.rng.sample(DEGREES, sheet.choose(1, 3)):
        degree, subject = sheet.text(degree_name, "b"), sheet.text(sheet.words.title(1, 3))
        place, year = (
            sheet.text(f"University of {sheet.words.city()}"),
            sheet.text(str(sheet.choose(1985, 2015))),
        )
        sheet.ask(
            "value",
            put(
                sheet,
                ("Where was the {label} taken?", "Which university gave the {label}?"),
                label=degree_name,
            ),
            place.plain,
            degree,
            place,
        )
        sheet.ask(
            "value",
            put(
                sheet,
                ("In which year was the {label} taken?", "When was the {label} finished?"),
                label=degree_name,
            ),
            year.plain,
            degree,
            year,
        )
        sheet.ask(
            "value",
            put(sheet, ("In which subject is the {label}?", "What is the {label} in?"), label=degree_name),
            subject.plain,
            degree,
            subject,
        )
        parts.append(
            f'<div style="margin-bottom:.5em">{degree} {subject}<div class="muted">{place}, {year}</div>'
            f"</div>"
        )
    return "".join(parts)


def _skills(sheet: Sheet) -> str:
    """Skills with bars, dots or per cent."""
    way, rows = sheet.one(("bar", "dots", "percent")), []
    for name in labels(sheet, sheet.choose(3, 6), SKILLS, high=2, most=18, share=0.6):
        label, level = sheet.text(name), sheet.choose(1, 5)
        if way == "percent":
            mark, answer = sheet.text(f"{20 * level} %"), f"{20 * level} %"
        elif way == "dots":
            dots = "".join(
                f'<span style="display:inline-block;width:.7em;height:.7em;margin-left:.2em;'
                f'border-radius:50%;background:var(--{"accent" if i < level else "line"})"></span>'
                for i in range(5)
            )
            mark, answer = sheet.block(dots, "span", 'style="white-space:nowrap"'), f"{level} of 5"
        else:
            inner = (
                f'<span style="display:block;height:.55em;width:{20 * level}%;'
                f'background:var(--accent)"></span>'
            )
            mark, answer = (
                sheet.block(
                    inner,
                    "span",
                    'style="display:inline-block;width:5em;background:var(--line);align-self:center"',
                ),
                f"{level} of 5",
            )
        sheet.ask(
            "value",
            put(
                sheet,
                ("How good is {label}?", "What is the level of {label}?", "How is {label} rated?"),
                label=name,
            ),
            answer,
            label,
            mark,
        )
        rows.append(f'<div class="row" style="margin:.3em 0">{label}{mark}</div>')
    return "".join(rows)


def _tongues(sheet: Sheet) -> str:
    """Languages with their levels."""
    rows = []
    for name in sheet.rng.sample(TONGUES, sheet.choose(2, 4)):
        label, level = sheet.text(name), sheet.text(sheet.one(LEVELS))
        sheet.ask(
            "value",
            put(
                sheet,
                ("How well does this person speak {label}?", "What is the level of {label}?", "{label}?"),
                label=name,
            ),
            level.plain,
            label,
            level,
        )
        rows.append(f'<div class="row">{label}<span class="muted">{level}</span></div>')
    return "".join(rows)
