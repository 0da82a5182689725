"""A page of printed lines, odd texts, and sentence vectors by chance, for tests of relevance "ocr"."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.relevance.lines import SENTENCE_WIDTH, PrintedLine

SIZE = (600, 800)
PAGE = (
    PrintedLine("Invoice 2041", (40.0, 20.0, 260.0, 50.0)),
    PrintedLine("Item", (40.0, 100.0, 90.0, 118.0)),
    PrintedLine("Price", (300.0, 100.0, 360.0, 118.0)),
    PrintedLine("Paper, A4", (40.0, 130.0, 150.0, 148.0)),
    PrintedLine("$ 4.20", (300.0, 130.0, 360.0, 148.0)),
    PrintedLine("Total:", (40.0, 400.0, 100.0, 418.0)),
    PrintedLine("$ 42.10", (300.0, 400.0, 370.0, 418.0)),
    PrintedLine("Save as...", (700.0, 560.0, 780.0, 580.0)),
)
ODD = (
    "",
    " ",
    "\x00\x1b[31m",
    "e\u0301\u0301\u0301" * 500,
    "\u202egnirts\u202c",
    "🧾💶",
    "合計 4210円",
    "المجموع",
    "x" * 100_000,
    "a " * 50_000,
    "1" * 5_000,
    "% $ € @ / : ...",
    "\u2028\u2029\ufeff",
)


def vectors(texts: Sequence[str]) -> Tensor:
    """Unit vectors by chance, the same for the same text."""
    rows = []
    for text in texts:
        generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
        rows.append(torch.randn(SENTENCE_WIDTH, generator=generator))
    return F.normalize(torch.stack(rows), dim=1) if rows else torch.zeros(0, SENTENCE_WIDTH)
