r"""Pack one page and many questions about it into one sequence.

    [<|im_start|>user\n<|vision_start|>] [visual tokens] [<|vision_end|>]
    [question 1 + answer 1] [question 2 + answer 2] ...

Every question sees the page and itself, never another question, and stands at the positions it would have
alone; so one pass over a page teaches all of its questions. The mask is additive and may carry
log-multiplicities: a single empty token can stand for many.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from arr_coc_lab.world import Question
from arr_coc_lab.world.vocabulary import SHAPES, plural
from making.words import ROLE_WORDS

IGNORED = -100
_KEYS = {w.strip().lower() for role in ("colour", "shape", "label") for w in ROLE_WORDS[role]}
_KEYS |= {plural(s) for s in SHAPES}


@dataclass(frozen=True)
class Packed:
    """A page and its questions, as ids; the caller puts visual tokens at `visual`.

    ids [S]; positions [3, S]; block [S] (0 the page, 1.. the questions); visual: slice of the visual tokens;
    labels [S]: the next answer token, or IGNORED; hints [S]: the answer's first token at every place of the
    question from its last telling word on (so that the answer is fetched as early as it can be), a clue where
    one is given, or IGNORED.
    """

    ids: Tensor
    positions: Tensor
    block: Tensor
    visual: slice
    labels: Tensor
    hints: Tensor


@lru_cache(maxsize=4096)
def _encode(tokenizer: PreTrainedTokenizerFast, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def prompt_tokens(tokenizer: PreTrainedTokenizerFast, question: str) -> list[int]:
    """Ids of everything after the image up to where the answer begins."""
    return list(_encode(tokenizer, "<|vision_end|>" + question + "<|im_end|>\n<|im_start|>assistant\n"))


def telling(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> int:
    """Index of the last token that names a label, colour or shape; the end where there is none."""
    for i in range(len(ids) - 1, -1, -1):
        if _encode_word(tokenizer, ids[i]) in _KEYS:
            return i
    return len(ids) - 1


@lru_cache(maxsize=4096)
def _encode_word(tokenizer: PreTrainedTokenizerFast, index: int) -> str:
    return cast(str, tokenizer.decode([index])).strip().lower()


def _end(ids: list[int], part: list[int]) -> int:
    """Index in `ids` of the last token of `part`, which occurs in it."""
    return next(i for i in range(len(part) - 1, len(ids)) if ids[i + 1 - len(part) : i + 1] == part)


def pack(
    tokenizer: PreTrainedTokenizerFast,
    cells: Tensor,
    grid: tuple[int, int],
    questions: list[Question],
    clues: list[list[tuple[str, str]]] | None = None,
    answers: list[list[int]] | None = None,
) -> Packed:
    """Lay out a page and its questions.

    Args:
        tokenizer: of the bundled model.
        cells: long [M, 2], (y, x) of the visual tokens, in their order.
        grid: (H, W) of the whole image: text resumes after the whole image, whatever was kept of it.
        questions: asked one beside another.
        clues: per question, (part of its text, word) pairs: a hint to think of the word where that part ends.
        answers: per question the tokens of its answer, not its pieces; hinted at where the question ends.
    """
    head = list(_encode(tokenizer, "<|im_start|>user\n<|vision_start|>"))
    pad = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    ids, start = head + [pad] * len(cells), len(head)
    at = torch.cat([torch.zeros(len(cells), 1, dtype=torch.long), cells], 1).T + start  # (3, M)
    positions = [torch.arange(start).expand(3, -1), at]
    labels, hints, block = [IGNORED] * len(ids), [IGNORED] * len(ids), [0] * len(ids)
    resume = start + max(grid)
    for number, question in enumerate(questions, start=1):
        prompt = prompt_tokens(tokenizer, question.text)
        if answers is None:
            answer = [_encode(tokenizer, piece)[0] for piece in question.pieces]
            first = telling(tokenizer, prompt)
        else:
            answer, first = list(answers[number - 1]), prompt.index(tokenizer.eos_token_id)
        answer.append(tokenizer.eos_token_id)
        hint = [IGNORED] * first + [answer[0]] * (len(prompt) - first) + [IGNORED] * (len(answer) - 1)
        for part, word in clues[number - 1] if clues else ():
            hint[_end(prompt, list(_encode(tokenizer, part)))] = _encode(tokenizer, word)[0]
        ids += prompt + answer[:-1]
        labels += [IGNORED] * (len(prompt) - 1) + answer
        hints += hint
        block += [number] * (len(prompt) + len(answer) - 1)
        positions.append(torch.arange(resume, resume + len(prompt) + len(answer) - 1).expand(3, -1))
    return Packed(
        torch.tensor(ids),
        torch.cat(positions, 1),
        torch.tensor(block),
        slice(start, start + len(cells)),
        torch.tensor(labels),
        torch.tensor(hints),
    )


def attention(block: Tensor, weight: Tensor | None = None) -> Tensor:
    """Additive mask [1, S, S] of a packed sequence; `weight` [S] adds log-multiplicities to the keys.

    Padding has block -1: it sees itself and nobody sees it.
    """
    size = len(block)
    same = (block[:, None] == block[None, :]) | ((block[None, :] == 0) & (block[:, None] >= 0))
    visible = same & torch.ones(size, size, dtype=torch.bool).tril()
    visible &= (block[None, :] >= 0) | torch.eye(size, dtype=torch.bool)
    mask = torch.zeros(size, size).masked_fill(~visible, torch.finfo(torch.float32).min)
    if weight is not None:
        mask = mask + weight.log()[None, :]
    return mask[None]
