"""Menus of restaurants and cafés: sections of dishes with descriptions and prices."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import finish, labels, present, put, room
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

SECTIONS = (
    "Starters", "Soups", "Salads", "Mains", "Pasta", "Pizza", "Fish", "Grill", "Desserts", "Drinks",
    "Wines", "Coffee",
    "Breakfast", "Sides", "Kids", "Today's specials", "Antipasti", "Vorspeisen", "Entrées", "Cocktails",
)  # fmt: skip
DISHES = (
    "Tomato soup", "Onion soup", "Caesar salad", "Greek salad", "Bruschetta", "Margherita",
    "Quattro formaggi", "Carbonara", "Lasagne",
    "Gnocchi", "Risotto", "Grilled salmon", "Fish and chips", "Ribeye steak", "Schnitzel", "Burger",
    "Falafel", "Ramen", "Pad thai",
    "Tikka masala", "Paella", "Ratatouille", "Tiramisu", "Panna cotta", "Apple pie", "Cheesecake",
    "Espresso", "Cappuccino", "Flat white",
    "Green tea", "Lemonade", "Orange juice", "House red", "Sparkling water", "Pancakes", "Omelette",
    "French fries", "Garlic bread",
)  # fmt: skip
STUFF = (
    "basil", "parmesan", "garlic", "olive oil", "lemon", "butter", "rocket", "walnuts", "cream",
    "mushrooms", "thyme", "capers", "chilli",
    "ginger", "honey", "mozzarella", "rice", "seasonal vegetables", "sourdough", "spinach", "bacon",
    "pine nuts", "mint", "saffron",
)  # fmt: skip
WITH = (
    "What comes with {label}?",
    "What is in {label}?",
    "What is the description of {label}?",
    "What are the ingredients of {label}?",
)


@page_type("menu")
def menu(sheet: Sheet) -> str:
    """Return the house's name and its sections in one to three columns."""
    height = room(sheet)[1]
    size = sheet.style.size
    columns = 1 if sheet.style.width < 640 else sheet.choose(1, 3 if sheet.style.width > 1000 else 2)
    *names, missing = labels(sheet, 30, DISHES, high=3, most=26, share=0.6)
    heads = labels(sheet, 8, SECTIONS, high=2, most=20, share=0.8)
    heads = [head for head in heads if not any(head.lower() in name.lower() for name in names)]
    title = sheet.text(
        sheet.one((sheet.words.title(1, 3), "Menu", f"Café {sheet.words.title(1, 1)}")),
        "h1",
        f'style="text-align:{sheet.one(("left", "center"))}"',
    )
    form = sheet.one(("{:.2f}", "{:.2f} €", "€{:.2f}", "${:.2f}", "£{:.2f}", "{:.1f}", "{:.0f}"))
    described, dots = sheet.chance(0.7), sheet.chance(0.5)
    parts, used, room_for = [], 0.0, columns * (height - 5 * size) / size
    while names and heads and used < room_for:
        head = sheet.text(heads.pop(), "h2", 'class="accent"')
        dishes = []
        for _ in range(min(len(names), sheet.choose(2, 6))):
            dishes.append(_dish(sheet, names.pop(), form, described, dots))
            used += 3.6 if described else 2.1
        _section(sheet, head, [dish[0] for dish in dishes], [dish[1] for dish in dishes])
        parts.append(
            f'<div style="break-inside:avoid-column">{head}{"".join(dish[2] for dish in dishes)}</div>'
        )
        used += 3.5
    finish(sheet, title, missing, "price")
    lines = f'<div style="columns:{columns};column-gap:2.5em">{"".join(parts)}</div>'
    foot = sheet.text(
        sheet.one(
            (
                f"Open {sheet.words.time()} – {sheet.words.time()}",
                "All prices include VAT",
                sheet.words.phone(),
            )
        )
    )
    sheet.ask(
        "value",
        put(sheet, ("What is written at the bottom?", "What does the last line say?")),
        foot.plain,
        foot,
    )
    return f'{title}{lines}<p class="muted" style="font-size:.85em;text-align:center">{foot}</p>'


def _dish(sheet: Sheet, name: str, form: str, described: bool, dots: bool) -> tuple[Piece, Piece, str]:
    """Return a dish, its price and its line; asks for the price and for what is in it."""
    dish, price = (
        sheet.text(name),
        sheet.text(
            form.format(
                sheet.rng.choice(
                    (sheet.rng.uniform(2, 40), sheet.choose(5, 60) / 2, sheet.choose(3, 60) - 0.1)
                )
            )
        ),
    )
    sheet.ask("price", sheet.phrase("price", label=name), price.plain, dish, price)
    text = ""
    if described and sheet.chance(0.85):
        stuff = (
            sheet.rng.sample(STUFF, sheet.choose(2, 4))
            if sheet.chance(0.6)
            else [sheet.words.word() for _ in range(sheet.choose(2, 5))]
        )
        line = sheet.text(", ".join(stuff))
        sheet.ask("section", put(sheet, WITH, label=name), line.plain, dish, line)
        text = f'<div class="muted" style="font-size:.88em">{line}</div>'
    rule = (
        f'<span style="flex:1;border-bottom:{"1px dotted var(--muted)" if dots else "0"};margin:0 .5em '
        f'.3em"></span>'
    )
    return (
        dish,
        price,
        f'<div style="break-inside:avoid;margin:.45em 0"><div style="display:flex">{dish}{rule}<b '
        f'style="white-space:nowrap">{price}</b></div>{text}</div>',
    )


def _section(sheet: Sheet, head: Piece, dishes: list[Piece], prices: list[Piece]) -> None:
    """Ask for what a section has, its dearest and cheapest dish, and pairs."""
    names, costs = (
        [dish.plain for dish in dishes],
        [float("".join(c for c in price.plain if c in "0123456789.")) for price in prices],
    )
    both = [piece for pair in zip(dishes, prices, strict=True) for piece in pair]
    text = put(
        sheet,
        (
            "What is there under {head}?",
            "Which dishes are listed under {head}?",
            "What do they have in {head}?",
        ),
        head=head.plain,
    )
    sheet.ask("section", text, ", ".join(names), head, *dishes)
    sheet.ask(
        "count",
        put(
            sheet,
            ("How many entries does {head} have?", "How many dishes are under {head}?"),
            head=head.plain,
        ),
        str(len(names)),
        head,
        *dishes,
    )
    for pick, words in ((max, ("most expensive", "dearest")), (min, ("cheapest", "least expensive"))):
        best = pick(costs)
        if costs.count(best) == 1 and len(costs) <= 4:
            text = put(
                sheet,
                ("What is the {way} of {head}?", "Which is the {way} under {head}?"),
                way=sheet.one(words),
                head=head.plain,
            )
            sheet.ask("comparison", text, names[costs.index(best)], head, *both)
    if sheet.chance(0.4):
        present(sheet, sheet.rng.choice(dishes))
    if len(set(costs)) > 1:
        a, b = sheet.rng.sample(range(len(names)), 2)
        if costs[a] != costs[b]:
            text = put(
                sheet,
                ("Which costs more, {a} or {b}?", "Is {a} dearer than {b}?", "{a} or {b}: what is cheaper?"),
                a=names[a],
                b=names[b],
            )
            cheap = text.endswith("cheaper?")
            more = (a if costs[a] > costs[b] else b) if not cheap else (a if costs[a] < costs[b] else b)
            answer = ("yes" if costs[a] > costs[b] else "no") if "dearer" in text else names[more]
            sheet.ask("comparison", text, answer, dishes[a], prices[a], dishes[b], prices[b])
