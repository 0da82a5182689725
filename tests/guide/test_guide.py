"""The guide as tensors, and as a file."""

from __future__ import annotations

import copy
import warnings
from functools import cache
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from safetensors.torch import load_file, save_file
from torch import nn

from arr_coc import Selector
from arr_coc.files.pixels import image_pixels
from arr_coc.guide.guide import GUIDE_FILE, GUIDE_FORMAT, Guide, join_pages, load_guide, save_guide
from arr_coc.guide.question import STEPS, question_tensors, terms
from arr_coc_lab.evaluate.operators import count_operators
from near import near

# ---- guide tensors ---------------------------------------------------------------------------------------

SHORT = "Total?"
QUESTIONS = (
    "What is the total amount due?",
    "Where is the red thing, and who signed the invoice of the second of May for the vendor in Berlin?",
    SHORT,
    "Describe the image.",
    "Which salary does she get?",
)
MAX_OF_A_PAGE, MAX_OF_A_QUESTION = 480, 300


@cache
def guide() -> Guide:
    return load_guide(dtype="float32")


@cache
def picture(number: int = 0, size: tuple[int, int] = (320, 256)) -> Image.Image:
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    for row, word in enumerate(("Invoice", "Total 42.50", "Vendor Smith", f"Date {number} May")):
        draw.text((20 + 40 * number, 20 + 50 * row), word, fill="black", font=ImageFont.load_default(18))
    draw.rectangle((200, 180, 240, 220), fill=("red", "blue", "green")[number % 3])
    return image


@pytest.fixture
def dense() -> object:
    """The guide as on a GPU, where it reads every slot at once."""
    guide().glossary.dense = True
    yield
    guide().glossary.dense = None


@torch.no_grad()
def test_a_page_and_a_question_are_few_operators_without_a_wait(dense: object) -> None:
    pixels = image_pixels(picture())
    page = guide().encode(pixels)
    counts = count_operators(lambda: guide().encode(pixels))
    assert counts.computing <= MAX_OF_A_PAGE
    assert counts.waits == 0
    for text in QUESTIONS:
        numbers = guide().tensors([terms(text)])
        counts = count_operators(lambda numbers=numbers: guide().question(page, numbers, (8, 10)))
        assert counts.computing <= MAX_OF_A_QUESTION, text
        assert counts.waits == 0, text


@torch.no_grad()
def test_many_questions_are_as_many_operators_as_one(dense: object) -> None:
    page = guide().encode(image_pixels(picture()))
    few, many = (guide().tensors([terms(text) for text in texts]) for texts in ((SHORT,), QUESTIONS))
    one, all_of_them = (
        count_operators(lambda numbers=numbers: guide().question(page, numbers, (8, 10)))
        for numbers in (few, many)
    )
    assert all_of_them.computing <= one.computing + 8  # another product of matrices
    assert all_of_them.waits == 0


def test_the_counter_sees_waits_and_views() -> None:
    x = torch.arange(6.0)
    assert count_operators(lambda: x.view(2, 3).t()) == (0, 2, 0)
    assert count_operators(lambda: float((x + 1).sum())).waits == 1
    assert count_operators(lambda: x[x > 2]).waits == 1
    assert count_operators(lambda: x[torch.tensor([1, 2])]).waits == 0


@pytest.mark.slow
@torch.no_grad()
def test_both_functions_are_one_graph_each() -> None:
    """What `torch.compile` makes of them is the same, with no part left outside of the graph."""
    pixels = image_pixels(picture())
    page = guide().encode(pixels)
    numbers = guide().tensors([terms(text) for text in QUESTIONS])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*lru_cache.*")
        compiled = torch.compile(guide().encode, fullgraph=True, backend="eager")(pixels)
        judged = torch.compile(guide().question, fullgraph=True, backend="eager")(page, numbers, (8, 10))
    for one, other in zip(page.tensors(), compiled.tensors(), strict=True):
        assert near(one.float(), other.float())
    for one, other in zip(guide().question(page, numbers, (8, 10)), judged, strict=True):
        assert near(one.float(), other.float())


@torch.no_grad()
def test_padding_and_other_questions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    page, every = guide().encode(image_pixels(picture())), [terms(text) for text in QUESTIONS]
    together = guide().question(page, guide().tensors(every), (8, 10))
    for i, one in enumerate(every):
        alone = guide().question(page, guide().tensors([one]), (8, 10))
        assert near(alone.cells[0], together.cells[i])
        assert near(alone.present[0], together.present[i])
        assert near(alone.scope[0], together.scope[i])
    # Sizes as they are padded to off the CPU.
    colours = {"red": (3,)}
    plain = question_tensors(every, colours, 12)
    monkeypatch.setattr("arr_coc.guide.question._multiple", lambda count, step: -(-count // 16) * 16)
    padded = question_tensors(every, colours, 12)
    assert padded.there.shape[1] % STEPS[0] == 0 < plain.there.shape[1] % STEPS[0]
    for one, other in zip(
        guide().question(page, plain, (8, 10)), guide().question(page, padded, (8, 10)), strict=True
    ):
        if one.shape == other.shape:
            assert near(one.float(), other.float())


@torch.no_grad()
def test_pages_of_a_batch_are_those_of_each_picture() -> None:
    pixels = [image_pixels(picture(number)) for number in range(3)]
    together = guide().encode(torch.cat(pixels))
    alone = [guide().encode(one) for one in pixels]
    for one, other in zip(together.split(), alone, strict=True):
        assert one.size == other.size
        for part, own in zip(one.tensors(), other.tensors(), strict=True):
            assert near(part.float(), own.float())
    assert torch.equal(join_pages(together.split()).features, together.features)


def test_many_are_chosen_as_one_by_one() -> None:
    pictures = [picture(0), picture(1, (448, 256)), picture(2), picture(0), picture(1, (448, 256))]
    alone = Selector(guide())
    together = Selector(guide()).many(pictures, QUESTIONS, budget=12)
    for image, text, one in zip(pictures, QUESTIONS, together, strict=True):
        expected = alone(image, text, budget=12)
        assert one.grid == expected.grid
        assert near(one.balanced, expected.balanced)
        assert torch.equal(one.keep, expected.keep)
        assert one.note == expected.note
    for allowed in ({"budget": "auto"}, {"coverage": 0.9}):
        several = Selector(guide()).many(pictures[:2], SHORT, **allowed)
        assert [one.kept for one in several] == [
            alone(image, SHORT, **allowed).kept for image in pictures[:2]
        ]


def test_many_takes_what_can_be_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arr_coc.selector.MAX_TOGETHER", 1)  # and pictures one by one in memory
    pictures = [picture(0), picture(1, (448, 256)), picture(0)]
    expected = Selector(guide()).many(pictures, QUESTIONS[:3], budget=8)
    once = Selector(guide()).many(iter(pictures), (text for text in QUESTIONS[:3]), budget=8)
    assert [one.keep.tolist() for one in once] == [one.keep.tolist() for one in expected]
    assert len(Selector(guide()).many(map(picture, range(2)), SHORT, budget=8)) == 2
    for pair, words in (
        (("a.png", SHORT), "pictures are a str: give a list"),
        ((pictures[0], SHORT), "pictures are an Image: give a list"),
        (({"a": pictures[0]}, SHORT), "pictures are a dict: give a list"),
        ((pictures, {SHORT: 1}), "questions are a dict: give a list"),
        ((pictures, None), "questions are None: give a list"),
    ):
        with pytest.raises(ValueError, match=words):
            Selector(guide()).many(*pair)


def test_many_knows_pictures_of_before_and_refuses_what_does_not_fit() -> None:
    own = Selector(guide())
    first = own(picture(), SHORT, budget=8)
    assert torch.equal(own.many([picture(), picture()], [SHORT, QUESTIONS[0]], budget=8)[0].keep, first.keep)
    assert len(own._records) == 1
    assert own.many([], []) == []
    with pytest.raises(ValueError, match="2 pictures and 1 questions"):
        own.many([picture(), picture()], [SHORT])
    with pytest.raises(ValueError, match=r"questions\[1\]: the question is empty"):
        own.many([picture(), picture()], [SHORT, " "])
    for one in (own, Selector.from_pretrained("bundled")):
        with pytest.raises(ValueError, match=r"pictures\[1\]: image bytes is not an image"):
            one.many([picture(), b"none", picture()], SHORT, budget=8)


def test_a_selector_looks_where_it_is_told_to() -> None:
    assert Selector.from_pretrained(device="cpu").device.type == "cpu"
    with pytest.raises(ValueError, match="nowhere"):
        Selector.from_pretrained(device="nowhere")
    with pytest.raises(ValueError, match="device 'meta' can't be used on this machine: use auto"):
        Selector.from_pretrained(device=torch.device("meta"))
    assert Selector.from_pretrained(dtype="float32").guide.pages.norm.weight.dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@torch.no_grad()
def test_a_gpu_is_not_waited_for_and_chooses_as_a_cpu() -> None:
    selector = Selector.from_pretrained(device="cuda", dtype="float32")
    pixels = image_pixels(picture(), selector.device)
    numbers = selector.guide.tensors([terms(text) for text in QUESTIONS])
    for mode in ("default", "error"):  # tables are moved there once
        torch.cuda.set_sync_debug_mode(mode)
        try:
            selector.guide.question(selector.guide.encode(pixels), numbers, (8, 10))
        finally:
            torch.cuda.set_sync_debug_mode("default")
    pictures = [picture(number) for number in range(3)]
    theirs = selector.many(pictures, QUESTIONS[0], budget=12)
    for image, one in zip(pictures, theirs, strict=True):
        ours = Selector(guide())(image, QUESTIONS[0], budget=12)
        assert one.keep.device.type == "cpu"
        assert torch.allclose(one.balanced, ours.balanced, atol=0.02)  # TF32 in its convolutions


# ---- store -----------------------------------------------------------------------------------------------

STORED = ["What is the total?", "Who?"]


@cache
def taught() -> Guide:
    """A guide away from its start, as if it were trained."""
    guide, draws = Guide().eval(), torch.Generator().manual_seed(1)
    for module in guide.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1, generator=draws)
            module.running_var.uniform_(0.5, 2.0, generator=draws)
    for parameter in guide.parameters():
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=draws)
    return guide


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_guide(taught(), tmp_path / "guide", [{"recipe": "relevance", "steps": 3}])
    return tmp_path / "guide"


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-3), ("bfloat16", 0.3)])
def test_it_says_what_was_saved(folder: Path, dtype: str, most: float) -> None:
    rounded = copy.deepcopy(taught())  # to the bfloat16 of the file, without folding
    rounded.load_state_dict({k: v.float() for k, v in load_file(folder / GUIDE_FILE).items()})
    picture = torch.rand(3, 96, 160, generator=torch.Generator().manual_seed(0))
    expected = rounded.judge(rounded.page(picture), STORED)
    guide = load_guide(folder, dtype)
    judged = guide.judge(guide.page(picture), STORED)
    for one, other in zip(judged, expected, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).abs().max() < most


@pytest.mark.slow
def test_it_is_frozen_folded_and_loaded_once(folder: Path) -> None:
    guide = load_guide(folder)
    assert guide is load_guide(str(folder))
    assert not guide.training
    assert not any(parameter.requires_grad for parameter in guide.parameters())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in guide.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in taught().modules())
    with pytest.raises(ValueError, match="no batch norms left"):
        save_guide(guide, folder)
    save_guide(Guide(), folder)
    assert load_guide(folder) is not guide  # another was written there


@pytest.mark.slow
def test_a_relative_folder_is_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guides = []
    for name, guide in (("a", taught()), ("b", Guide())):
        save_guide(guide, tmp_path / name / "guide")
    for name in ("a", "b"):
        monkeypatch.chdir(tmp_path / name)
        guides.append(load_guide("guide"))
        assert guides[-1] is load_guide("guide") is load_guide(tmp_path / name / "guide")
    assert guides[0] is not guides[1]
    assert not torch.equal(guides[0].head.last.weight, guides[1].head.last.weight)


class TestRefused:
    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"has no guide .*arr-coc train guide --out"):
            load_guide(tmp_path)

    @pytest.mark.parametrize("change", ["format", "missing", "more", "shape", "nan", "bytes", "cut"])
    def test_another_file(self, folder: Path, change: str) -> None:
        path = folder / GUIDE_FILE
        tensors, meta = load_file(path), {"format": GUIDE_FORMAT}
        name = "head.last.weight"
        if change == "format":
            meta = {"format": "arr-coc guide 0"}
        elif change == "missing":
            del tensors[name]
        elif change == "more":
            tensors["extra"] = torch.zeros(1)
        elif change == "shape":
            tensors[name] = torch.zeros(2, 2)
        elif change == "nan":
            tensors[name] = torch.full_like(tensors[name], torch.nan)
        save_file(tensors, path, meta)
        if change in ("bytes", "cut"):
            path.write_bytes(b"PK\x03\x04" * 9 if change == "bytes" else path.read_bytes()[:-9])
        with pytest.raises(ValueError, match="is not a saved guide") as error:
            load_guide(folder)
        assert "\n" not in str(error.value)

    def test_records_that_are_none(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="trained_on"):
            save_guide(taught(), tmp_path, [{"steps": -1}])
