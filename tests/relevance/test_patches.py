"""Relevance by patch vectors: order of patches, a question's own tokens, files, and what is refused."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing
from torch import Tensor

import tiny_kinds
from arr_coc.relevance import conformance, patches
from arr_coc.relevance.conformance import SourceScene
from arr_coc.relevance.native import to_image
from arr_coc.relevance.patches import (
    DenseSource,
    IndexSource,
    RetrieverSource,
    Sureness,
    join_tiles,
    open_dense,
    open_index,
    open_retriever,
    own_tokens,
)
from arr_coc.relevance.source import calibrate
from retrievers import colmodernvbert, of_transformers
from tiny import tiny
from tiny_families import siglip_tower, words

RETRIEVERS = ("colqwen2", "colpali", "colmodernvbert")
DENSE = ("clip", "siglip", "siglip2", "tipsv2")
QUESTION = "What is the total?"


def colqwen2() -> tuple[Any, Any]:
    base = tiny("qwen2_vl")
    config = transformers.ColQwen2Config(vlm_config=base.model.config.to_dict(), embedding_dim=16)
    processor = transformers.ColQwen2Processor(base.processor.image_processor, base.processor.tokenizer)
    return transformers.ColQwen2ForRetrieval(config), processor


def colpali() -> tuple[Any, Any]:
    base, processor = tiny_kinds.make("paligemma")
    config = transformers.ColPaliConfig(vlm_config=base.to_dict(), embedding_dim=16)
    return transformers.ColPaliForRetrieval(config), transformers.ColPaliProcessor(
        processor.image_processor, processor.tokenizer
    )


def ended() -> Any:
    """A tokenizer that ends texts with a token and pads behind it."""
    tokens = words()
    end = (tokens.eos_token, tokens.eos_token_id)
    tokens.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"$A {tokens.eos_token}", special_tokens=[end]
    )
    tokens.padding_side = "right"
    return tokens


def dual(**more: Any) -> dict[str, Any]:
    tokens = words()
    text = {
        "vocab_size": len(tokens),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 40,
        "pad_token_id": tokens.pad_token_id,
        "bos_token_id": None,
        "eos_token_id": tokens.eos_token_id,
    }
    vision = siglip_tower(image_size=24)
    return {"text_config": text, "vision_config": vision, **more}


def clip() -> tuple[Any, Any]:
    pictures = transformers.CLIPImageProcessor(
        size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24}
    )
    config = transformers.CLIPConfig(**dual(projection_dim=16))
    return transformers.CLIPModel(config), transformers.CLIPProcessor(pictures, ended())


def siglip(side: int = 24) -> tuple[Any, Any]:
    settings = dual()
    settings["vision_config"]["image_size"] = side
    pictures = transformers.SiglipImageProcessor(size={"height": side, "width": side})
    model = transformers.SiglipModel(transformers.SiglipConfig(**settings))
    return model, transformers.SiglipProcessor(pictures, ended())


def siglip2(most: int = 48) -> tuple[Any, Any]:
    settings = dual()
    settings["vision_config"].pop("image_size")
    settings["vision_config"]["num_patches"] = 36
    pictures = transformers.Siglip2ImageProcessor(patch_size=4, max_num_patches=most)
    model = transformers.Siglip2Model(transformers.Siglip2Config(**settings))
    return model, transformers.Siglip2Processor(pictures, ended())


def tipsv2() -> tuple[Any, Any]:
    model = of_transformers("Tipsv2Model")
    settings = dual()
    settings["vision_config"].pop("intermediate_size")
    pictures = transformers.Tipsv2ImageProcessor(size={"height": 24, "width": 24})
    config = transformers.Tipsv2Config(**settings)
    return model(config), transformers.Tipsv2Processor(pictures, ended())


BUILDERS = (colqwen2, colpali, colmodernvbert, clip, siglip, siglip2, tipsv2)


@cache
def built(name: str) -> tuple[Any, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return next(make for make in BUILDERS if make.__name__ == name)()


def source(name: str) -> IndexSource:
    return (RetrieverSource if name in RETRIEVERS else DenseSource)(*built(name))


def noise(height: int, width: int, seed: int = 0) -> Tensor:
    """A picture of soft noise."""
    coarse = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(coarse, (height, width), mode="bilinear")[0]


def with_square(picture: Tensor, box: tuple[int, int, int, int]) -> Tensor:
    x0, y0, x1, y1 = box
    picture = picture.clone()
    picture[:, y0:y1, x0:x1] = torch.tensor([1.0, 0.0, 0.0]).view(3, 1, 1)
    return picture


# ---- all models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RETRIEVERS + DENSE)
def test_a_source_of_random_weights_keeps_all_laws_that_ask_for_no_knowledge(name: str) -> None:
    scenes = [
        SourceScene(noise(48, 64, seed), question, (0, 0, 9, 9)) for seed, question in enumerate("ab", 1)
    ]
    laws = ("is described", "keeps views", "fills grids", "repeats", "remembers nothing", "reads questions")
    broken = [what for law in laws for what in conformance.LAWS[law](source(name), scenes)]
    assert not broken


@pytest.mark.parametrize("name", RETRIEVERS + DENSE)
@pytest.mark.parametrize("size", [(48, 96), (96, 48)])
def test_patches_lie_where_the_picture_shows_them(name: str, size: tuple[int, int]) -> None:
    """A bright square changes the vectors of the patches that it covers the most, wherever it is."""
    one, (height, width) = source(name), size
    plain = noise(height, width)
    before = one.view(plain).vectors
    for x, y in ((0, 0), (width - 16, 0), (0, height - 16), (width - 16, height - 16), (width // 4, 16)):
        after = one.view(with_square(plain, (x, y, x + 16, y + 16))).vectors
        change = (after - before).norm(dim=-1)
        rows, columns = change.shape
        row, column = divmod(int(change.flatten().argmax()), columns)
        # by a patch at most, since attention mixes those of random weights
        assert y / height * rows - 1 <= row < (y + 16) / height * rows + 1, (x, y, row, column)
        assert x / width * columns - 1 <= column < (x + 16) / width * columns + 1, (x, y, row, column)


def test_grids_keep_the_shape_of_the_picture_where_the_model_does() -> None:
    shapes = {name: source(name).view(noise(48, 96)).vectors.shape[:2] for name in RETRIEVERS + DENSE}
    assert shapes == {
        "colqwen2": (6, 12),
        "colpali": (6, 6),
        "colmodernvbert": (6, 9),  # 2 x 3 tiles of 3 x 3
        "clip": (6, 6),
        "siglip": (6, 6),
        "siglip2": (5, 9),
        "tipsv2": (6, 6),
    }


@pytest.mark.parametrize("name", RETRIEVERS + DENSE)
def test_versions_tell_weights_and_settings_apart(name: str) -> None:
    model, processor = built(name)
    one = source(name)
    assert one.version == source(name).version
    weight = list(model.parameters())[-1]
    with torch.no_grad():
        weight.flatten()[0] += 1
        other = source(name).version
        weight.flatten()[0] -= 1
    assert other != one.version
    processor.image_processor.rescale_factor *= 2
    assert source(name).version != one.version
    processor.image_processor.rescale_factor /= 2


@pytest.mark.parametrize("name", RETRIEVERS + DENSE)
def test_models_run_in_bfloat16(name: str) -> None:
    model, processor = built(name)
    kind = RetrieverSource if name in RETRIEVERS else DenseSource
    picture, maps = noise(48, 64), []
    for one in (source(name), kind(copy.deepcopy(model).bfloat16(), processor)):
        maps.append(one.couple(one.view(picture), QUESTION, (4, 6)).logits)
    assert maps[1].dtype == torch.float32
    torch.testing.assert_close(*maps, atol=0.05, rtol=0.05)


# ---- retrievers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RETRIEVERS)
def test_only_the_questions_own_tokens_count(name: str) -> None:
    model, processor = built(name)
    bare = processor.process_queries([""], return_tensors="pt")["input_ids"][0].tolist()
    whole = processor.process_queries([QUESTION], return_tensors="pt")
    ids = whole["input_ids"][0].tolist()
    assert processor.tokenizer.decode(ids[own_tokens(bare, ids)]) == QUESTION
    assert len(ids) >= len(QUESTION) + 10  # each of the processors expands
    with torch.no_grad():
        vectors = model(**whole).embeddings[0, own_tokens(bare, ids)]
    one, picture = source(name), noise(48, 64)
    view = one.view(picture)
    cosines = torch.einsum("hwd,td->hwt", view.vectors, vectors)
    coupling = one.couple(view, QUESTION, view.vectors.shape[:2])
    torch.testing.assert_close(coupling.logits, cosines.mean(-1), atol=1e-5, rtol=1e-5)
    score = cosines.flatten(0, 1).amax(0).mean()
    expected = torch.sigmoid(patches.TOKENS.slope * (score - patches.TOKENS.middle))
    assert coupling.confidence == pytest.approx(float(expected), abs=1e-5)
    assert not coupling.findings


@pytest.mark.parametrize(
    ("bare", "whole", "own"),
    [
        ([1, 5, 6, 9, 9, 2], [1, 5, 6, 7, 8, 9, 9, 2], [7, 8]),
        (
            [1, 5, 6, 9, 9, 2],
            [1, 5, 78, 79, 9, 9, 2],
            [78, 79],
        ),  # the space of "Query: " joins the first word
        ([9, 9], [7, 9, 9], [7]),  # no prefix
        ([1, 5], [1, 5, 7, 8], [7, 8]),  # no expansion
        ([1, 5, 9], [1, 5, 5, 9, 9], [5, 9]),  # a question of the prompt's own tokens
        ([1, 5, 9], [1, 5, 9], []),
    ],
)
def test_own_tokens(bare: list[int], whole: list[int], own: list[int]) -> None:
    assert whole[own_tokens(bare, whole)] == own


@pytest.mark.parametrize("name", RETRIEVERS)
def test_questions_without_words_or_with_marks_of_the_prompt(name: str) -> None:
    one, processor = source(name), built(name)[1]
    view = one.view(noise(24, 24))
    empty = one.couple(view, "", (2, 3))
    assert empty.confidence == 0
    assert torch.equal(empty.logits, torch.zeros(2, 3))
    marked = one.couple(view, f"a{processor.image_token}b", (2, 3))
    assert torch.equal(marked.logits, one.couple(view, "a b", (2, 3)).logits)


def test_tiles_are_joined_and_the_picture_of_the_whole_left_out() -> None:
    rows, columns, side = 2, 3, 4
    y, x = torch.meshgrid(torch.arange(rows * side), torch.arange(columns * side), indexing="ij")
    picture = torch.stack((y, x), -1).float()
    tiles = [
        picture[side * i : side * (i + 1), side * j : side * (j + 1)].reshape(-1, 2)
        for i in range(rows)
        for j in range(columns)
    ]
    vectors = torch.cat([*tiles, torch.full((side**2, 2), -1.0)])
    assert torch.equal(join_tiles(vectors, rows, columns), picture)


@pytest.mark.parametrize("size", [(24, 24), (60, 20), (7, 300), (72, 71)])
def test_tiles_have_no_border(size: tuple[int, int]) -> None:
    processor = built("colmodernvbert")[1]
    inputs = processor.process_images(images=[to_image(noise(*size))], return_tensors="pt")
    assert inputs["pixel_attention_mask"].all()
    source("colmodernvbert").view(noise(*size))


# ---- dual encoders ---------------------------------------------------------------------------------------


def test_clip_goes_by_values_alone() -> None:
    model, _ = built("clip")
    one, picture = source("clip"), noise(24, 48)
    last = model.vision_model.encoder.layers[-1].self_attn
    before, inputs = one.view(picture).vectors, torch.rand(1, 3, 24, 24)
    with torch.no_grad():
        pooled = model.get_image_features(inputs).pooler_output
        states = model.vision_model(inputs, output_hidden_states=True)
        again = model.vision_model.encoder.layers[-1](states.hidden_states[-2], None)
        torch.testing.assert_close(again, states.last_hidden_state)
        last.q_proj.weight.mul_(-3)
        after = one.view(picture).vectors
        moved = model.get_image_features(inputs).pooler_output
        last.q_proj.weight.div_(-3)
    assert torch.equal(before, after)
    assert not torch.allclose(pooled, moved)


@pytest.mark.parametrize("made", [lambda: siglip(side=4), lambda: siglip2(most=1)])
def test_siglips_head_sees_each_patch_alone(made: Any) -> None:
    """A picture of one patch has the vector of the whole picture."""
    model, processor = made()
    one, picture = DenseSource(model, processor), noise(4, 4)
    inputs = processor.image_processor(images=[to_image(picture)], return_tensors="pt")
    with torch.no_grad():
        whole = model.get_image_features(**inputs).pooler_output
    vectors = one.view(picture).vectors
    assert vectors.shape[:2] == (1, 1)
    torch.testing.assert_close(vectors[0], F.normalize(whole, dim=-1), atol=1e-5, rtol=1e-5)


def test_dual_encoders_compare_with_the_models_own_vector_of_a_question() -> None:
    for name in DENSE:
        model, processor = built(name)
        one, view = source(name), source(name).view(noise(48, 48))
        inputs = processor.tokenizer([QUESTION], padding="max_length", max_length=40, return_tensors="pt")
        masked = {} if "siglip" in name else {"attention_mask": inputs["attention_mask"]}
        with torch.no_grad():
            text = model.get_text_features(inputs["input_ids"], **masked).pooler_output[0]
        expected = view.vectors @ F.normalize(text, dim=-1)
        torch.testing.assert_close(one.couple(view, QUESTION, expected.shape).logits, expected)
        one.couple(view, "long " * 100, (2, 2))  # is cut


def test_siglip_says_itself_how_sure_it_is() -> None:
    model, processor = siglip()
    with torch.no_grad():
        model.logit_scale.fill_(2.0)
        model.logit_bias.fill_(-3.0)
    one = DenseSource(model, processor)
    view = one.view(noise(24, 24))
    best = float(one.couple(view, QUESTION, (6, 6)).logits.max())
    logit = torch.tensor(best) * torch.tensor(2.0).exp() - 3
    assert one.couple(view, QUESTION, (6, 6)).confidence == pytest.approx(float(logit.sigmoid()), abs=1e-5)
    assert source("clip").sureness == patches.TEXTS
    assert DenseSource(*built("clip"), sureness=Sureness(1.0, 0.0)).sureness == Sureness(1.0, 0.0)


def test_other_models_are_no_dual_encoders() -> None:
    with pytest.raises(ValueError, match="'ColQwen2ForRetrieval' is no dual encoder for 'dense': use clip"):
        DenseSource(*built("colqwen2"))


# ---- vectors of one's own --------------------------------------------------------------------------------

AXES = torch.eye(4)


def axis(question: str) -> Tensor:
    """A question "0" to "3" as one axis, with some of the next one for each letter behind."""
    return AXES[[int(letter) for letter in question]]


def corners() -> Tensor:
    """Patches 2 x 2, each along an axis of its own."""
    return AXES.view(2, 2, 4).clone()


def test_an_index_scores_by_cosines() -> None:
    one = IndexSource(corners() * 7, axis)
    view = one.view(torch.zeros(3, 10, 20))
    assert view.size == (10, 20)
    assert view.nbytes == 64
    assert torch.equal(one.couple(view, "2", (2, 2)).logits, torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
    both = one.couple(view, "03", (2, 2))
    assert torch.equal(both.logits, torch.tensor([[0.5, 0.0], [0.0, 0.5]]))
    assert both.confidence == pytest.approx(1 / (1 + torch.e ** (-16 * 0.4)), rel=1e-5)
    assert one.calibration is None
    assert one.version != IndexSource(corners() * 8, axis).version
    seen = IndexSource(lambda picture: corners() + picture.mean(), axis)
    assert seen.version == "1"
    assert torch.equal(seen.view(torch.zeros(3, 5, 5)).vectors, corners())


@pytest.mark.parametrize(
    ("vectors", "question", "message"),
    [
        (torch.zeros(2, 4), AXES, r"has vectors \[2, 4\] for patches: give finite \[h, w, D\]"),
        (torch.full((2, 2, 4), torch.nan), AXES, r"has vectors \[2, 2, 4\] for patches: give finite"),
        (torch.zeros(0, 2, 4), AXES, r"has vectors \[0, 2, 4\] for patches"),
        (corners(), AXES[0], r"has vectors \[4\] for a question: give finite \[T, D\]"),
        (corners(), torch.eye(3), "vectors of 4 numbers for patches and of 3 for a question: take both"),
    ],
)
def test_vectors_that_fit_nothing_are_refused(vectors: Tensor, question: Tensor, message: str) -> None:
    one = IndexSource(vectors, lambda text: question)
    with pytest.raises(ValueError, match=f"relevance 'index' .*{message}"):
        one.couple(one.view(torch.zeros(3, 8, 8)), "?", (2, 2))


@pytest.mark.parametrize(("sign", "known"), [(1, True), (-1, False)])
def test_a_calibration_is_fitted_where_the_sign_is_right(sign: int, known: bool) -> None:
    one = IndexSource(
        lambda picture: F.normalize(corners() + picture.mean(0)[:2, :2, None] * 2, dim=-1), axis
    )
    examples = [
        (
            torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(i)),
            str(i % 4),
            AXES[i % 4].view(2, 2) > 0,
        )
        for i in range(12)
    ]
    if sign < 0:
        examples = [(picture, question, ~evidence) for picture, question, evidence in examples]
    found = calibrate(one, examples)
    assert (found is not None) == known
    if found is not None:
        assert IndexSource(corners(), axis, calibration=found).calibration == found


def test_an_index_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "page.safetensors"
    save_file({"patches": corners().half(), QUESTION: AXES[2:3].half(), "Who?": AXES[:2].half()}, file)
    one = open_index(str(file))
    view = one.view(torch.zeros(3, 8, 8))
    assert torch.equal(one.couple(view, f" {QUESTION} ", (2, 2)).logits, AXES[2].view(2, 2))
    assert torch.equal(one.couple(view, "Who?", (2, 2)).logits, AXES[:2].mean(0).view(2, 2))
    with pytest.raises(ValueError, match=r"no vectors of the question 'Where\?': add a tensor \[T, D\]"):
        one.couple(view, "Where?", (2, 2))
    assert one.version == open_index(str(file)).version
    save_file({"patches": corners(), QUESTION: AXES[:1]}, file)
    assert one.version != open_index(str(file)).version


def test_files_that_are_no_index(tmp_path: Path) -> None:
    file = tmp_path / "page.safetensors"
    with pytest.raises(ValueError, match=r"'index' needs a file, index:FILE.safetensors: save \{"):
        open_index()
    with pytest.raises(ValueError, match=r"page.safetensors' can't be read \(.*; save"):
        open_index(str(file))
    with pytest.raises(ValueError, match="is a folder: give the path of a file"):
        open_index(str(tmp_path))
    torch.save({"patches": corners()}, file)
    with pytest.raises(ValueError, match="can't be read"):
        open_index(str(file))
    for tensors in ({QUESTION: AXES}, {"patches": AXES}):
        save_file(tensors, file)
        with pytest.raises(ValueError, match=r"has no tensor 'patches' of \[h, w, D\]: save"):
            open_index(str(file))


# ---- by name ---------------------------------------------------------------------------------------------


def saved(name: str, folder: Path, **settings: Any) -> str:
    model, processor = built(name)
    model.save_pretrained(folder, **settings)
    processor.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(("name", "opened"), [("colqwen2", open_retriever), ("siglip", open_dense)])
def test_models_open_from_folders(name: str, opened: Any, tmp_path: Path) -> None:
    one, other = opened(saved(name, tmp_path)), source(name)
    assert one.version == other.version
    assert one.name == other.name
    assert opened(str(tmp_path)).model is one.model
    picture = noise(32, 48)
    maps = [each.couple(each.view(picture), QUESTION, (4, 6)).logits for each in (one, other)]
    assert torch.equal(*maps)


def test_names_of_no_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'retriever' needs a model: .* retriever:vidore/colqwen2-v1.0-hf"):
        open_retriever()
    with pytest.raises(ValueError, match=r"'dense' needs a model: .* dense:google/siglip2-base-patch16-224"):
        open_dense()
    with pytest.raises(ValueError, match="NUL"):
        open_dense("a\0b")
    with pytest.raises(ValueError, match=r"can't be loaded .*; give a folder or a name on the Hub") as caught:
        open_dense(str(tmp_path))
    assert "\n" not in str(caught.value)
    folder = saved("siglip", tmp_path / "siglip")
    with pytest.raises(ValueError, match=r"its type is 'siglip' and none of colmodernvbert, colpali"):
        open_retriever(folder)


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    folder = Path(saved("siglip", tmp_path))
    weights = built("siglip")[0].state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"can't be loaded .*safetensors"):
        open_dense(str(folder))


def test_a_model_of_the_hub_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unreachable(name: str, **_: object) -> str:
        asked.append(name)
        raise OSError("Connection refused")

    monkeypatch.setattr("arr_coc.files.hub.snapshot_download", unreachable)
    for opener in (open_retriever, open_dense):
        with pytest.raises(ValueError, match=r"'some/model' can't be .*refused\); give a folder"):
            opener("some/model")
    assert asked == ["some/model"] * 2
