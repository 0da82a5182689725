"""Rules of spending, checked against published examples and the processors of open models."""

from __future__ import annotations

import math

import pytest
import torch
from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

from arr_coc.pixels import RULES, Rule, find_rule
from scripts import imported, need

PUBLISHED = [
    # OpenAI, patches: the two examples of gpt-5.4
    ("gpt-5.4", (1024, 1024), (1024, 1024), 1229),
    ("gpt-5.4", (2048, 2048), (1600, 1600), 3000),
    ("gpt-6", (2048, 2048), (1600, 1600), 3000),
    ("gpt-4.1-mini", (1024, 1024), (1024, 1024), 1659),
    # OpenAI, tiles: "1024 x 1024 ... 768 x 768 ... 765", "2048 x 4096 ... 768 x 1536 ... 1105", of gpt-4o
    ("gpt-4o", (1024, 1024), (768, 768), 765),
    ("gpt-4o", (2048, 4096), (768, 1536), 1105),
    ("gpt-5", (2048, 1024), (1536, 768), 70 + 6 * 140),
    ("gpt-4o-mini", (2048, 1024), (1536, 768), 2833 + 6 * 5667),
    ("o3", (512, 512), (512, 512), 225),
    # Anthropic: the table of sizes, standard and high resolution
    ("claude-4.6", (200, 200), (200, 200), 64),
    ("claude-4.6", (1000, 1000), (1000, 1000), 1296),
    ("claude-4.6", (1092, 1092), (1092, 1092), 1521),
    ("claude-4.6", (1920, 1080), (1456, 819), 1560),
    ("claude-4.6", (2000, 1500), (1270, 952), 1564),
    ("claude-4.6", (3840, 2160), (1456, 819), 1560),
    ("claude-4.6", (1075, 1520), (924, 1307), 1551),
    ("claude", (1000, 1000), (1000, 1000), 1296),
    ("claude", (1920, 1080), (1920, 1080), 2691),
    ("claude", (3840, 2160), (2576, 1449), 4784),
    # Google: 258 tokens to 384 px, 960 x 540 px are 3 x 2 tiles; the resolutions of Gemini 3
    ("gemini-2.5", (384, 384), (384, 384), 258),
    ("gemini-2.5", (960, 540), (960, 540), 6 * 258),
    ("gemini", (500, 400), (500, 400), 1120),
    ("gemini-low", (500, 400), (500, 400), 280),
    ("gemma-3", (500, 400), (896, 896), 256),
    # Mistral: "224 x 224 ... 16 x 16 patches" of 14 px that are merged by two, and a token a row
    ("mistral", (224, 224), (224, 224), 8 * 8 + 8),
    ("mistral", (3080, 1540), (1540, 784), (55 + 1) * 28),
    ("pixtral", (1024, 1024), (1024, 1024), 64 * 64 + 64),
]


@pytest.mark.parametrize(("name", "size", "read", "tokens"), PUBLISHED)
def test_published_examples(name: str, size: tuple[int, int], read: tuple[int, int], tokens: int) -> None:
    rule = find_rule(name)
    seen_size = rule.seen(*size)
    if rule.way == "rows":  # padded to whole patches
        assert all(0 <= part - side < rule.patch for part, side in zip(seen_size, read, strict=True))
    else:
        assert seen_size == read
    assert rule.tokens(*size) == tokens


def test_openais_worked_example_of_a_budget_of_patches() -> None:
    rule = Rule("example", "patches", "", most=1536)
    assert (rule.seen(1800, 2400), rule.tokens(1800, 2400)) == ((1056, 1408), 1452)


SIZES = [(16, 16), (33, 700), (1000, 90), (640, 480), (1023, 1025), (3000, 2000), (64, 6400)]


@pytest.mark.parametrize(("name", "factor", "least"), [("qwen", 32, 64), ("qwen2.5", 28, 4)])
def test_qwen_is_its_processor(name: str, factor: int, least: int) -> None:
    for width, height in SIZES:
        h, w = smart_resize(height, width, factor, least * factor**2, 16384 * factor**2)
        assert find_rule(name).seen(width, height) == (w, h)
        assert find_rule(name).tokens(width, height) == h * w // factor**2


@pytest.mark.parametrize("most", [70, 280, 1120])
def test_gemma_is_its_processor(most: int) -> None:
    rule = find_rule("gemma-4" if most == 280 else f"gemma-4-{most}")
    for width, height in SIZES:
        h, w = get_aspect_ratio_preserving_size(height, width, 16, most * 9, 3)
        assert rule.seen(width, height) == (w, h)
        assert rule.tokens(width, height) == h * w // 48**2


@pytest.mark.parametrize("name", [*RULES, "32"])
def test_what_holds_for_every_rule(name: str) -> None:
    rule = find_rule(name)
    generator = torch.Generator().manual_seed(3)
    for _ in range(200):
        width, height = (2 ** (13 * torch.rand(2, generator=generator))).long().tolist()
        read = rule.seen(width, height)
        tokens = rule.tokens(width, height)
        assert min(tokens, *read) >= 1
        if rule.most and rule.way != "rounded":
            assert tokens <= math.ceil(rule.most * rule.factor)
        if rule.way not in ("filled", "rounded", "stretched", "rows"):
            assert all(part <= side for part, side in zip(read, (width, height), strict=True))
            assert rule.tokens(*read) <= tokens + 1  # what is read already costs no more


def test_every_row_has_its_source() -> None:
    for name, rule in RULES.items():
        assert (rule.name, rule.source.startswith("https://"), len(rule.date)) == (name, True, 10)
        assert rule.models


def test_names() -> None:
    assert find_rule(28).tokens(57, 28) == 3
    assert find_rule("square 28") == find_rule("28") == find_rule(28)
    assert find_rule(" Claude ") is RULES["claude"]
    for name in ("gemini-9", "", "3", "99999", "square", "-4", "4.5"):
        with pytest.raises(ValueError, match="is not known: use one of gpt-6"):
            find_rule(name)


def test_no_size() -> None:
    for size in ((0, 4), (4, -1)):
        with pytest.raises(ValueError, match="give its width and height in px"):
            find_rule(32).tokens(*size)


def test_the_page_lists_the_table() -> None:
    need("runs/rules_table.py")
    with imported("runs/rules_table.py") as table:
        assert table.PAGE.read_text(encoding="utf-8") == table.page(), "run: python runs/rules_table.py"
