"""The glossary: what print means, read off the common words that it resembles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from arr_coc.guide.guide import Guide, load_guide
from arr_coc.guide.lexicon import MEANING_WIDTH, common_words, meaning
from arr_coc.guide.print_encoder import (
    CHUNK,
    MEANING_SHARPNESS,
    MIN_CERTAINTY,
    READ_CERTAINTY,
    SLOT,
    MeaningEncoder,
    _darker_rows,
    _ink,
    block_max,
    luminance,
)


def page(*texts: tuple[int, int, str]) -> Tensor:
    """A white picture with words at places, float [3, 256, 512] in [0, 1]."""
    image = Image.new("RGB", (512, 256), "white")
    draw = ImageDraw.Draw(image)
    for x, y, text in texts:
        draw.text((x, y), text, fill="black", font=ImageFont.load_default(18))
    return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255


@pytest.fixture(scope="module")
def guide() -> Guide:
    return load_guide(dtype="float32")


def test_words_are_common_and_have_a_meaning() -> None:
    words = common_words()
    assert len(set(words)) == len(words) == 4096
    assert {"time", "price", "address", "number"} <= set(words)
    assert all(float(meaning(word).norm()) > 0.9 for word in words)


def test_a_bundled_guide_has_the_vectors_of_its_own_words(guide: Guide) -> None:
    now = guide.words(guide.glossary.words)
    assert float(torch.cosine_similarity(now, guide.glossary.vectors).min()) > 0.99


def test_learning_takes_the_vectors_that_words_have(guide: Guide) -> None:
    glossary = MeaningEncoder()
    assert not glossary.vectors.any()
    glossary.learn(guide.words)
    assert torch.allclose(glossary.vectors.norm(dim=1), torch.ones(len(glossary.words)), atol=1e-4)


@pytest.mark.parametrize("word", ["price", "address", "winter", "doctor"])
def test_a_printed_word_means_what_it_means(guide: Guide, word: str) -> None:
    meanings = guide.page(page((40, 100, word))).meanings[0]
    assert meanings.shape == (MEANING_WIDTH, 16, 16)
    alike = torch.einsum("m,mhw->hw", meaning(word), meanings)
    y, x = divmod(int(alike.argmax()), 16)
    assert y in (6, 7)
    assert x in (1, 2)
    assert float(alike.max()) > 0.4


def test_a_word_of_one_matter_is_nearer_than_others(guide: Guide) -> None:
    meanings = guide.page(page((40, 40, "income"), (40, 180, "river"))).meanings[0]
    alike = torch.einsum("m,mhw->hw", meaning("salary"), meanings).amax(1)
    assert float(alike[2:4].max()) > float(alike[10:13].max()) + 0.1


def test_nothing_is_meant_where_nothing_is_printed(guide: Guide) -> None:
    meanings = guide.page(page((40, 100, "price"))).meanings[0]
    assert not meanings[:, :4].any()
    assert not meanings[:, :, 10:].any()
    assert float(meanings.norm(dim=0).max()) <= 1 + 1e-4


def test_a_blank_page_means_nothing(guide: Guide) -> None:
    assert not guide.page(page()).meanings.any()


def test_ink_is_found_at_every_scale_and_of_two_rows_the_darker() -> None:
    picture = torch.ones(3, 64, 128)
    picture[:, 10:14, 20:30] = 0.2
    light = luminance(picture[None])
    extremes = block_max(light, SLOT), block_max(-light, SLOT)
    for scale, place in enumerate(((1, 1), (0, 0), (0, 0))):
        ink = _ink(extremes, scale, (8 >> scale, 8 >> scale))
        assert (ink > 0.5).nonzero().tolist() == [[0, *place]]
    prints = torch.arange(64.0).view(1, 1, 8, 8)
    rows, darker = _darker_rows(prints, _ink(extremes, 0, (8, 8)))
    assert rows.shape == (1, 1, 4, 8)
    assert rows[0, 0, 0, 1] == 9
    assert float(darker[0, 0, 1]) > 0.5


def test_words_are_mixed_by_a_softmax_of_their_cosines() -> None:
    plain = load_guide(dtype="float32")
    glossary = plain.glossary
    noise = torch.randn(CHUNK + 5, glossary.vectors.shape[1], generator=torch.Generator().manual_seed(0))
    near = 0.2 * torch.nn.functional.normalize(noise, dim=1) + glossary.vectors[: len(noise)]
    prints = torch.nn.functional.normalize(torch.cat((near[: CHUNK - 1], noise[CHUNK - 1 :])), dim=1)
    cosines = prints @ glossary.vectors.T
    sure = torch.sigmoid(plain.likeness(cosines.amax(1)))
    mixed = (MEANING_SHARPNESS * cosines).softmax(1) @ glossary.meanings
    expected = torch.cat((mixed, torch.ones(len(mixed), 1)), 1) * (sure * (sure > MIN_CERTAINTY))[:, None]
    rows, words = glossary._read(prints, plain.likeness, False)
    assert torch.allclose(rows, expected, atol=1e-4)
    legible = sure > READ_CERTAINTY
    assert torch.equal(words, torch.where(legible, cosines.argmax(1), len(glossary.words)))
    assert 5 < int(legible.sum()) < len(words), "both kinds are there"
    assert 5 < int((sure > MIN_CERTAINTY).sum()) < len(sure), "both kinds are there"
    quick = load_guide(dtype="bfloat16")
    assert torch.allclose(quick.glossary._read(prints, quick.likeness, True)[0], expected, atol=0.05)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reading_every_slot_at_once_or_those_with_ink_in_parts_is_the_same(dtype: str) -> None:
    own = load_guide(dtype=dtype)
    words = ("payment", "window", "total", "invoice", "river", "salary")
    pictures = [page(*((40, 40 * n + 20, word) for n, word in enumerate(words))), page()]
    light = luminance(torch.stack(pictures))
    with torch.no_grad():
        prints = [scale.print for scale in own.encode_print(torch.stack(pictures))]
        try:
            own.glossary.dense = True
            every, read = own.glossary(prints, light, own.likeness)
        finally:
            own.glossary.dense = None
        some, count = own.glossary(prints, light, own.likeness)
    assert torch.allclose(every, some, atol=1e-4 if dtype == "float32" else 0.02)
    assert count[0] > 3
    assert count[1] == read[1] == 0
    assert abs(float(read[0] - count[0])) <= (0 if dtype == "float32" else 1)


def test_long_words_are_counted_once_each(guide: Guide) -> None:
    words = ("payment", "window", "payment", "total", "to")
    read = guide.page(page(*((40, 40 * n + 20, word) for n, word in enumerate(words))))
    assert read.vocabulary == 3
    assert guide.page(page()).vocabulary == 0
