"""Receipts: a narrow strip of a shop's name, items with prices, totals and payment."""

from __future__ import annotations

import html

from arr_coc_lab.world.browser.fields import Entry, Field, Labels, close, key_values
from arr_coc_lab.world.browser.parts import draw_look, fill, inquire, purse, room
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

FIELDS = (
    ("Receipt", "code"), ("Receipt no.", "code"), ("Date", "date"), ("Time", "time"), ("Cashier", "name"),
    ("Served by", "name"),
    ("Register", "number"), ("Table", "number"), ("Terminal ID", "code"), ("Transaction", "code"),
    ("Store", "code"), ("Order", "code"),
    ("Guests", "count"), ("Member", "code"), ("Points earned", "number"), ("Points balance", "number"),
    ("Auth code", "code"),
    ("Card", "code"), ("Check", "code"), ("Tel", "phone"), ("Manager", "name"), ("Branch", "place"),
    ("Return by", "date"), ("Tax ID", "code"),
    ("Till", "number"), ("Order type", "Take away|Eat in|Delivery|Pickup"),
    ("Payment type", "Cash|Card|Voucher|Contactless"), ("Chip", "Yes|No"),
)  # fmt: skip
GOODS = (
    "Espresso", "Cappuccino", "Croissant", "Bagel", "Orange juice", "Milk 1L", "Butter", "Bread", "Eggs 10",
    "Apples", "Bananas 1kg", "Cheddar",
    "Tomatoes", "Pasta", "Rice 500g", "Olive oil", "Chicken soup", "Caesar salad", "Margherita",
    "Mineral water", "House wine", "Ice cream",
    "Notebook A5", "Ballpoint pen", "Batteries AA", "Shampoo", "Soap", "Tissues", "Light bulb", "Bus pass",
    "Umbrella", "Socks", "T-shirt",
)  # fmt: skip
SHOP = (
    "Which shop is the receipt from?", "Where was this bought?", "Who sold this?", "What is the shop called?",
    "Which shop is named at the top?", "What is the name of the shop?", "In which store was this?",
)  # fmt: skip
THANKS = (
    "Thank you for your visit!",
    "Please come again",
    "Goods can be returned within 30 days",
    "Have a nice day",
    "Tell us how we did",
    "Prices include VAT",
)


@page_type("receipt")
def receipt(sheet: Sheet) -> str:
    """Return a strip in the middle or at a side; beside it, on wide pages, other text."""
    labels, money, words = Labels(sheet, FIELDS, 0.25), purse(sheet), sheet.words
    shop = sheet.text(
        words.company() if sheet.chance(0.6) else words.title(1, 3), "h1", 'style="text-align:center"'
    )
    sheet.ask("title", sheet.phrase("title"), shop.plain, shop)
    sheet.ask(
        "implied",
        sheet.one(SHOP),
        shop.plain,
        shop,
    )
    entries = labels.draw(sheet.choose(2, max(2, min(9, room(sheet, 0.3)))))
    fields = key_values(sheet, entries, look=draw_look(sheet, "spread", "colon", "dotted", "inline", "table"))
    names = {
        words.title(1, 2) if sheet.chance(0.4) else sheet.one(GOODS)
        for _ in range(sheet.choose(1, max(2, min(20, room(sheet, 0.45)))))
    }
    items, total = [], 0.0
    for name in sorted(names):
        price = round(10 ** sheet.rng.uniform(-0.2, 1.9), 2)
        total += price
        item = Field(sheet.text(name), sheet.text(money(price)), "price")
        inquire(sheet, item, kind="price")
        items.append(item)
    sheet.ask(
        "count",
        sheet.one(("How many items were bought?", "How many articles are on the receipt?")),
        str(len(items)),
        *(i.label for i in items),
    )
    rate = sheet.rng.choice((0.05, 0.07, 0.08, 0.19, 0.2))
    sums = [Entry(sheet.one(("Total", "TOTAL", "Amount", "To pay", "Balance")), "amount", money(total))]
    if sheet.chance(0.5):
        sums.insert(
            0, Entry(sheet.one(("Subtotal", "Sub-total", "Net")), "amount", money(total / (1 + rate)))
        )
    if sheet.chance(0.6):
        sums.insert(
            len(sums) - 1,
            Entry(
                sheet.one(("Tax", "VAT", "MwSt", "Sales tax", "incl. VAT")),
                "amount",
                money(total - total / (1 + rate)),
            ),
        )
    place = len(sums) - 1
    if sheet.chance(0.5):
        cash = total + sheet.choose(1, 40)
        sums += [
            Entry(sheet.one(("Cash", "Paid", "Tendered")), "amount", money(cash)),
            Entry(sheet.one(("Change", "Returned")), "amount", money(cash - total)),
        ]
    totals = key_values(sheet, sums, look=draw_look(sheet, "spread", "dotted", "spread"))
    main = totals.fields[place]
    sheet.ask(
        "implied",
        sheet.one(("How much was the bill?", "How much was spent?", "What did it cost in all?")),
        main.value.plain,
        main.label,
        main.value,
    )
    close(sheet, labels, (*fields.fields, *totals.fields), lone=False)
    line = (
        f'<div style="border-top:2px {sheet.one(("dashed", "solid", "dotted"))} '
        'var(--line);margin:.5em 0"></div>'
    )
    dense = sheet.one(("", ".25em 0", ".1em 0"))
    rows = "".join(f'<div class="row" style="padding:{dense}">{i.label}{i.value}</div>' for i in items)
    address = f"{html.escape(words.street())}<br>{html.escape(words.city())}" if sheet.chance(0.7) else ""
    parts = [f"{shop}<div style='text-align:center'>{address}</div>", fields.html, rows, totals.html]
    if sheet.chance(0.3):
        parts[1], parts[2], parts[3] = parts[2], parts[3], parts[1]
    strip = line.join(parts) + f"<p style='text-align:center'>{sheet.one(THANKS)}</p>"
    width = "100%" if sheet.style.narrow else f"{sheet.choose(18, 30)}em"
    side = sheet.one(("margin:0 auto", "margin:0"))
    mono = ";font-family:monospace" if sheet.chance(0.3) else ""
    strip = f'<div class="card" style="{side};flex:none;max-width:100%;width:{width}{mono}">{strip}</div>'
    if not sheet.style.narrow and sheet.chance(0.6):
        return f'<div style="display:flex;gap:2em">{strip}<div style="flex:1">{fill(sheet)}</div></div>'
    return strip
