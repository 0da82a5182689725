"""Dense labels of rendered text: pieces, places, what can't be said."""

from __future__ import annotations

import pytest

from arr_coc_lab.world.browser.chromium import Word
from making.printed import (
    BYTES,
    END,
    NOTHING,
    PLACES,
    ROUNDS,
    SPACE,
    UNSURE,
    labels,
    letters,
    piece_tokens,
    pieces,
)
from making.words import spelling_tokenizer


def line(text: str, x: float = 10.0, y: float = 4.0, size: float = 24.0) -> list[Word]:
    """The words of a line, every character 12 px wide."""
    words = []
    for part in text.split():
        edges = tuple(x + 12.0 * i for i in range(len(part) + 1))
        words.append(Word(part, (x, y, edges[-1], y + size), size, edges))
        x = edges[-1] + 8
    return words


def test_any_text_is_spelled_in_tokens_that_were_there(tokenizer):
    for text in ("$1,284.50", "Marta Köhler", "2024-03-17", "–€ ąż"):
        assert tokenizer.decode(piece_tokens(text)) == text
    assert sorted(BYTES.values()) == list(range(END))


def test_a_spelling_tokenizer_spells_what_is_no_token(tokenizer):
    fast = spelling_tokenizer(tokenizer)
    assert fast.get_vocab() == tokenizer.get_vocab()
    for text in ("What is the invoice number?", "Which is larger, the red star or the blue ring?"):
        assert fast.encode(text) == tokenizer.encode(text)
    amount = fast.encode("What is the Amount due?", add_special_tokens=False)
    assert amount[3:] == piece_tokens(" Amount due?")
    assert fast.decode(amount) == "What is the Amount due?"
    assert fast.chat_template == tokenizer.chat_template


def test_short_words_are_read_with_what_follows_and_runs_have_an_end():
    own = list(letters([*line("5 kg net"), *line("far", x=300)]))
    assert [letter.text for letter in own] == list("5kgnetfar")
    assert [letter.place for letter in own] == [0, 2, 3, 0, 1, 2, 0, 1, 2]
    assert [letter.order for letter in own] == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert own[2].pieces == (*pieces("g"), SPACE)
    assert own[5].pieces[-1] == own[8].pieces[-1] == END
    assert own[0].line != own[-1].line


def test_a_cell_says_its_characters_at_their_places():
    marks = labels(line("Königsberger"), 1, 6)
    spelled = [[int(p) for p in marks.places[:, 0, x] if p >= 0] for x in range(6)]
    assert spelled[0] == pieces("Kö")
    assert marks.counts[:, 0, 0].tolist() == [0, 0]
    assert marks.places[3, 0, 1] == pieces("n")[0]  # ö is two pieces
    assert marks.counts[0, 0].tolist() == [0, 0, 0, 0, 0, NOTHING]
    assert marks.places[13 - PLACES, 0, 4] == END
    assert (marks.halves >= 0).any()
    assert ((marks.halves == NOTHING) == (marks.ranks == NOTHING)).all()


@pytest.mark.parametrize(
    "words",
    [
        line("hidden", x=-40.0),  # begins out of sight
        line("tiny", size=9.0),
        [*line("above", y=-8.0), *line("below", y=6.0)],  # two lines in one cell
        line("x" * (PLACES * ROUNDS + 4))[0:1],
    ],
)
def test_what_can_not_be_read_is_not_taught(words):
    marks = labels(words, 1, 30)
    assert (marks.counts == UNSURE).any()
    assert ((marks.places[0] == UNSURE) == (marks.counts[0] == UNSURE)).all()
