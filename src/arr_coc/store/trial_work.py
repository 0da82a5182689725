"""The trial of a folder's tokenizer and processor, run in a child process by `store.checkpoint`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from tokenizers import Tokenizer
from transformers import AutoProcessor

from arr_coc.files.validation import short
from arr_coc.seam.prompt import VisualPrompt

# Text of many scripts, with runs that make a bad pattern try every way to divide them.
PROBE = (
    "The quick brown fox, 'jumped' over 13 lazy dogs! (3.14 > 2.72) {[x_1]} a@b.org/#?&=%$*+-~^|\\<>\"`; \t"
    "  \n\n\n Größe, naïve façade: Ελληνικά, русский, עברית, العربية, हिन्दी, ไทย, 日本語、中文 한국어"
    " 🙂👩‍👩‍👧 e\u0301 ﬁ ½ ﷺ\n" + "a" * 60 + "!" + " " * 60 + "1" * 60 + "\n"
)
MAX_TOKENS, MAX_LETTERS = 8, 32  # tokens and decoded letters of the probe, for each byte of it
MAX_TOKEN = 1000  # letters of a token, or of a text of a normalizer, decoder or template
MAX_STEPS = 1000  # settings of a normalizer, pre-tokenizer, post-processor or decoder
MAX_GROWTH = 64  # factor by which the replacements of a normalizer or decoder may lengthen text
TABLE = "precompiled_charsmap"  # of a sentencepiece normalizer: long text that is never written
PICTURES = ((61, 47), (41, 397), (641, 479))  # (width, height) in px, not multiples of a patch
MAX_NUMBERS, MAX_PROMPT = 2**26, 2**15  # numbers made of a picture, tokens of its prompt

torch.set_num_threads(1)


def try_step(request: dict[str, str]) -> bool:
    """Run one step on a folder: "file", "load", "read", "look", in this order; raises anything if it fails.

    The parent loads the same files itself afterwards.
    """
    step, folder = request["step"], Path(request["folder"])
    if step == "file":
        _check_file(folder / "tokenizer.json")
    elif step == "load":
        _processor.cache_clear()
        _processor(folder)
    elif step == "read":
        tokenizer = _processor(folder).tokenizer
        ids = tokenizer(PROBE)["input_ids"]
        _check_growth(ids, tokenizer.decode(ids))
        _check_vocabulary(tokenizer.get_vocab())
    else:
        for number, size in enumerate(PICTURES):
            _check_picture(_processor(folder), Image.effect_noise(size, 64 + number).convert("RGB"))
    return True


@lru_cache(maxsize=1)
def _processor(folder: Path) -> Any:
    return AutoProcessor.from_pretrained(folder, trust_remote_code=False)


def _check_file(path: Path) -> None:
    """Check a tokenizer.json with the tokenizers library alone."""
    if not path.exists():  # another kind of tokenizer
        return
    settings = json.loads(path.read_text(encoding="utf-8"))
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        _check_part(part, settings.get(part))
    tokenizer = Tokenizer.from_file(str(path))
    ids = tokenizer.encode(PROBE).ids
    _check_growth(ids, tokenizer.decode(ids, skip_special_tokens=False))
    _check_vocabulary(tokenizer.get_vocab())


def _check_part(name: str, part: Any) -> None:
    """Bound the output of a normalizer or the like for texts that `PROBE` doesn't cover."""
    growth, count = 1, 0
    for key, value in _values(part):
        count += 1
        if key != TABLE and isinstance(value, str) and len(value) > MAX_TOKEN:
            raise ValueError(f"its {name} has a text of {len(value)} letters")
        if isinstance(value, dict) and isinstance(content := value.get("content"), str):
            growth *= max(1, len(content) if value.get("type") == "Replace" else 1)
    if count > MAX_STEPS or growth > MAX_GROWTH:
        raise ValueError(f"its {name} writes too much: {count} settings, {growth} letters for one")


def _values(part: Any, key: Any = "") -> Iterator[tuple[Any, Any]]:
    """Yield every value in parsed JSON, with its key."""
    yield key, part
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, value in inner:
        yield from _values(value, name)


def _check_growth(ids: list[int], text: str) -> None:
    """Bound the number of tokens of `PROBE`, and of letters decoded from them."""
    letters = len(PROBE.encode())
    if len(ids) > MAX_TOKENS * letters or len(text) > MAX_LETTERS * letters:
        raise ValueError(
            f"a text of {letters} bytes becomes {len(ids)} tokens, and those {len(text)} letters"
        )


def _check_vocabulary(vocabulary: dict[str, int]) -> None:
    """Bound the length of every token."""
    longest = max(vocabulary, key=len, default="")
    if len(longest) > MAX_TOKEN:
        raise ValueError(f"its token {short(longest)} has {len(longest)} letters")


def _check_picture(processor: Any, image: Image.Image) -> None:
    """Bound a processor's output for a small picture and a short question."""
    inputs = VisualPrompt(processor, [image]).inputs("What is it?")
    numbers = max(value.numel() for value in inputs.values() if isinstance(value, torch.Tensor))
    length = inputs["input_ids"].shape[-1]
    if numbers > MAX_NUMBERS or length > MAX_PROMPT:
        raise ValueError(
            f"a picture of {image.width}x{image.height} px becomes {numbers} numbers and {length} tokens"
        )
