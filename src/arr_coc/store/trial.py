"""A trial of a model folder while it is loaded: its processor in a child process, then a question.

    begin(folder)                    the child begins to import, while weights are read
    try_processor(source, folder)    tokenizer and image processor, before they are loaded in this process
    try_question(model, source)      one question about a small picture

A tokenizer.json holds patterns and templates, and an image processor sizes, that may multiply: they need
minutes and gigabytes, or end the process. What of it is too much can't be told from the files alone, so the
child does with them what the first question does: it loads them, reads a text, decodes it, and prepares
pictures, within bounds of time and memory (`files.worker`), and of what comes out (`store.trial_work`).

Files of which the same contents held before are not tried again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from PIL import Image

from arr_coc.files.saved import reading
from arr_coc.files.validation import short
from arr_coc.files.vetting import small_files
from arr_coc.files.worker import Worker

SECONDS, MEGABYTES, IDLE = 30, 4096, 60
"""The most that one step may take; seconds after which a child that nobody needs is ended."""
STEPS = {
    "file": (
        "the tokenizer.json of {} can't be loaded",
        "save it again with the tokenizer's save_pretrained",
    ),
    "load": (
        "the processor of {} can't be loaded",
        "save it beside the model with its own save_pretrained",
    ),
    "read": ("the tokenizer of {} can't be used", "save it again with its own save_pretrained"),
    "look": (
        "the image processor of {} can't be used",
        "correct its settings (preprocessor_config.json, processor_config.json, chat_template.jinja)",
    ),
}
"""What the child does, and the beginning and the end of what is said where it can't."""
MOST_ON_CPU = 1_000_000_000
"""Parameters of a model that is asked a question on a CPU when it is loaded."""
USUAL = {
    "return_dict": True,
    "return_dict_in_generate": False,
    "use_cache": True,
    "output_attentions": False,
    "output_hidden_states": False,
    "output_scores": False,
    "output_logits": False,
}
"""Settings that change what a model returns, and what each is in ordinary models."""

_WORKER = Worker(Path(__file__).with_name("trial_work.py"), SECONDS, MEGABYTES, IDLE)
_held: set[bytes] = set()
"""Digests of the files that held."""


def begin(folder: Path) -> None:
    """Start the child if the folder needs a trial; nobody waits for it here."""
    if _digest(folder) not in _held:
        _WORKER.start()


def try_processor(source: str, folder: Path) -> None:
    """Try the tokenizer and the processor of a model folder that was vetted.

    Args:
        source: what the user calls the model, for messages.
        folder: its folder.

    Raises:
        ValueError: they can't be loaded or used, or not within the bounds.
    """
    digest = _digest(folder)
    if digest in _held:
        return
    for step, (what, remedy) in STEPS.items():
        with reading(what.format(repr(source)), remedy):
            _WORKER.ask({"step": step, "folder": str(folder.resolve())})
    _held.add(digest)


def _digest(folder: Path) -> bytes:
    """A digest of the names and contents of the files that tokenizers and processors are made of."""
    digest = hashlib.sha256()
    for path in sorted(small_files(folder)):
        digest.update(f"{path.relative_to(folder)}\n{path.stat().st_size}\n".encode(errors="replace"))
        digest.update(path.read_bytes())
    return digest.digest()


def try_question(model: Any, source: str) -> None:
    """Ask a model about a small picture, for two tokens: settings that make no sense fail here.

    Args:
        model: an `ARRCOCModel`, on the device where it stays.
        source: what the user calls the model, for messages.

    Raises:
        ValueError: the question fails.
    """
    device, size = model.device.type, sum(each.numel() for each in model.base.parameters())
    if device == "meta" or (device == "cpu" and size > MOST_ON_CPU):
        return  # no numbers to ask, or it would take as long as the user's own first question
    odd = "; ".join(
        f"{key} is {short(getattr(config, key))}"
        for config in (model.base.config, model.base.config.get_text_config(), model.base.generation_config)
        for key, usual in USUAL.items()
        if getattr(config, key, None) not in (None, usual)
    )
    with reading(
        f"{source!r} can't answer a question about a picture",
        f"correct the settings there{f' ({odd})' if odd else ''}, or save it again with save_pretrained",
    ):
        # All tokens: what goes wrong in choosing is a fallback, and is said beside the user's own answers.
        picture = Image.effect_noise((61, 47), 64).convert("RGB")
        model.session(picture).ask("What is it?", mode="full", max_new_tokens=2)
