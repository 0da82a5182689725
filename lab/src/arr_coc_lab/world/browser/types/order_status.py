"""Order pages: the steps of a delivery, the order's fields, addresses and items."""

from __future__ import annotations

from arr_coc_lab.world.browser.asking import code_mark
from arr_coc_lab.world.browser.fields import Field, Labels, close, key_values
from arr_coc_lab.world.browser.parts import button, card, frame, heading, inquire, many, purse, room, table
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

TITLES = (
    "Your order",
    "Order status",
    "Track your parcel",
    "Delivery",
    "Order confirmation",
    "Shipment details",
    "Thank you for your order",
    "Repair status",
    "Return",
)
FIELDS = (
    ("Order number", "code"), ("Order date", "date"), ("Tracking number", "code"),
    ("Carrier", "DHL|UPS|FedEx|Royal Mail|GLS"), ("Estimated delivery", "date"),
    ("Payment", "Visa|PayPal|Invoice|Cash"),
    ("Recipient", "name"), ("Weight", "measure"), ("Parcels", "count"),
    ("Shipping method", "Standard|Express|Overnight"), ("Delivery window", "time"),
    ("Pickup point", "address"),
    ("Driver", "name"), ("Phone", "phone"), ("E-mail", "email"), ("Customer", "name"),
    ("Shipping cost", "amount"), ("Service level", "Basic|Plus|Premium"), ("Depot", "place"),
    ("Safe place", "Porch|Garage|Neighbour"), ("Signature", "Required|Not required"), ("Sender", "company"),
    ("Invoice", "code"), ("Return until", "date"), ("Case", "code"), ("Technician", "name"),
)  # fmt: skip
STEPS = (
    "Ordered",
    "Paid",
    "Packed",
    "Shipped",
    "In transit",
    "Customs",
    "At the depot",
    "Out for delivery",
    "Delivered",
    "Received",
    "Checked",
    "Repaired",
    "Approved",
    "Ready for pickup",
)


@page_type("order_status")
def order_status(sheet: Sheet) -> str:
    """Parts in one or two columns and any order."""
    labels, title = Labels(sheet, FIELDS), heading(sheet, TITLES)
    fields = key_values(sheet, labels.draw(many(sheet, 3, min(14, room(sheet, 0.4)))))
    parts = [_steps(sheet), card(sheet, fields.html)]
    parts += [part(sheet) for part in (_items, _addresses) if sheet.chance(0.7)]
    if sheet.chance(0.4):
        parts.append(card(sheet, code_mark(sheet)))
    if sheet.chance(0.5):
        sheet.rng.shuffle(parts)
    close(sheet, labels, fields.fields, lone=False)
    ends = "".join(
        button(sheet, text)
        for text in sheet.rng.sample(
            ("Track", "Cancel order", "Return items", "Get help", "Invoice"), sheet.choose(0, 3)
        )
    )
    columns = 2 if sheet.style.width > 50 * sheet.style.size and sheet.chance(0.4) else 1
    body = "".join(f'<div style="break-inside:avoid">{part}</div>' for part in parts)
    return frame(sheet, f'{title}<div style="columns:{columns};column-gap:1.5em">{body}</div>{ends}', 0.4)


def _steps(sheet: Sheet) -> str:
    """Steps with dates, the last that is done marked; at times beside one another."""
    count = sheet.choose(3, 6)
    names = (
        sorted(sheet.rng.sample(STEPS, count), key=STEPS.index)
        if sheet.chance(0.7)
        else list(dict.fromkeys(sheet.words.title(1, 2) for _ in range(count)))
    )
    now, beside, cells = (
        sheet.choose(0, len(names) - 1),
        sheet.style.width > 40 * sheet.style.size and sheet.chance(0.5),
        [],
    )
    for i, name in enumerate(names):
        label = sheet.text(name, attributes='style="font-weight:600"' if i == now else "")
        dot = sheet.block(
            "",
            "span",
            (
                'style="display:inline-block;width:.9em;height:.9em;border-radius:50%;'
                f'background:var({"--accent" if i <= now else "--line"})"'
            ),
        )
        text = ""
        if i <= now:
            moment = sheet.text(f"{sheet.words.date()} {sheet.words.time()}")
            question = sheet.one(
                (
                    'When was it "{}"?',
                    "At what time did the step {} happen?",
                    "{}: when?",
                    'What time stands at "{}"?',
                )
            ).format(name)
            sheet.ask("value", question, moment.plain, label, moment)
            text = f'<div class="muted" style="font-size:.85em">{moment}</div>'
        question = sheet.one(('Is the step "{}" done?', "Has {} been reached?")).format(name)
        sheet.ask("yes-no", question, "yes" if i <= now else "no", label, dot)
        if i == now:
            question = sheet.one(
                (
                    "What is the current step?",
                    "How far is the order?",
                    "What is the state of the order?",
                    "Where does the order stand now?",
                )
            )
            sheet.ask("implied", question, name, label, dot)
        cells.append(f'<div style="flex:1;min-width:0">{dot} {label}{text}</div>')
    gap = "1em" if beside else sheet.one((".3em", ".8em"))
    return (
        '<div class="card" style="display:flex;flex-direction:'
        f'{"row" if beside else "column"};gap:{gap}">{"".join(cells)}</div>'
    )


def _items(sheet: Sheet) -> str:
    """Return the articles with quantity and price, as a table or as lines."""
    money = purse(sheet)
    names = list(
        dict.fromkeys(sheet.words.title(1, 3) for _ in range(many(sheet, 1, min(9, room(sheet, 0.25)))))
    )
    prices = [10 ** sheet.rng.uniform(0.3, 2.6) for _ in names]
    total = Field(
        sheet.text(sheet.one(("Total", "Order total", "Sum"))), sheet.text(money(sum(prices))), "amount"
    )
    inquire(sheet, total)
    if sheet.chance(0.5):
        rows = [
            [name, str(sheet.choose(1, 5)), money(price)] for name, price in zip(names, prices, strict=True)
        ]
        grid = table(
            sheet, (sheet.one(("Item", "Article", "Product")), sheet.one(("Qty", "Quantity")), "Price"), rows
        )
        tops, inner = [row[0] for row in grid.cells], grid.html
    else:
        lines = [
            Field(sheet.text(name), sheet.text(money(price)), "price")
            for name, price in zip(names, prices, strict=True)
        ]
        for line in lines:
            inquire(sheet, line, kind="price")
        tops = [line.label for line in lines]
        inner = "".join(
            f'<div class="row" style="padding:.25em 0">{line.label}{line.value}</div>' for line in lines
        )
    sheet.ask(
        "count",
        sheet.one(("How many different articles were ordered?", "How many items are in the order?")),
        str(len(tops)),
        *tops,
    )
    return (
        f'<div class="card">{inner}<div class="row" style="font-weight:600;'
        f'border-top:1px solid var(--line);padding-top:.3em">{total.label}{total.value}'
        "</div></div>"
    )


def _addresses(sheet: Sheet) -> str:
    """Return where it goes and who pays."""
    cells = []
    for name in sheet.rng.choice(
        (("Shipping address", "Billing address"), ("Deliver to", "Invoice to"), ("Ship from", "Ship to"))
    ):
        top, lines = (
            sheet.text(name, "h3"),
            [sheet.text(text) for text in (sheet.words.name(), sheet.words.street(), sheet.words.city())],
        )
        answer = ", ".join(line.plain for line in lines)
        sheet.ask("section", sheet.phrase("section", label=name), answer, top, *lines)
        sheet.ask(
            "value",
            sheet.one(("{}: which name?", 'Who is named under "{}"?')).format(name),
            lines[0].plain,
            top,
            lines[0],
        )
        cells.append(f'<div style="flex:1">{top}<div>{"<br>".join(lines)}</div></div>')
    return f'<div style="display:flex;gap:1.5em">{"".join(cells)}</div>'
