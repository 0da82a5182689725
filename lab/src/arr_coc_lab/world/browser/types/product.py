"""Shop pages: one product in full, or a grid or list of products with prices."""

from __future__ import annotations

import html

from arr_coc_lab.world.browser.asking import code_mark
from arr_coc_lab.world.browser.fields import Field, Labels, close, columns_of, key_values
from arr_coc_lab.world.browser.parts import (
    across,
    button,
    card,
    compare,
    frame,
    heading,
    inquire,
    many,
    prose,
    purse,
    room,
)
from arr_coc_lab.world.browser.sheet import Piece, Sheet
from arr_coc_lab.world.browser.types import page_type

TITLES = (
    "Shop",
    "New arrivals",
    "Bestsellers",
    "Sale",
    "Products",
    "Search results",
    "Menu",
    "Today's specials",
    "Gift ideas",
    "Catalogue",
    "Your favourites",
    "Shoes",
    "Home & garden",
)
KINDS = (
    "jacket", "lamp", "chair", "backpack", "kettle", "headphones", "mug", "boots", "watch", "rug", "bicycle",
    "tent", "camera", "keyboard", "scarf", "desk", "blender", "pillow",
    "sunglasses", "umbrella", "soup", "pizza", "salad", "burger", "coffee", "tea", "cake", "sandwich",
    "speaker", "phone case", "monitor", "vase", "candle", "towel", "helmet", "toaster",
)  # fmt: skip
ADJECTIVES = (
    "blue",
    "red",
    "green",
    "wooden",
    "leather",
    "small",
    "large",
    "classic",
    "wool",
    "steel",
    "soft",
    "vintage",
    "black",
    "white",
    "organic",
    "wireless",
    "folding",
    "mini",
    "hot",
)
DETAILS = (
    ("Brand", "company"), ("Colour", "Blue|Red|Black|White|Sand|Olive"),
    ("Material", "Cotton|Wool|Steel|Oak|Leather|Nylon"), ("Weight", "measure"), ("Size", "XS|S|M|L|XL|42|38"),
    ("SKU", "code"), ("Model", "code"), ("Warranty", "1 year|2 years|5 years|None"), ("Delivery", "date"),
    ("In stock", "number"), ("Shipping", "price"), ("Seller", "company"),
    ("Made in", "country"), ("Rating", "4.1|4.5|3.8|4.9|2.7"), ("Reviews", "number"),
    ("Dimensions", "12 x 30 cm|40 x 60 x 20 cm|8 x 8 cm"), ("EAN", "phone"), ("Energy class", "A|B|C|D|E"),
    ("Condition", "New|Used|Refurbished"), ("Returns", "14 days|30 days|100 days"), ("Old price", "amount"),
    ("You save", "percent"), ("Availability", "In stock|Sold out|2-3 days"), ("Designer", "name"),
)  # fmt: skip
NOTES = (
    "In stock",
    "Only 2 left",
    "Free shipping",
    "Sold out",
    "New",
    "-20%",
    "Bestseller",
    "Ships tomorrow",
    "Vegan",
    "Limited",
    "Pre-order",
    "4.5 ★",
    "3.9 ★",
)


@page_type("product", weight=1.5)
def product(sheet: Sheet) -> str:
    """Return a product's page with related products, or many products."""
    return _single(sheet) if sheet.chance(0.4) else _several(sheet)


def _single(sheet: Sheet) -> str:
    """One product: picture, price, details, text, related products."""
    labels, money, name = Labels(sheet, DETAILS), purse(sheet), _name(sheet)
    title = heading(sheet, (name,), share=0.0)
    price = sheet.text(
        money(10 ** sheet.rng.uniform(0.5, 3)), attributes='style="font-size:1.6em;font-weight:600"'
    )
    inquire(sheet, Field(title, price, "price"), kind="price")
    sheet.ask(
        "implied",
        sheet.one(
            ("How much does it cost?", "What does this cost?", "What is the price?", "How expensive is it?")
        ),
        price.plain,
        title,
        price,
    )
    details = key_values(sheet, labels.draw(many(sheet, 2, min(14, room(sheet, 0.5)))))
    text = sheet.block(prose(sheet, 1, 4), "p")
    about = sheet.text(sheet.one(("Description", "About this item", "Details")), "h3")
    sheet.ask(
        "section",
        sheet.one(("What does the description say?", "How is the product described?")),
        "",
        about,
        text,
    )
    picture = _picture(sheet, sheet.choose(8, 16))
    sheet.ask(
        "shape",
        sheet.one(("Where is the picture of the product?", "What does the product look like?")),
        "the picture",
        picture,
    )
    close(sheet, labels, details.fields, lone=False)
    end = "".join(button(sheet, label) for label in ("Add to cart", "Wish list")[: sheet.choose(1, 2)])
    inner = [
        f"<div>{price}</div>",
        f"<div>{end}</div>",
        card(sheet, details.html, 0.4),
        f"<div>{about}{text}</div>",
    ]
    if sheet.chance(0.3):
        inner[2], inner[3] = inner[3], inner[2]
    if sheet.chance(0.35):
        inner.insert(sheet.choose(1, 4), f"<div>{code_mark(sheet)}</div>")
    split = sheet.style.width > 34 * sheet.style.size
    flow = "row" if sheet.chance(0.7) else "row-reverse"
    body = (
        f'{title}<div style="display:{"flex" if split else "block"};flex-direction:'
        f'{flow};gap:1.5em"><div style="flex:1">{picture}</div><div style="flex:2">'
        f"{''.join(inner)}</div></div>"
    )
    more = ""
    if sheet.chance(0.6):
        more = (
            f"<h2>{sheet.one(('You may also like', 'Related', 'Customers also bought'))}</h2>"
            f"{_grid(sheet, labels, across(sheet, 4, 10), name)}"
        )
    return frame(sheet, body + more, 0.3)


def _several(sheet: Sheet) -> str:
    """Return a grid or a list of products."""
    labels, title = Labels(sheet, DETAILS), heading(sheet, TITLES)
    grid = _grid(sheet, labels, 0, "")
    close(sheet, labels)
    bar = "".join(button(sheet, sheet.words.title(1, 1)) for _ in range(sheet.choose(0, 4)))
    return frame(sheet, f"{title}<div>{bar}</div>{grid}", 0.2)


def _grid(sheet: Sheet, labels: Labels, count: int, main: str) -> str:
    """Products with their prices, all asked for; `count` 0: as many as fit."""
    rng, money, pictured, rows = sheet.rng, purse(sheet), sheet.chance(0.7), sheet.chance(0.25)
    tall, em = rng.choice((2.5, 4, 6, 8)) if pictured else 0, rng.choice((7.5, 9, 11, 14))
    fits = room(sheet, 0.9, 2.5) if rows else across(sheet, 6, em + 1.5) * room(sheet, 0.9, 5 + tall * 0.7)
    names = list(
        dict.fromkeys(
            _name(sheet) if sheet.chance(0.65) else labels.open()
            for _ in range(count or many(sheet, 2, min(24, fits)))
        )
    )
    names = [name for name in names if name.lower() not in (main.lower(), *labels.used)] or [labels.open()]
    align, first = sheet.one(("left", "left", "center")), sheet.chance(0.15)
    tops, costs, prices, cells = [], [], [], []
    for name in names:
        price = round(10 ** rng.uniform(0.3, 3), 2)
        top, cost = sheet.text(name), sheet.text(money(price), attributes='style="font-weight:600"')
        inquire(sheet, Field(top, cost, "price"), kind="price")
        old = f' <s class="muted">{html.escape(money(price * 1.25))}</s>' if sheet.chance(0.15) else ""
        note = (
            f'<div class="muted" style="font-size:.85em">{sheet.one(NOTES)}</div>'
            if sheet.chance(0.4)
            else ""
        )
        lead = (
            f'<div class="muted" style="font-size:.85em">{sheet.words.words(3, 8)}</div>'
            if sheet.chance(0.25)
            else ""
        )
        lines = [f"<div>{top}</div>", f"<div>{cost}{old}</div>"]
        inner = "".join(lines[::-1] if first else lines)
        if rows:
            picture = f'<div style="flex:0 0 3em">{_picture(sheet, 3)}</div>' if pictured else ""
            cells.append(
                '<div style="display:flex;gap:1em;border-bottom:1px solid var(--line);'
                f'padding:.4em 0">{picture}<div style="flex:1">{top}{lead}{note}</div><div>'
                f"{cost}{old}</div></div>"
            )
        else:
            picture = _picture(sheet, tall) if pictured else ""
            cells.append(
                f'<div class="card" style="margin:0;min-width:0;text-align:{align}">'
                f"{picture}{inner}{lead}{note}</div>"
            )
        tops, costs, prices = [*tops, top], [*costs, cost], [*prices, price]
    if not main:
        most = sheet.chance(0.5)
        text = sheet.one(("Which is the {}?", "Which product is the {}?", "What is the {} item?")).format(
            "most expensive" if most else "cheapest"
        )
        compare(sheet, text, tops, costs, prices, most)
        sheet.ask(
            "count",
            sheet.one(("How many products are there?", "How many articles are on offer?")),
            str(len(tops)),
            *tops,
        )
    return "".join(cells) if rows else f'<div style="{columns_of(em)}gap:var(--gap)">{"".join(cells)}</div>'


def _name(sheet: Sheet) -> str:
    """Return a product's name: "Blue jacket", with words of the page's language at times."""
    first = sheet.one(ADJECTIVES) if sheet.chance(0.7) else sheet.words.word()
    text = f"{first} {sheet.one(KINDS)}"
    return text.title() if sheet.chance(0.4) else text.capitalize()


def _picture(sheet: Sheet, tall: float) -> Piece:
    """Return a picture: a simple shape in a coloured box."""
    shape = sheet.one(
        (
            "border-radius:50%",
            "border-radius:.6em",
            "clip-path:polygon(50% 0,100% 100%,0 100%)",
            "transform:rotate(45deg) scale(.7)",
        )
    )
    inner = (
        f'<div style="width:{tall * 0.6:.1f}em;height:{tall * 0.6:.1f}em;'
        f'background:hsl({sheet.choose(0, 359)} 55% 55%);{shape}"></div>'
    )
    look = (
        f'style="height:{tall}em;background:var(--line);border-radius:var(--radius);'
        'display:flex;align-items:center;justify-content:center;margin-bottom:.4em"'
    )
    return sheet.block(inner, attributes=look)
