"""Bank statements: an account's fields, transactions with amounts and a running balance."""

from __future__ import annotations

from collections.abc import Callable

from arr_coc_lab.world.browser.fields import Entry, Labels, close, key_values
from arr_coc_lab.world.browser.parts import card, compare, frame, heading, many, purse, room, table
from arr_coc_lab.world.browser.sheet import Sheet
from arr_coc_lab.world.browser.types import page_type

TITLES = (
    "Account statement",
    "Statement of account",
    "Transactions",
    "Current account",
    "Savings account",
    "Card statement",
    "Recent activity",
    "Bank statement",
)
FIELDS = (
    ("Account holder", "name"), ("Account number", "code"), ("IBAN", "code"), ("BIC", "code"),
    ("Sort code", "code"), ("Statement number", "number"), ("Statement date", "date"),
    ("Period from", "date"), ("Period to", "date"), ("Branch", "place"), ("Currency", "EUR|USD|GBP|CHF"),
    ("Overdraft limit", "amount"), ("Interest rate", "percent"),
    ("Available credit", "amount"), ("Minimum payment", "amount"), ("Payment due", "date"),
    ("Card number", "code"), ("Adviser", "name"), ("Customer ID", "code"), ("Fees", "amount"),
    ("Phone banking", "phone"), ("Last login", "time"), ("Account type", "Current|Savings|Joint|Business"),
    ("Address", "address"), ("Rewards", "number"), ("Pages", "number"),
)  # fmt: skip
PAYEES = (
    "Rent", "Salary", "Groceries", "Electricity", "Water bill", "Insurance", "Cash withdrawal",
    "Transfer to savings", "Train ticket", "Petrol", "Pharmacy", "Restaurant", "Cinema",
    "Internet", "Mobile phone", "Gym", "Bookshop", "Refund", "Dividend", "Mortgage", "Council tax",
    "School fees", "Parking", "Donation", "Interest", "Card fee", "Dentist", "Bakery",
)  # fmt: skip
SUMS = (
    ("Opening balance", "Closing balance"),
    ("Previous balance", "New balance"),
    ("Balance brought forward", "Balance carried forward"),
    ("Start balance", "End balance"),
)


@page_type("bank_statement", held_out=True)
def bank_statement(sheet: Sheet) -> str:
    """Fields, a table of transactions, opening and closing balance that agree with it."""
    labels, money, rng = Labels(sheet, FIELDS, 0.25), purse(sheet), sheet.rng
    title = heading(sheet, TITLES, share=0.2)
    fields = key_values(sheet, labels.draw(many(sheet, 2, min(9, room(sheet, 0.3)))))
    names = list(
        dict.fromkeys(_payee(sheet, labels) for _ in range(many(sheet, 2, min(30, room(sheet, 0.7, 2.1)))))
    )
    amounts = [round(10 ** rng.uniform(0.5, 3.4) * (1 if sheet.chance(0.25) else -1), 2) for _ in names]
    balance = start = round(rng.uniform(50, 9000), 2)
    narrow = sheet.style.narrow
    split, running, coded = (
        not narrow and sheet.chance(0.35),
        sheet.chance(0.6),
        not narrow and sheet.chance(0.3),
    )
    head = [
        sheet.one(("Date", "Booked", "Posted", "Day")),
        sheet.one(("Description", "Payee", "Details", "Transaction")),
    ]
    head += ["Money in", "Money out"] if split else [sheet.one(("Amount", "Value", "Sum"))]
    head += [*(["Balance"] if running else []), *(["Reference"] if coded else [])]
    rows = []
    for name, amount in zip(names, amounts, strict=True):
        balance += amount
        text = _signed(money, amount)
        cells = [money(amount), ""] if amount > 0 else ["", money(-amount)]
        rows.append([sheet.words.date(), name, *(cells if split else [text])])
        rows[-1] += [
            *([_signed(money, balance)] if running else []),
            *([sheet.words.code()] if coded else []),
        ]
    numeric = range(2, 2 + (2 if split else 1) + running)
    grid = table(sheet, head, rows, key=1, right=tuple(numeric) if sheet.chance(0.8) else ())
    payees, most = [row[1] for row in grid.cells], sheet.chance(0.4)
    if not split:
        text = sheet.one(
            ("Which is the largest income?", "Which transaction brought in most?")
            if most
            else ("Which is the largest expense?", "What cost the most?")
        )
        compare(sheet, text, payees, [row[2] for row in grid.cells], amounts, most)
    sheet.ask(
        "count",
        sheet.one(("How many transactions are listed?", "How many bookings are there?")),
        str(len(rows)),
        *payees,
    )
    first, last = rng.choice(SUMS)
    sums = key_values(
        sheet, [Entry(first, "amount", _signed(money, start)), Entry(last, "amount", _signed(money, balance))]
    )
    end = sums.fields[1]
    sheet.ask(
        "implied",
        sheet.one(("How much is left on the account?", "How much money is there at the end?")),
        end.value.plain,
        end.label,
        end.value,
    )
    sheet.ask(
        "yes-no", "Is the account overdrawn at the end?", "yes" if balance < 0 else "no", end.label, end.value
    )
    close(sheet, labels, (*fields.fields, *sums.fields), lone=False)
    parts = [card(sheet, fields.html), card(sheet, sums.html), grid.html]
    if sheet.chance(0.4):
        parts[1], parts[2] = parts[2], parts[1]
    return frame(sheet, title + "".join(parts), 0.3)


def _payee(sheet: Sheet, labels: Labels) -> str:
    """Return what a transaction was for."""
    return sheet.rng.choice((lambda: sheet.one(PAYEES), sheet.words.company, sheet.words.name, labels.open))()


def _signed(money: Callable[[float], str], value: float) -> str:
    """Return a sum of money with its sign."""
    return money(value) if value >= 0 else "-" + money(-value)
