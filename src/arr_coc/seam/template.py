"""Chat templates of a checkpoint, rendered within bounds: they are programs, and a checkpoint is untrusted.

    render(processor, turns) -> the text of processor.apply_chat_template(turns, add_generation_prompt=True)

transformers renders templates in jinja's sandbox, which keeps them from files and code, but not from looping
for ever or from doubling a text forty times. Here they run in the same sandbox in a child process, which has
only so much time and memory (`template_worker`).

A processor with an `apply_chat_template` of its own is the user's code, and is called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from transformers import ProcessorMixin

from arr_coc.files.atomic import one_line
from arr_coc.files.worker import Worker

MOST_LETTERS = 100_000
"""Of a template; those of the families supported have up to about ten thousand."""
WORKER = Worker(Path(__file__).with_name("template_worker.py"), seconds=5, megabytes=512)
"""The child of this process, started with the first rendering; one of a large template takes milliseconds."""


def render(processor: Any, turns: Sequence[Mapping[str, Any]], **options: Any) -> str:
    """The text of a chat, with the beginning of the model's answer.

    Args:
        processor: has a chat template.
        turns: messages, each with "role" and "content".
        options: names that the template may read.

    Raises:
        ValueError: the template is none, fails, or needs more time or memory than any chat.
    """
    if getattr(type(processor), "apply_chat_template", None) is not ProcessorMixin.apply_chat_template:
        return processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, **options)
    source = processor.chat_template
    source = source.get("default") if isinstance(source, dict) else source
    names = {
        "messages": turns,
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
        **processor.tokenizer.special_tokens_map,
        **options,
    }
    try:
        if not isinstance(source, str) or len(source) > MOST_LETTERS:
            raise ValueError(f"it is no text of at most {MOST_LETTERS} letters")
        text = _text.__wrapped__ if "strftime_now" in source else _text  # the time is never the same
        return text(source, json.dumps(names, default=_name_of, skipkeys=True))
    except ValueError as error:
        raise ValueError(
            f"the chat template can't be rendered ({one_line(error, 200)}); "
            "load the model with another chat_template.jinja"
        ) from error


def check_template(processor: Any) -> None:
    """Render a processor's chat template once, if it has one, for a question about an image.

    Raises:
        ValueError: as in `render`.
    """
    if getattr(processor, "chat_template", None) is not None:
        content = [{"type": "image"}, {"type": "text", "text": "What?"}]
        render(processor, [{"role": "user", "content": content}])


@lru_cache(maxsize=64)
def _text(source: str, names: str) -> str:
    return WORKER.ask({"source": source, "names": names})


def _name_of(value: object) -> str:
    """What stands for a value that isn't JSON, such as an image: templates ask only whether one is there."""
    return f"<{type(value).__name__}>"
