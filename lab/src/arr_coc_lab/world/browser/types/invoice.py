"""Invoices: fields, two parties, a table of items, and totals."""

from __future__ import annotations

from collections.abc import Callable

from arr_coc_lab.world.browser.fields import Entry, Labels, close, key_values
from arr_coc_lab.world.browser.parts import card, draw_look, frame, heading, purse, room, table
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

TITLES = (
    "Invoice",
    "INVOICE",
    "Tax invoice",
    "Pro forma invoice",
    "Credit note",
    "Bill",
    "Commercial invoice",
    "Quotation",
)
FIELDS = (
    ("Invoice number", "code"), ("Invoice date", "date"), ("Due date", "date"), ("Order number", "code"),
    ("Customer number", "code"),
    ("PO number", "code"), ("VAT ID", "code"), ("Tax number", "code"),
    ("Payment terms", "14 days net|30 days net|On receipt|2% within 10 days"),
    ("Payment method", "Bank transfer|Credit card|Direct debit|PayPal|Cash"),
    ("Currency", "EUR|USD|GBP|CHF|SEK"), ("IBAN", "code"),
    ("Bank", "company"), ("Contact", "name"), ("Sales representative", "name"), ("Project", "word"),
    ("Delivery date", "date"),
    ("Service period", "date"), ("Reference", "code"), ("Phone", "phone"), ("E-mail", "email"),
    ("Department", "word"), ("Account manager", "name"),
    ("Ship via", "UPS|DHL|FedEx|Post|Pickup"), ("Status", "Paid|Open|Overdue|Draft|Sent"),
    ("Approved by", "name"), ("Incoterms", "EXW|FOB|CIF|DDP"),
)  # fmt: skip
PARTIES = (
    ("Bill to", "Ship to"),
    ("From", "To"),
    ("Seller", "Buyer"),
    ("Vendor", "Customer"),
    ("Supplier", "Client"),
    ("Issued by", "Recipient"),
)
ITEM, NUMBER = (
    ("Description", "Item", "Service", "Product", "Article"),
    ("Qty", "Quantity", "Hours", "Units", "Pcs"),
)
EACH, SUM = ("Unit price", "Rate", "Price", "Price each"), ("Amount", "Line total", "Net", "Sum")


@page_type("invoice")
def invoice(sheet: Sheet) -> str:
    """Return the parts come in their usual order, some missing; sums are right."""
    labels, money = Labels(sheet, FIELDS), purse(sheet)
    title = heading(sheet, TITLES, share=0.2)
    fields = key_values(sheet, labels.draw(sheet.choose(3, max(3, min(9, room(sheet, 0.25))))))
    parts = [card(sheet, fields.html, 0.4), _parties(sheet)]
    if sheet.chance(0.4):
        parts.reverse()
    names = list(
        dict.fromkeys(
            sheet.words.title(1, 3) for _ in range(sheet.choose(2, max(2, min(14, room(sheet, 0.4, 2.2)))))
        )
    )
    counts = [sheet.choose(1, 20) for _ in names]
    prices = [round(10 ** sheet.rng.uniform(0.3, 3.2), 2) for _ in names]
    sums = [round(n * p, 2) for n, p in zip(counts, prices, strict=True)]
    columns = [sheet.one(ITEM), sheet.one(NUMBER), sheet.one(EACH), sheet.one(SUM)]
    rows = [[a, str(n), money(p), money(s)] for a, n, p, s in zip(names, counts, prices, sums, strict=True)]
    if not sheet.style.narrow and sheet.chance(0.4):
        columns.append(sheet.one(("SKU", "Code", "Art. no.")))
        rows = [[*row, sheet.words.code()] for row in rows]
    grid = table(sheet, columns, rows, right=(1, 2, 3) if sheet.chance(0.7) else ())
    sheet.ask(
        "count",
        sheet.one(("How many items are on the invoice?", "How many positions are billed?")),
        str(len(rows)),
        *(r[0] for r in grid.cells),
    )
    entries, total = _totals(sheet, sum(sums), money)
    totals = key_values(sheet, entries, look=draw_look(sheet, "table", "spread", "dotted", "flush"))
    last = totals.fields[-1]
    sheet.ask(
        "implied",
        sheet.one(("How much do I have to pay?", "What must be paid in all?", "How much is owed?")),
        last.value.plain,
        last.label,
        last.value,
    )
    limit = sheet.one(("100", "500", "1,000", "5,000", "10,000"))
    text = sheet.one(("Is the {} above {}?", "Is the {} more than {}?")).format(
        last.label.plain.rstrip(" :").lower(), limit
    )
    sheet.ask(
        "yes-no", text, "yes" if total > float(limit.replace(",", "")) else "no", last.label, last.value
    )
    close(sheet, labels, (*fields.fields, *totals.fields), lone=False)
    side = "margin-left:auto;" if sheet.chance(0.7) else ""
    width = "100%" if sheet.style.narrow else "22em"
    return frame(
        sheet,
        (
            f'{title}{"".join(parts)}{grid.html}<div style="{side}width:{width};'
            f'margin-top:var(--gap)">{totals.html}</div>'
        ),
        0.5,
    )


def _parties(sheet: Sheet) -> str:
    """Two addresses under their headings."""
    blocks = []
    for name in sheet.rng.choice(PARTIES):
        top = sheet.text(name, sheet.one(("h3", "b")))
        company, street, city = (
            sheet.text(sheet.words.company()),
            sheet.text(sheet.words.street()),
            sheet.text(sheet.words.city()),
        )
        address = ", ".join((company.plain, street.plain, city.plain))
        sheet.ask("section", sheet.phrase("section", label=name), address, top, company, street, city)
        question = sheet.one(
            ('Which company stands under "{}"?', "{}: which firm?", 'Whose name is given as "{}"?')
        ).format(name)
        sheet.ask("value", question, company.plain, top, company)
        blocks.append(f'<div style="flex:1">{top}<div>{company}<br>{street}<br>{city}</div></div>')
    return f'<div style="display:flex;gap:1.5em;margin:var(--gap) 0">{"".join(blocks)}</div>'


def _totals(sheet: Sheet, net: float, money: Callable[[float], str]) -> tuple[list[Entry], float]:
    """Subtotal, perhaps discount and shipping, tax and total, and what the total is."""
    rate = sheet.rng.choice((5, 7, 7.7, 8.25, 10, 19, 20, 21, 25))
    entries, total = (
        [Entry(sheet.one(("Subtotal", "Net total", "Total before tax")), "amount", money(net))],
        net,
    )
    if sheet.chance(0.4):
        off = round(net * sheet.rng.choice((0.02, 0.05, 0.1, 0.15)), 2)
        entries.append(Entry(sheet.one(("Discount", "Rebate", "Less")), "amount", "-" + money(off)))
        total -= off
    if sheet.chance(0.4):
        freight = round(sheet.rng.uniform(3, 90), 2)
        entries.append(Entry(sheet.one(("Shipping", "Freight", "Handling")), "amount", money(freight)))
        total += freight
    tax = round(total * rate / 100, 2)
    entries.append(
        Entry(
            sheet.one(("Tax", "VAT", "Sales tax", "GST")) + sheet.one(("", f" {rate}%", f" ({rate}%)")),
            "amount",
            money(tax),
        )
    )
    entries.append(
        Entry(
            sheet.one(("Total", "Total due", "Amount due", "Grand total", "Balance due")),
            "amount",
            money(total + tax),
        )
    )
    return entries, total + tax
