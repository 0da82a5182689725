"""The training stages of the bundled model: words, targets, packing and resuming, on a few tiny steps."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from arr_coc.training import bundled, language, packing, together, vision
from arr_coc.training.checkpoint import Optimizers, load_checkpoint, save_checkpoint
from arr_coc.training.sheet import draw_sheet
from arr_coc.training.targets import IGNORE, NONE, cell_targets, clues, evidence_mask, glyph_targets
from arr_coc.training.words import ROLE_WORDS, ROLES, build_embeddings, build_roles, build_tokenizer
from arr_coc.world import Question, Thing, draw_page


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="module")
def embeddings(tokenizer):
    return build_embeddings(tokenizer, bundled.DIM)


@pytest.fixture(scope="module")
def model(tokenizer, embeddings):
    return bundled.build_model(tokenizer, embeddings).eval()


def test_any_text_is_legal_and_comes_back(tokenizer):
    for text in ("What is the invoice number?", "ça va? 数字 🙂\n\t~", "Z9K QQ7", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_codes_are_cut_into_single_characters(tokenizer):
    assert [tokenizer.decode([i]) for i in tokenizer.encode("WHAT7K2")] == list("WHAT7K2")


def test_role_words_are_orthonormal_and_variants_are_near(tokenizer, embeddings):
    words = sorted({w for words in ROLE_WORDS.values() for w in words})
    rows = embeddings[[tokenizer.encode(w)[0] for w in words]]
    torch.testing.assert_close(rows @ rows.T, torch.eye(len(words)), atol=1e-5, rtol=0)
    a, b = (embeddings[tokenizer.encode(w)[0]] for w in ("red", " red"))
    assert 0.6 < float(a @ b) < 0.99


def test_a_sum_of_words_can_be_read_back_in_every_role(tokenizer, embeddings):
    roles = build_roles(tokenizer, embeddings)
    torch.manual_seed(0)
    words = torch.stack([torch.randint(len(ROLE_WORDS[r]), (40,)) for r in ROLES], 1)
    words[:, 5:] = -1  # a shape: colour, shape, centre, size, column
    scores = roles.scores(language.sum_of_words(words, roles, noise=0.0))
    for r, role in enumerate(ROLES[:5]):
        start, stop = roles.spans[role]
        assert (scores[:, start:stop].argmax(1) == words[:, r]).all(), role


def test_patchify_is_the_processors_arithmetic(tokenizer):
    page = draw_page(2, (160, 96))
    image = torch.from_numpy(np.array(page.image)).permute(2, 0, 1).float() / 255
    processor = bundled.build_processor(tokenizer)
    batch = processor.image_processor(images=[page.image], return_tensors="pt")
    torch.testing.assert_close(bundled.patchify(image), batch["pixel_values"], atol=1e-6, rtol=0)
    assert batch["image_grid_thw"].tolist() == [[1, 6, 10]]


def test_a_sheet_holds_more_characters_of_values_than_a_page():
    def share(draw):
        places = [glyph_targets(draw(seed, (256, 256)))[1] for seed in range(12)]
        return np.mean([(p > 0).mean() for p in places])

    assert share(draw_sheet) > 1.5 * share(draw_page)
    first, again = (draw_sheet(5, (256, 192)) for _ in range(2))
    assert first.image.tobytes() == again.image.tobytes()
    assert not first.questions


def test_targets_lie_under_what_was_drawn():
    page = draw_page(4, (512, 512))
    words, (glyphs, places) = cell_targets(page), glyph_targets(page)
    assert words.shape == (len(ROLES), 16, 16)
    assert glyphs.shape == (32, 32)
    label = words[ROLES.index("label")]
    text = evidence_mask(tuple(b for f in page.facts for b in f.boxes), 16, 16)
    assert (label >= 0).any()
    assert text[label >= 0].all()
    assert set(np.unique(words[:, label == IGNORE])) <= {IGNORE}
    centre = words[ROLES.index("centre")]
    assert (centre >= 0).sum() == len({(t.y // 32, t.x // 32) for t in page.things})
    # Every piece of every value is known to some cell of its text, unless its cells are cut too finely.
    for fact in page.facts:
        here = evidence_mask(fact.boxes, 16, 16)
        for i in range(len(fact.value)):
            found = words[ROLES.index(f"value{i + 1}")][here]
            assert ((found >= 0) | (found == IGNORE)).any(), (fact, i)
    assert (glyphs == NONE).any()
    assert ((glyphs == NONE) == (places == NONE)).all()
    assert set(range(4)) <= set(np.unique(places))  # labels, and the first three characters of codes


def test_packed_questions_equal_each_question_alone(tokenizer, model):
    page = draw_page(3, (256, 192))
    asked = list(page.questions)[:3]
    assert len(asked) == 3
    cells = torch.from_numpy(np.argwhere(np.ones((6, 8), bool)))
    batch = language.collate([packing.pack(tokenizer, cells, (6, 8), asked)], tokenizer.pad_token_id)
    image = torch.from_numpy(np.array(page.image)).permute(2, 0, 1).float() / 255
    batch |= {
        "pixels": bundled.patchify(image),
        "grid": torch.tensor([[1, 12, 16]]),
        "kept": torch.ones(48, dtype=torch.bool),
    }
    wanted = batch["labels"] != packing.IGNORED
    processor = bundled.build_processor(tokenizer)
    with torch.no_grad():
        packed, _ = together.answer_logits(model, batch, wanted)
        for number, question in enumerate(asked, start=1):
            content = [{"type": "image"}, {"type": "text", "text": question.text}]
            text = processor.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True
            )
            alone = model(**processor(text=[text], images=[page.image], return_tensors="pt")).logits[0, -1]
            here = (batch["block"][0] == number) & wanted[0]
            torch.testing.assert_close(packed[0][here][0], alone, atol=2e-5, rtol=0)


def test_still_images_are_embedded_as_ever(model):
    patches = torch.randn(8, 1, 3, 1, 256).expand(-1, -1, -1, 2, -1).reshape(8, 1536)
    embed = model.model.visual.patch_embed
    torch.testing.assert_close(bundled.StillPatchEmbed(embed)(patches), embed(patches), atol=1e-5, rtol=0)


def test_clues_name_what_a_comparison_looks_up(tokenizer):
    things = [Thing("red", "star", 10, 10, 120), Thing("blue", "ring", 500, 10, 40)]
    wide = Question(
        "Which is larger, the red star or the blue ring?", "red star", "larger", (), ("red", " star")
    )
    assert clues(wide, things, 512) == [(" red star", "7"), (" blue ring", "0")]
    left = Question(
        "Of the red star and the blue ring, which is further left?", "", "left", (), ("red", " star")
    )
    assert clues(left, things, 512) == []  # what to look up is not known yet
    colour = Question("What colour is the star?", "red", "colour", (), ("red",))
    assert clues(colour, things, 512) == []
    packed = packing.pack(tokenizer, torch.zeros(1, 2).long(), (1, 1), [wide], [clues(wide, things, 512)])
    for mention, word in ((" star", "7"), (" ring", "0")):
        at = next(i for i, x in enumerate(packed.ids.tolist()) if tokenizer.decode([x]) == mention)
        assert tokenizer.decode([int(packed.hints[at])]) == word


def test_packed_questions_see_no_other_question(tokenizer):
    block = torch.tensor([0, 0, 1, 1, 2, 2, -1])
    seen = packing.attention(block)[0] == 0
    assert seen[2, :3].all()
    assert not seen[4, 2:4].any()
    assert not seen[:6, 6].any()
    assert not seen[2, 3]


def test_the_telling_word_is_found(tokenizer):
    for text, word in (("Tell me the seat, please.", " seat"), ("The star is which color?", " star")):
        ids = packing.prompt_tokens(tokenizer, text)
        assert tokenizer.decode([ids[packing.telling(tokenizer, ids)]]) == word


def test_pieces_of_a_value_are_all_shown_somewhere():
    rng = random.Random(0)
    for _ in range(200):
        facts, _, _ = language.symbolic_page(rng, 5, 5)
        for fact in facts:
            cells = language.spread(rng, fact)
            for i in range(len(fact.value)):
                assert any(f"value{i + 1}" in cell for cell in cells), (fact, cells)


def test_dense_loss_is_small_for_perfect_eyes_only(tokenizer, embeddings):
    roles = build_roles(tokenizer, embeddings)
    words = torch.from_numpy(cell_targets(draw_page(4, (256, 256)))).flatten(1).long()
    perfect = torch.zeros(words.shape[1], bundled.DIM)
    for r, role in enumerate(ROLES):
        there = words[r] >= 0
        perfect[there] += roles.directions[roles.spans[role][0] + words[r][there]]
    good, accuracy = vision.dense_loss(perfect, words, roles)
    bad, _ = vision.dense_loss(torch.zeros_like(perfect), words, roles)
    assert float(good) < 0.2 * float(bad)
    assert min(accuracy.values()) > 0.9


def test_a_killed_run_goes_on_to_the_same_result(tmp_path):
    def build():
        torch.manual_seed(0)
        net = torch.nn.Sequential()
        net.add_module("blocks", torch.nn.Linear(6, 6))
        net.add_module("head", torch.nn.Linear(6, 2))
        return net, Optimizers(net.named_parameters(), 1e-2)

    def steps(net, optimizer, first, last):
        for step in range(first, last):
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
            optimizer.step(net(x).square().mean(), 1e-2)

    net, optimizer = build()
    steps(net, optimizer, 0, 6)
    other, other_optimizer = build()
    steps(other, other_optimizer, 0, 3)
    save_checkpoint(tmp_path / "run.safetensors", other, other_optimizer, 3)
    resumed, resumed_optimizer = build()
    assert load_checkpoint(tmp_path / "run.safetensors", resumed, resumed_optimizer) == 3
    steps(resumed, resumed_optimizer, 3, 6)
    for a, b in zip(net.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="no weight"):
        load_checkpoint(tmp_path / "run.safetensors", torch.nn.Linear(3, 3))


def test_stages_run_end_to_end(tmp_path, tokenizer):
    v = tmp_path / "v.safetensors"
    vision.train(v, [96], 2, 18, 1e-3, 1, until=1)
    vision.train(v, [96], 2, 18, 1e-3, 1, sheets=1.0)
    vision.train(v, [96], 2, 18, 1e-3, 1, until=1)  # past it already: nothing happens
    assert (
        load_checkpoint(
            v, vision.Eyes(bundled.build_model(tokenizer, build_embeddings(tokenizer, bundled.DIM)))
        )
        == 2
    )
    language.train(tmp_path / "l.safetensors", 2, 1, 1e-3, 1)
    together.train(
        tmp_path / "t.safetensors",
        v,
        tmp_path / "l.safetensors",
        [128],
        16,
        1,
        1e-4,
        0.2,
        0.05,
        1,
        None,
        tmp_path / "model",
        sheets=0.5,
    )
    last = json.loads((tmp_path / "t.jsonl").read_text().splitlines()[-1])
    assert 0 <= last["validation"]["all"] <= 1
    from transformers import AutoModelForImageTextToText, AutoProcessor

    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path / "model")
    assert type(loaded).__name__ == "Qwen3VLForConditionalGeneration"
    assert AutoProcessor.from_pretrained(tmp_path / "model").tokenizer.chat_template is not None
