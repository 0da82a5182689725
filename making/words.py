"""Tokenizer, word embeddings and roles of the bundled model: its vision tower and language model share them.

A visual token of the bundled model is a sum of word embeddings, each turned by a fixed orthogonal matrix that
says what part the word plays in the cell:

    token(cell) = sum over roles r that hold in the cell of  R_r e(word)

so that `score(r, w) = token . R_r e(w)` reads the cell, and the language model can be taught on symbols
alone. Roles: colour, shape, centre (the cell with the middle of a shape, which makes shapes countable), size,
column, the label of a text, and each token of its value. Embeddings are fixed: words that play roles are
orthonormal, variants of a word (`red`, ` red`, `Red`) share most of their vector.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from arr_coc_lab.world.vocabulary import (
    ALPHABET,
    COLOURS,
    KINDS,
    LABELS,
    PARAPHRASES,
    SHAPES,
    TITLE_FIRST,
    TITLE_SECOND,
    plural,
    with_article,
)

SPECIAL_TOKENS: tuple[str, ...] = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' or 'image' in part or 'image_url' in part %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' or 'video' in part %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

SIZE_BUCKETS, COLUMN_BUCKETS, VALUE_LENGTH = 8, 16, 5

_VALUE = tuple(ALPHABET)
ROLE_WORDS: dict[str, tuple[str, ...]] = {
    "colour": tuple(COLOURS),
    "shape": SHAPES,
    "centre": (" one",),
    "size": tuple(str(i) for i in range(SIZE_BUCKETS)),
    "column": tuple(chr(ord("A") + i) for i in range(COLUMN_BUCKETS)),
    "label": tuple(" " + w for w in LABELS + KINDS),
    "value1": _VALUE + TITLE_FIRST,
    "value2": _VALUE + tuple(" " + w for w in TITLE_SECOND),
    "value3": _VALUE,
    "value4": _VALUE,
    "value5": _VALUE,
}
ROLES: tuple[str, ...] = tuple(ROLE_WORDS)


def question_corpus(count: int = 40_000, seed: int = 0) -> list[str]:
    """Question texts with every word of the world in every place, for training the tokenizer."""
    rng = random.Random(seed)

    def pair() -> str:
        return f"{rng.choice(list(COLOURS))} {rng.choice(SHAPES)}"

    lines = []
    for _ in range(count):
        family = rng.choice(list(PARAPHRASES))
        label = rng.choice(LABELS)
        what = rng.choice((f"{rng.choice(list(COLOURS))} shapes", plural(rng.choice(SHAPES))))
        a = with_article(pair()) if family == "presence" else pair()
        lines.append(
            rng.choice(PARAPHRASES[family]).format(
                label=label,
                Label=label.capitalize(),
                shape=rng.choice(SHAPES),
                colour=rng.choice(list(COLOURS)),
                what=what,
                a=a,
                b=pair(),
            )
        )
    # Answers, and the frame of a chat turn.
    lines += [f"{a} {b}" for a in TITLE_FIRST for b in TITLE_SECOND] * 4
    lines += [f"{c} {s}" for c in COLOURS for s in SHAPES] * 8
    lines += [w for w in (*SHAPES, "yes", "no", "user", "assistant", "system") for _ in range(200)]
    return lines


def build_tokenizer(vocab_size: int = 900) -> PreTrainedTokenizerFast:
    """Train the byte-level BPE tokenizer; any text is legal, words of the world are single tokens.

    Raises:
        ValueError: a word that plays a role is not a single token.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            # Runs of capitals are codes: one token a character, so that no code is a word.
            pre_tokenizers.Split(Regex(r"\p{Lu}(?=\p{Lu}|\p{N}|\P{L}|$)|\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(question_corpus(), trainer)
    fast = _fast(tokenizer)
    for words in ROLE_WORDS.values():
        for word in words:
            if len(fast.encode(word, add_special_tokens=False)) != 1:
                raise ValueError(
                    f"the tokenizer cuts {word!r}, which must be one token; raise vocab_size={vocab_size}"
                )
    return fast


def spelling_tokenizer(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """A tokenizer with the same tokens that spells every word which is no token: one token a byte.

    Questions about drawn pages are cut as before, as all of their words are tokens.
    """
    settings = json.loads(tokenizer.backend_tokenizer.to_str())
    settings["model"] |= {"merges": [], "ignore_merges": True}
    return _fast(Tokenizer.from_str(json.dumps(settings)))


def _fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """A tokenizer as transformers takes it, with the model's special tokens and chat template."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL_TOKENS),
        model_max_length=32768,
        padding_side="left",
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_embeddings(tokenizer: PreTrainedTokenizerFast, dim: int, seed: int = 0) -> Tensor:
    """Unit embeddings [V, D]: role words orthonormal, variants of one word close (cosine 0.8)."""
    generator = torch.Generator().manual_seed(seed)
    stems: dict[str, Tensor] = {}
    # Capitals stay apart from small letters: `A` is a character of a code, ` a` is an article.
    roles = list(dict.fromkeys(_stem(w) for words in ROLE_WORDS.values() for w in words))
    basis = torch.linalg.qr(torch.randn(dim, dim, generator=generator)).Q
    if len(roles) > dim:
        raise ValueError(
            f"{len(roles)} role words need an embedding of at least as many dimensions, got {dim}"
        )
    stems.update({stem: basis[i] for i, stem in enumerate(roles)})
    table = torch.empty(len(tokenizer), dim)
    for token, index in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        text = tokenizer.convert_tokens_to_string([token]) if token not in SPECIAL_TOKENS else token
        stem = _stem(text)
        if stem not in stems:
            stems[stem] = torch.nn.functional.normalize(torch.randn(dim, generator=generator), dim=0)
        own = torch.nn.functional.normalize(torch.randn(dim, generator=generator), dim=0)
        variant = 0.0 if text in _EXACT else 0.75
        table[index] = torch.nn.functional.normalize(stems[stem] + variant * own, dim=0)
    return table


def _stem(text: str) -> str:
    word = text.strip()
    if len(word) > 1:
        word = word.lower()
        for shape in SHAPES:
            if word == plural(shape):
                return shape
    return word


_EXACT = {w for words in ROLE_WORDS.values() for w in words}


@dataclass(frozen=True)
class RoleSpace:
    """Fixed read-out directions.

    `directions` [M, D]: one unit vector R_r e(w) for every pair of role and word, roles one after another;
    `spans`: (start, stop) of each role in it.
    """

    directions: Tensor
    spans: dict[str, tuple[int, int]]

    def scores(self, tokens: Tensor) -> Tensor:
        """[..., D] -> [..., M]."""
        return tokens @ self.directions.T


def turns(dim: int, count: int, seed: int = 1) -> list[Tensor]:
    """Random orthogonal matrices [dim, dim], one a role; more of them begin with the same ones."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.linalg.qr(torch.randn(dim, dim, generator=generator)).Q for _ in range(count)]


def build_roles(tokenizer: PreTrainedTokenizerFast, embeddings: Tensor, seed: int = 1) -> RoleSpace:
    """Turn the words of every role by that role's own random orthogonal matrix."""
    rows, spans, start = [], {}, 0
    every = turns(embeddings.shape[1], len(ROLE_WORDS), seed)
    for (role, words), turn in zip(ROLE_WORDS.items(), every, strict=True):
        ids = [tokenizer.encode(w, add_special_tokens=False)[0] for w in words]
        rows.append(embeddings[ids] @ turn.T)
        spans[role] = (start, start + len(words))
        start += len(words)
    return RoleSpace(torch.cat(rows), spans)
