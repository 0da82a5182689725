"""A session: one image, encoded once, and any number of questions about it.

Texture, patches, vision tokens and what the language model makes of a gestalt depend on the image alone, so
they are computed for the first question and reused. Each question is independent: a session is not a
conversation and keeps nothing of earlier answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from arr_coc.core.allocation import Allocation
from arr_coc.core.attending import Budget
from arr_coc.core.images import ImageSource, open_image
from arr_coc.core.realizing import Stopwatch
from arr_coc.modes import MODES, PRUNE, find_mode
from arr_coc.modes.call import EncodedImages, runs_as
from arr_coc.seam import PROMPT_NAMES
from arr_coc.seam.callbacks import NewTokens
from arr_coc.seam.decoding import generate_whole, refuse_settings
from arr_coc.seam.prefix import Prefix, after, read_prefix
from arr_coc.seam.prompt import ImagePrompt, chat_prompt

if TYPE_CHECKING:
    from arr_coc.model import ARRCOCModel

GREEDY = {"do_sample": False, "num_beams": 1, "num_return_sequences": 1} | dict.fromkeys(
    ("temperature", "top_k", "top_p")  # unset, so that a sampling model's settings don't warn
)


@dataclass(frozen=True)
class Answer:
    """What came back for one question.

    Attributes:
        text: the answer.
        allocation: which cells the answer was made from (all of them in mode "full" and after a
            fallback).
        ms: milliseconds per stage: texture (recovering the picture and its channels), scoring (the three
            scorers, and a stem or a look of the model's own), balancing, allocating, gestalt (the coarse
            view), encode (vision encoder), prefill (up to the first new token), decode (the rest), total
            (everything, with preprocessing). Texture, gestalt and encode are 0 where a session had them.
        fallback: the allocation failed and all tokens were used; the reason is in the log.
        mode: what ran; with a `note`, another than was asked for.
        budget: as asked.
        kept: visual cells that were kept.
        total: visual cells the image has.
        read: visual tokens the language model was given: the cells that were kept, and a gestalt.
        note: why another mode ran than was asked for; None where it didn't.
    """

    text: str
    allocation: Allocation
    ms: dict[str, float]
    fallback: bool
    mode: str
    budget: Budget
    kept: int
    total: int
    read: int
    note: str | None = None

    @property
    def grid(self) -> tuple[int, int, int]:
        """(T, H, W) of the cells to choose from; in mode "compress" those of the coarse view."""
        return self.allocation.grid


class Session:
    """Many questions about one image. Made by `ARRCOCModel.session(image)`.

    Args:
        model: the model that answers.
        image: a path, bytes or PIL image.

    Raises:
        ValueError: an image that can't be read, or a model without processor or chat template.
    """

    def __init__(self, model: ARRCOCModel, image: ImageSource) -> None:
        processor = model.processor
        if getattr(processor, "chat_template", None) is None:
            raise ValueError(
                "asking needs a processor with a chat template; load the model with one, "
                "or write the prompt yourself and call generate()"
            )
        self.model = model
        self.image = open_image(image)
        self._encoded: dict[tuple[str, ...], EncodedImages] = {}
        self._prefixes: dict[tuple[str, str | None], Prefix | None] = {}
        self._prompt = ImagePrompt(processor, self.image)
        self._visual = self._on_device(self._prompt.visual)

    def encoded(self, mode: str) -> EncodedImages:
        """What is computed of the image already in a mode; modes with other LoRAs encode it in their own way.

        Raises:
            ValueError: there is no such mode.
        """
        ran, _ = runs_as(self.model.adapter, find_mode(mode))
        images = self._encoded.setdefault(ran.kinds(self.model.loras.kinds), EncodedImages())
        for other in list(self._encoded.values()):  # pixels are the same to all
            images.pictures = images.pictures or other.pictures
            images.textures |= other.textures
        return images

    def prompt(self, question: str) -> str:
        """`chat_prompt` of the model's processor."""
        return chat_prompt(self.model.processor, question)

    def inputs(self, question: str) -> dict[str, Any]:
        """Ordinary processor inputs for a question about this image, without processing the image again.

        Raises:
            ValueError: an empty question, one that holds the model's image placeholder, or one that is
            too long.
        """
        if not isinstance(question, str) or not question.strip():
            raise ValueError(f"the question is empty ({question!r}); ask something about the image")
        processor = self.model.processor
        for name in ("image_token", "video_token"):
            token = getattr(processor, name, None)
            if token and token in question:
                raise ValueError(f"the question holds {token!r}, the model's own placeholder; leave it out")
        prompt = self._prompt.inputs(question)
        inputs = self._on_device({name: prompt[name] for name in PROMPT_NAMES if name in prompt})
        inputs |= self._visual
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        longest = int(self.model.adapter.positions(inputs).max()) + 1
        if limit is not None and longest > limit:
            raise ValueError(
                f"the question is too long: image and question take {longest} positions and the model "
                "has "
                f"{limit}; ask a shorter question ({len(question.split())} words now)"
            )
        return inputs

    def _on_device(self, values: Mapping[str, Any]) -> dict[str, Any]:
        device = self.model.device
        return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in values.items()}

    def batch(self, questions: Sequence[str], answers: Sequence[str] | None = None) -> dict[str, Any]:
        """Several questions about this image as one left-padded batch, without pixels.

        What the language model gets beside it is `VisualFeatures.repeat` of the image, encoded once.

        Args:
            questions: one per row.
            answers: with them, each row goes on with its answer and the end of the turn, and the batch has
                `labels`: -100 but at these.

        Raises:
            ValueError: as `inputs`.
        """
        tokenizer = self.model.processor.tokenizer
        rows = [self.inputs(question) for question in questions]
        if answers is not None:
            for row, answer in zip(rows, answers, strict=True):
                ids = tokenizer(answer, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
                new = torch.tensor([ids], device=row["input_ids"].device)
                row["labels"] = torch.cat([torch.full_like(row["input_ids"], -100), new], 1)
                row["input_ids"] = torch.cat([row["input_ids"], new], 1)
                row["attention_mask"] = torch.ones_like(row["input_ids"])
                for name in ("mm_token_type_ids", "token_type_ids"):
                    if name in row:
                        row[name] = F.pad(row[name], (0, len(ids)))
        longest = max(row["input_ids"].shape[1] for row in rows)
        fill = {"input_ids": self.model.adapter.padding_id, "labels": -100}
        columns = [name for name in (*PROMPT_NAMES, "labels") if name in rows[0]]
        batch = {
            name: torch.cat(
                [F.pad(r[name], (longest - r[name].shape[1], 0), value=fill.get(name, 0)) for r in rows]
            )
            for name in columns
        }
        about = {name: value for name, value in self._visual.items() if name != "pixel_values"}
        repeated = {
            name: value.repeat(len(rows), *[1] * (value.ndim - 1)) if isinstance(value, Tensor) else value
            for name, value in about.items()
        }
        return batch | repeated

    def ask(
        self,
        question: str,
        *,
        budget: Budget | None = None,
        mode: str | None = None,
        max_new_tokens: int = 32,
        gestalt: str | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Answer:
        """Answer a question, greedily.

        Args:
            question: any text.
            budget: visual tokens to keep: a count, a fraction or "auto"; None: the model's own.
            mode: one of `MODES`; None: the model's own.
            max_new_tokens: where an answer is cut off.
            gestalt: the compressor of modes "saccade" and "compress"; None: see `ARRCOCModel.prepare`.
            on_text: told the whole answer so far after each new token. What it raises ends the answer and
                comes through; the session stays as good as before.

        Raises:
            ValueError: an empty or too long question, or a bad budget, mode or gestalt.
        """
        model = self.model
        mode = model.mode if mode is None else mode
        watch = Stopwatch(model.device)
        first = NewTokens(watch.now, self._text, on_text)
        with watch("total"), torch.no_grad():
            inputs = self.inputs(question)
            if not find_mode(mode).stock:
                refuse_settings(model.base, GREEDY)
            prepared = model.prepare(
                inputs, budget=budget, mode=mode, gestalt=gestalt, watch=watch, encoded=self.encoded(mode)
            )
            with watch("gestalt"):
                kind = (prepared.mode, gestalt)
                if kind not in self._prefixes:  # gaps in plain positions would be cut there
                    plain = model.adapter.plain_positions
                    self._prefixes[kind] = None if plain else read_prefix(prepared.model, prepared.compacted)
                compacted = after(self._prefixes[kind], prepared.compacted)
            start = watch.now()
            options = GREEDY | {"max_new_tokens": max_new_tokens, "streamer": first}
            ids = generate_whole(prepared.model, inputs, compacted, **options)
            end = watch.now()
            new = ids[0, inputs["input_ids"].shape[1] :]
            text = self._text(new.tolist())
        watch.ms["prefill"] = 1000.0 * (first.arrived() - start)
        watch.ms["decode"] = 1000.0 * (end - first.arrived())
        allocation = prepared.allocations[0]
        return Answer(
            text=text,
            allocation=allocation,
            ms=watch.ms,
            fallback=prepared.fallback,
            mode=prepared.mode,
            budget=model.budget if budget is None else budget,
            kept=allocation.kept,
            total=prepared.cells[0],
            read=prepared.read[0],
            note=prepared.note,
        )

    def look(self, question: str, *, budget: Budget | None = None, mode: str | None = None) -> Allocation:
        """Where the model would look for this question: the allocation alone, nothing is generated.

        Args:
            question: any text.
            budget: as in `ask`.
            mode: one that chooses: "prune", "sparse" or "saccade"; None: the model's own, or "prune" where
                that chooses nothing.

        Raises:
            ValueError: an empty or too long question, or a bad budget or mode.
        """
        if mode is None:
            mode = self.model.mode if MODES[self.model.mode].chooses else PRUNE.name
        with torch.no_grad():
            prepared = self.model.prepare(
                self.inputs(question), budget=budget, mode=mode, encoded=self.encoded(mode)
            )
        return prepared.allocations[0]

    def _text(self, ids: list[int]) -> str:
        return self.model.processor.tokenizer.decode(ids, skip_special_tokens=True).strip()
