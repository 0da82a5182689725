"""A page and many questions in one sequence."""

from __future__ import annotations

import numpy as np
import torch

from arr_coc_lab.world import draw_page
from making import bundled, language, packing, together
from near import near


def test_packed_questions_equal_each_question_alone(tokenizer, model):
    page = draw_page(3, (256, 192))
    questions = list(page.questions)[:3]
    assert len(questions) == 3
    cells = torch.from_numpy(np.argwhere(np.ones((6, 8), bool)))
    batch = language.collate([packing.pack(tokenizer, cells, (6, 8), questions)], tokenizer.pad_token_id)
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
        for number, question in enumerate(questions, start=1):
            content = [{"type": "image"}, {"type": "text", "text": question.text}]
            text = processor.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True
            )
            alone = model(**processor(text=[text], images=[page.image], return_tensors="pt")).logits[0, -1]
            here = (batch["block"][0] == number) & wanted[0]
            assert near(packed[0][here][0], alone)


def test_packed_questions_see_no_other_question(tokenizer):
    block = torch.tensor([0, 0, 1, 1, 2, 2, -1])
    visible = packing.attention(block)[0] == 0
    assert visible[2, :3].all()
    assert not visible[4, 2:4].any()
    assert not visible[:6, 6].any()
    assert not visible[2, 3]


def test_the_telling_word_is_found(tokenizer):
    for text, word in (("Tell me the seat, please.", " seat"), ("The star is which color?", " star")):
        ids = packing.prompt_tokens(tokenizer, text)
        assert tokenizer.decode([ids[packing.telling(tokenizer, ids)]]) == word
