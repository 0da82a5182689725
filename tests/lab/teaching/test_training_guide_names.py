"""Names of things: one at least each, and words that tell them apart."""

from arr_coc_lab.teaching.names import EVERY, name_words, names_of


def test_everything_that_is_drawn_has_a_name_and_words():
    assert len(EVERY) > 150
    for thing in EVERY:
        assert names_of(thing)
        words = name_words(thing)
        assert words
        assert len(set(words)) == len(words)
        assert all(word == word.lower() and " " not in word for word in words)


def test_words_that_say_nothing_are_left_out():
    assert name_words("play") == ("play", "triangle")
    assert "two" not in name_words("pause")
    assert set(name_words("cart")) == {"shopping", "cart", "trolley"}


def test_what_has_no_other_names_has_its_own():
    assert names_of("never drawn") == ("never drawn",)
    assert name_words("the two") == ("the", "two")  # better than none
