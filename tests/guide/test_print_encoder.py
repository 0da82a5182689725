"""The encoder of print: means of blocks, runs of print, where print is, and what it means."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from arr_coc import ARRCOCConfig, ARRCOCLayer, ARRCOCModel
from arr_coc.choose.texture import generate_texture_array
from arr_coc.guide.guide import Guide, check_channels, load_guide, picture_inputs, text_evidence
from arr_coc.guide.lexicon import MEANING_WIDTH, common_words, meaning
from arr_coc.guide.print_encoder import (
    CHUNK,
    COLUMN_PX,
    MAX_GAP,
    MAX_RUN,
    MEANING_SHARPNESS,
    MIN_CERTAINTY,
    READ_CERTAINTY,
    SLOT,
    MeaningEncoder,
    _darker_rows,
    _ink,
    block_max,
    block_mean,
    complete_runs,
    luminance,
    print_runs,
    run_meanings,
    window_mean,
)
from near import near
from tiny import tiny

# ---- blocks ----------------------------------------------------------------------------------------------


@pytest.fixture
def x():
    return torch.rand(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [(2, 2), (4, 4), (16, 32), (8, 16), (16, 4), (1, 3)])
def test_blocks(x, size):
    mean = block_mean(x, size)
    assert mean.shape == (2, 3, 64 // size[0], 96 // size[1])
    assert torch.allclose(mean, F.avg_pool2d(x, size), atol=1e-6)
    assert torch.equal(block_max(x, size), F.max_pool2d(x, size))
    assert torch.equal(-block_max(-x, size), -F.max_pool2d(-x, size))


def test_blocks_of_a_picture_whose_channels_lie_together(x):
    last = x.contiguous(memory_format=torch.channels_last)
    assert torch.allclose(block_mean(last, (4, 4)), F.avg_pool2d(x, 4), atol=1e-6)
    assert torch.equal(block_max(last, (4, 4)), F.max_pool2d(x, 4))


@pytest.mark.parametrize("side", [1, 3, 9])
def test_windows(x, side):
    mean = window_mean(x, side)
    assert mean.shape == (2, 3, 65 - side, 97 - side)
    assert torch.allclose(mean, F.avg_pool2d(x, side, 1), atol=1e-6)


def test_a_side_that_is_no_multiple_is_refused(x):
    with pytest.raises(RuntimeError, match="unflatten"):
        block_mean(x, (7, 4))


# ---- print runs ------------------------------------------------------------------------------------------


def page(*spans: tuple[int, int, int], size: tuple[int, int] = (64, 1024)) -> Tensor:
    """White paper with stripes as fine as print: (top, left, right) in px, each 10 px high."""
    light = torch.ones(1, 1, *size)
    for top, left, right in spans:
        light[..., top : top + 10, left:right:2] = 0.0
    return light


def test_a_gap_in_a_run_is_crossed_and_one_in_a_table_is_not() -> None:
    near, far = MAX_GAP * COLUMN_PX, (MAX_GAP + 3) * COLUMN_PX
    runs = print_runs(page((2, 64, 128), (2, 128 + near, 224), (2, 224 + far, 400)))
    row = runs[0, 0]
    assert row[64 // COLUMN_PX] == row[220 // COLUMN_PX] > 0
    assert row[300 // COLUMN_PX] not in (0, row[64 // COLUMN_PX])
    assert not runs[0, 1:].any()
    assert not row[: 60 // COLUMN_PX].any()


def test_every_row_has_runs_of_its_own() -> None:
    runs = print_runs(page((2, 64, 128), (18, 64, 128)))
    assert 0 < runs[0, 0, 20] != runs[0, 1, 20] > 0


def test_rules_and_empty_paper_are_no_runs() -> None:
    assert not print_runs(page((2, 0, (MAX_RUN + 1) * COLUMN_PX))).any()
    assert not print_runs(torch.full((1, 1, 32, 64), 0.3)).any()


def test_places_of_a_run_are_raised_to_its_mean_and_others_stay() -> None:
    runs = print_runs(page((2, 64, 256)))  # the places 2 to 7 of the first row
    places = torch.full((2, 4, 32), -6.0)
    places[0, 0, 3] = 4.0
    places[1, 2, 9] = 4.0
    done = complete_runs(places, runs)
    mean = torch.tensor([4.0, *[-6.0] * 5]).exp().mean().log()
    assert torch.allclose(done[0, 0, [2, 4, 5, 6, 7]], mean.expand(5), atol=0.1)
    changed = done != places
    assert changed[0].sum() == 5
    assert not changed[1][1:].any()
    assert near(done[1], places[1])


def test_no_place_is_lowered_and_a_picture_without_print_is_left_alone() -> None:
    places = torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(0))
    assert (complete_runs(places, print_runs(page((2, 64, 300), (18, 100, 500)))) >= places).all()
    assert torch.equal(complete_runs(places, print_runs(page())), places)


def test_places_of_a_run_mean_what_the_run_does_and_others_nothing() -> None:
    runs = print_runs(page((2, 64, 256), (18, 64, 128), (18, 400, 480)))
    meanings = torch.randn(1, 5, 4, 32, generator=torch.Generator().manual_seed(0))
    whole = run_meanings(meanings, runs)
    assert whole.shape == meanings.shape
    owners = runs[0].unflatten(-1, (32, -1)).amax(-1)
    assert len(owners.unique()) == 4
    for owner in owners.unique().tolist():
        parts, own = meanings[0][:, owners == owner], whole[0][:, owners == owner]
        expected = torch.nn.functional.normalize(parts.sum(1), dim=0) * (owner > 0)
        assert near(own, expected[:, None].expand_as(own))
    assert not run_meanings(meanings, print_runs(page())).any()
    assert not run_meanings(torch.zeros_like(meanings), runs).any(), "print that means nothing"


def test_pictures_of_a_batch_have_runs_of_their_own() -> None:
    lights = [page((2, 64, 256)), page((18, 64, 128), (34, 400, 480)), page()]
    runs = print_runs(torch.cat(lights))
    places = torch.randn(3, 4, 32, generator=torch.Generator().manual_seed(1))
    meanings = torch.randn(3, 5, 4, 32, generator=torch.Generator().manual_seed(2))
    raised, whole = complete_runs(places, runs), run_meanings(meanings, runs)
    for i, light in enumerate(lights):
        alone = print_runs(light)
        assert torch.equal(runs[i : i + 1], alone)
        assert near(raised[i : i + 1], complete_runs(places[i : i + 1], alone))
        assert near(whole[i : i + 1], run_meanings(meanings[i : i + 1], alone))


# ---- print evidence --------------------------------------------------------------------------------------


def printed(size: int, colour: str = "black", paper: str = "white") -> Tensor:
    """A line of print of some px at (64, 64) of a blank page, [3, 256, 512]."""
    page = Image.new("RGB", (512, 256), paper)
    ImageDraw.Draw(page).text((64, 64), "Total amount 48.20", colour, ImageFont.load_default(size))
    return torch.from_numpy(np.asarray(page).copy()).permute(2, 0, 1).float() / 255


@pytest.mark.parametrize("size", [(96, 160), (101, 333), (5, 7), (17, 1)])
def test_any_picture(size: tuple[int, int]) -> None:
    picture = torch.rand(3, *size, generator=torch.Generator().manual_seed(0))
    evidence = text_evidence(load_guide(), picture)
    assert evidence.shape == (-(-size[0] // 8), -(-size[1] // 8))
    assert evidence.dtype == torch.float32
    assert 0 <= evidence.min() <= evidence.max() <= 1
    assert torch.equal(evidence, text_evidence(load_guide(), picture))


@pytest.mark.parametrize(("size", "colour", "paper"), [
    (14, "black", "white"), (24, "black", "white"), (16, "white", "#203060"), (16, "#909090", "white"),
])  # fmt: skip
def test_print_is_told_from_paper(size: int, colour: str, paper: str) -> None:
    evidence = text_evidence(load_guide(), printed(size, colour, paper))
    line = evidence[8 : 8 + size // 8 + 1, 8:14]
    assert line.amax(0).mean() > 0.4
    assert evidence[16:].max() < 0.1


def test_a_blank_page_has_none() -> None:
    assert text_evidence(load_guide(), torch.full((3, 128, 128), 0.7)).max() < 0.1


def test_the_group_marks_cells_with_print() -> None:
    page = printed(16)
    evidence = text_evidence(load_guide(), page)[None]
    mask = generate_texture_array(page[None], (8, 16), ["text_mask"], text_evidence=evidence)[0, 0]
    assert mask[2, 2:5].min() > 0.4
    assert mask[4:].max() < 0.1


def test_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"picture must be \[3, h, w\], got \(1, 3, 8, 8\)"):
        text_evidence(load_guide(), torch.rand(1, 3, 8, 8))


def test_what_a_picture_alone_gives_to_channels() -> None:
    page = printed(16)
    assert picture_inputs("mvp13", page) == {}
    (evidence,) = picture_inputs(["rgb", "text_mask"], page).values()
    assert torch.equal(evidence[0], text_evidence(load_guide(), page))
    array = generate_texture_array(page[None], (8, 16), ["text_mask"], **picture_inputs(["text_mask"], page))
    assert array.shape == (1, 1, 8, 16)


class TestChannelsThatNobodyMakes:
    def test_a_group_that_needs_an_encoder_is_refused_in_a_line(self) -> None:
        for channels in ("full40", ["rgb", "components"]):
            with pytest.raises(
                ValueError, match="'components' needs basis and coarse_features, which a picture alone"
            ):
                check_channels(channels)
        assert set(picture_inputs("full40", printed(16))) == {"text_evidence"}  # the rest is the caller's

    def test_what_reads_frames_and_questions_does_without(self) -> None:
        for channels in ("mvp13", "fast13", "full20", ["text_mask", "attention_memory", "relevance_memory"]):
            check_channels(channels)

    def test_a_model_is_not_made_with_a_layer_that_lacks_its_basis(self) -> None:
        built = tiny("qwen3_vl")
        layer = ARRCOCLayer(ARRCOCConfig(dim=32, channels="full40"))
        with pytest.raises(ValueError, match="'components' needs a basis of the encoder's features"):
            ARRCOCModel(built.model, built.processor, layer)

    def test_channels_of_time_are_neutral_in_modes(self) -> None:
        """No earlier question is remembered, so no answer depends on another's."""
        built = tiny("qwen3_vl")
        layer = ARRCOCLayer(ARRCOCConfig(dim=32, channels="full20"))
        layer.trained = True
        model = ARRCOCModel(built.model, built.processor, layer, strict=True)
        session = model.session(Image.new("RGB", (64, 64), "white"))
        first = session.look("What?", budget=3, mode="prune").keep
        session.look("Where else?", budget=3, mode="prune")
        assert torch.equal(session.look("What?", budget=3, mode="prune").keep, first)


# ---- print meanings --------------------------------------------------------------------------------------


def printed_page(*texts: tuple[int, int, str]) -> Tensor:
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
    meanings = guide.page(printed_page((40, 100, word))).meanings[0]
    assert meanings.shape == (MEANING_WIDTH, 16, 16)
    alike = torch.einsum("m,mhw->hw", meaning(word), meanings)
    y, x = divmod(int(alike.argmax()), 16)
    assert y in (6, 7)
    assert x in (1, 2)
    assert float(alike.max()) > 0.4


def test_a_word_of_one_matter_is_nearer_than_others(guide: Guide) -> None:
    meanings = guide.page(printed_page((40, 40, "income"), (40, 180, "river"))).meanings[0]
    alike = torch.einsum("m,mhw->hw", meaning("salary"), meanings).amax(1)
    assert float(alike[2:4].max()) > float(alike[10:13].max()) + 0.1


def test_nothing_is_meant_where_nothing_is_printed(guide: Guide) -> None:
    meanings = guide.page(printed_page((40, 100, "price"))).meanings[0]
    assert not meanings[:, :4].any()
    assert not meanings[:, :, 10:].any()
    assert float(meanings.norm(dim=0).max()) <= 1 + 1e-4


def test_a_blank_page_means_nothing(guide: Guide) -> None:
    assert not guide.page(printed_page()).meanings.any()


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
    pictures = [printed_page(*((40, 40 * n + 20, word) for n, word in enumerate(words))), printed_page()]
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
    read = guide.page(printed_page(*((40, 40 * n + 20, word) for n, word in enumerate(words))))
    assert read.vocabulary == 3
    assert guide.page(printed_page()).vocabulary == 0
