"""A session: one image, or several together, encoded once, and any number of questions about them.

Texture, patches, vision tokens and what the language model makes of a gestalt depend on the image alone, so
they are computed for the first question and reused. Each question is independent unless it comes with a
`history`: a session itself keeps nothing of earlier answers. Each of several images has a budget of its own.

Who asks often about one image may have it read whole, once (`keep_image_after`): each question costs its own
words then and no choice, for the memory of all its keys and values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from arr_coc.core.allocation import Allocation
from arr_coc.core.answer import Answer
from arr_coc.core.attending import Budget
from arr_coc.core.drawing import figure, thumbnail
from arr_coc.core.familiarity import FOREIGN
from arr_coc.core.images import ImageSource
from arr_coc.core.question import check_history, check_question
from arr_coc.core.realizing import Stopwatch
from arr_coc.core.video import FrameSource
from arr_coc.core.visuals import Visual, first_picture, open_visuals, size_text
from arr_coc.modes import FULL, MODES, find_mode
from arr_coc.modes.call import EncodedImages, Prepared, guarded, runs_as
from arr_coc.modes.familiar import foreign_images
from arr_coc.modes.notes import joined, too_large
from arr_coc.seam import PROMPT_NAMES
from arr_coc.seam.callbacks import NewTokens
from arr_coc.seam.decoding import generate_whole, refuse_settings, setting
from arr_coc.seam.kept import KeptPrompts
from arr_coc.seam.prefix import Prefix, after, read_prefix
from arr_coc.seam.prompt import Turn, VisualPrompt, chat_prompt
from arr_coc.seam.steps import StepPixels, with_whole_pixels
from arr_coc.store.checkpoint import BUNDLED, BUNDLED_CELLS

if TYPE_CHECKING:
    from arr_coc.model import ARRCOCModel

VisualSource: TypeAlias = "ImageSource | FrameSource"
"""What a session opens."""
GREEDY = {"do_sample": False, "num_beams": 1, "num_return_sequences": 1} | dict.fromkeys(
    ("temperature", "top_k", "top_p")  # unset, so that a sampling model's settings don't warn
)
THUMBNAIL = 192
"""The longest side, in px, of a picture of a session in a notebook."""


class Session:
    """Many questions about one image, or several together. Made by `ARRCOCModel.session(image)`.

    Args:
        model: the model that answers.
        image: whatever `open_image` takes: a path, bytes, a file object, pixels, a PIL image; a clip, as
            `open_clip` opens it, or the path of a video; or a list of these, for questions about all of them
            at once.
        keep_image_after: questions that are answered by choosing; those after them that name no mode are
            answered by the stock model from every token, whose keys and values are kept from then on. 0: all
            questions; None: no question. See `keep_image`.
        fps: frames per second that are sampled of paths of videos; None: as `open_clip` does.

    Attributes:
        images: the opened pictures and clips.

    Raises:
        ValueError: an image that can't be read, several that the model's processor doesn't take, a model
            without processor or chat template, a `keep_image_after` that is no count, or an `fps` without a
            video.
    """

    def __init__(
        self,
        model: ARRCOCModel,
        image: VisualSource | Sequence[VisualSource],
        *,
        keep_image_after: int | None = None,
        fps: float | None = None,
    ) -> None:
        count = keep_image_after
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise ValueError(
                f"keep_image_after {count!r} is no number of questions: use 0, 1, 2, ... or None for never"
            )
        processor = model.processor
        if getattr(processor, "chat_template", None) is None:
            raise ValueError(
                "asking needs a processor with a chat template; load the model with one, "
                "or write the prompt yourself and call generate()"
            )
        sources: Any = image if isinstance(image, list | tuple) else [image]
        if not sources:
            raise ValueError("the list of images is empty: give at least one")
        self.model = model
        self.images = open_visuals(sources, fps)
        self._encoded: dict[tuple[str, ...], EncodedImages] = {}
        self._prefixes: dict[tuple[str, str | None], Prefix | None] = {}
        self._kept: KeptPrompts | None = None
        self._after, self._answers = keep_image_after, 0
        self._strange: bool | None = None
        self._prompt = VisualPrompt(processor, self.images)
        self._visual = self._on_device(self._prompt.visual)

    def __repr__(self) -> str:
        """One line."""
        stills = all(isinstance(image, Image.Image) for image in self.images)
        sizes = [f"{image.size[0]}x{image.size[1]}" if stills else size_text(image) for image in self.images]
        return f"Session({', '.join(sizes)}{' px' * stills}, model {self.model.base_name!r})"

    def _repr_html_(self) -> str:
        """For notebooks: the picture small, its size, and the model that answers."""
        sizes = ", ".join(map(size_text, self.images))
        pictures = [thumbnail(first_picture(image), THUMBNAIL) for image in self.images]
        return figure(pictures, [("size", sizes), ("model", self.model.base_name)], "the session's picture")

    @property
    def image(self) -> Visual:
        """The opened picture or clip; of several, the first."""
        return self.images[0]

    @property
    def has_clips(self) -> bool:
        """Whether any of them is a clip."""
        return not all(isinstance(image, Image.Image) for image in self.images)

    def encoded(self, mode: str) -> EncodedImages:
        """What is computed of the image already in a mode; modes with other LoRAs encode it in their own way.

        Raises:
            ValueError: there is no such mode.
        """
        ran, _ = runs_as(self.model.adapter, find_mode(mode))
        sources = [image for image in self.images if isinstance(image, Image.Image)]
        new = EncodedImages(sources=None if self.has_clips else sources)
        images = self._encoded.setdefault(ran.kinds(self.model.loras.kinds), new)
        for other in list(self._encoded.values()):  # pixels are the same to all
            images.pictures = images.pictures or other.pictures
            images.pages = images.pages or other.pages
            images.textures |= other.textures
        return images

    def forget(self) -> None:
        """Forget all that was computed of the image, so that the next answer takes as long as the first."""
        self._encoded, self._prefixes, self._kept, self._answers = {}, {}, None, 0

    def keep_image(self) -> None:
        """Read the whole image now, and keep its keys and values for every later question in mode "full".

        As a session with `keep_image_after` does by itself when it comes to that. Called between two
        questions, while nobody waits, it spares the next one the wait.
        """
        if self._kept is None:
            prompts = KeptPrompts()
            with torch.no_grad():
                inputs = self._call_inputs("?")
                whole = self.model.prepare(inputs, mode=FULL.name, encoded=self.encoded(FULL.name))
                prompts.read_image(whole.model, self.model.adapter, whole.compacted)
            self._kept = prompts

    def fresh(self) -> Session:
        """A session of the same image that has computed nothing yet; both share what the processor made."""
        other = copy.copy(self)
        other.forget()
        return other

    def prompt(self, question: str, history: Sequence[Turn] = ()) -> str:
        """`chat_prompt` of the model's processor."""
        kinds = ["image" if isinstance(one, Image.Image) else "video" for one in self.images]
        return chat_prompt(self.model.processor, question, kinds, history)

    def inputs(self, question: str, history: Sequence[Turn] = ()) -> dict[str, Any]:
        """Ordinary processor inputs for a question about this image, without processing the image again.

        Args:
            question: any text.
            history: as in `ask`.

        Raises:
            ValueError: what is no question, one that holds the model's image placeholder, or one too long.
        """
        return dict(with_whole_pixels(self._call_inputs(question, history)))

    def _call_inputs(self, question: str, history: Sequence[Turn] = ()) -> dict[str, Any]:
        """`inputs` in which the pixels of clips are made when they are read."""
        check_question(question)
        earlier = check_history(history)
        processor = self.model.processor
        for name in ("image_token", "video_token"):
            token = getattr(processor, name, None)
            for what, texts in (("question", [question]), ("history", earlier)):
                if token and any(token in text for text in texts):
                    raise ValueError(f"the {what} holds {token!r}, the model's own placeholder; leave it out")
        prompt = self._prompt.inputs(question, history)
        inputs = self._on_device({name: prompt[name] for name in PROMPT_NAMES if name in prompt})
        inputs |= self._visual
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        longest = int(self.model.adapter.positions(inputs).max()) + 1
        if limit is not None and longest > limit:
            remedy = "leave out the oldest turns, or " if history else ""
            raise ValueError(
                f"the question is too long: image and {'history, ' if history else ''}question take "
                f"{longest} positions and the model has {limit}; {remedy}ask a shorter question "
                f"({len(question.split())} words now)"
            )
        return inputs

    def _on_device(self, values: Mapping[str, Any]) -> dict[str, Any]:
        device = self.model.device
        placed = (Tensor, StepPixels)
        return {k: v.to(device) if isinstance(v, placed) else v for k, v in values.items()}

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
        history: Sequence[Turn] = (),
    ) -> Answer:
        """Answer a question, greedily.

        Args:
            question: any text.
            budget: visual tokens to keep of each image: a count, of which a smaller image keeps all, a
                fraction or "auto"; None: the model's own.
            mode: one of `MODES`; None: the model's own, or after `keep_image_after` questions "full".
            max_new_tokens: where an answer is cut off.
            gestalt: the compressor of modes "saccade" and "compress"; None: see `ARRCOCModel.prepare`.
            on_text: told the whole answer so far after each new token. What it raises ends the answer and
                comes through; the session stays as good as before.
            history: a conversation's earlier questions with their answers, which the model reads before this
                one. What is chosen from the image is chosen for this question alone, and anew.

        Raises:
            ValueError: no question or one that is too long, a history that isn't pairs of texts, or a bad
                budget, mode or gestalt.
        """
        model = self.model
        keeps = self._after is not None and self._answers >= self._after
        mode = (FULL.name if keeps else model.mode) if mode is None else mode
        watch = Stopwatch(model.device)
        first = NewTokens(watch.now, self._text, on_text)
        with watch("total"), torch.no_grad():
            with watch("prompt"):
                inputs = self._call_inputs(question, history)
            if not find_mode(mode).stock:
                refuse_settings(model.base, GREEDY)
            own_cache = setting(model.base, {}, "cache_implementation") is not None  # takes no filled one
            with self.encoded(mode).in_conversation(bool(history)) as encoded:
                prepared = model.prepare(
                    inputs, budget=budget, mode=mode, gestalt=gestalt, watch=watch, encoded=encoded
                )
            with watch("gestalt"):
                kind = (prepared.mode, gestalt)
                if kind not in self._prefixes:
                    # Gaps in plain positions would be cut there; between two gestalts stand chosen cells.
                    apart = model.adapter.plain_positions or len(self.images) > 1 or self.has_clips
                    self._prefixes[kind] = None if apart else read_prefix(prepared.model, prepared.compacted)
                compacted = after(None if own_cache else self._prefixes[kind], prepared.compacted)
            start = watch.now()
            if keeps and find_mode(mode).stock and not own_cache:
                self.keep_image()
            kept = self._kept if find_mode(mode).stock and not own_cache else None
            if kept is not None:
                compacted = kept.continued(model.adapter, compacted)
            options = GREEDY | {"max_new_tokens": max_new_tokens, "streamer": first}
            ids = generate_whole(prepared.model, inputs, compacted, **options)
            end = watch.now()
            if kept is not None:
                kept.keep(ids[0], compacted)
            new = ids[0, inputs["input_ids"].shape[1] :]
            text = self._text(new.tolist())
        watch.ms["prefill"] = 1000.0 * (first.arrived() - start)
        watch.ms["decode"] = 1000.0 * (end - first.arrived())
        watch.settle()
        self._answers += 1
        foreign = self._foreign(inputs, prepared.mode)
        bundled = model.base_name == BUNDLED
        large = too_large(prepared, BUNDLED_CELLS, model.loras.kinds) if bundled else None
        return Answer(
            text=text,
            allocation=prepared.allocations[0],
            ms=watch.ms,
            fallback=prepared.fallback,
            mode=prepared.mode,
            budget=model.budget if budget is None else budget,
            kept=sum(allocation.kept for allocation in prepared.allocations),
            total=sum(prepared.cells),
            read=sum(prepared.read),
            note=joined(prepared.note, large, FOREIGN if foreign else None),
            foreign=foreign,
            allocations=tuple(prepared.allocations),
            question=question,
            images=self.images,
            couplings=prepared.couplings,
        )

    def _foreign(self, inputs: Mapping[str, Any], mode: str) -> bool:
        """Whether an image looks unlike all that the model was taught on; False where nobody can say.

        From the cells as the stem sees them, which mode "sparse" reads anyway; after the answer in others.
        """
        if self.has_clips:
            return False
        if self._strange is None:
            model, encoded = self.model, self.encoded(mode)
            stems = (model.stem, model.familiarity_stem)
            look = partial(foreign_images, model.adapter_for(mode), *stems, inputs, encoded)
            self._strange = any(guarded(model.chooser, look, "nobody can say whether it is foreign") or ())
        return self._strange

    def look(self, question: str, *, budget: Budget | None = None, mode: str | None = None) -> Allocation:
        """Where the model would look for this question: the allocation alone, nothing is generated.

        Of several images it is that of the first; `looks` has all.

        Args:
            question: any text.
            budget: as in `ask`.
            mode: one that chooses: "prune", "sparse" or "saccade"; None: the model's own, or its
                `default_mode` where that chooses nothing.

        Raises:
            ValueError: no question or one that is too long, or a bad budget or mode.
        """
        return self.looks(question, budget=budget, mode=mode)[0]

    def looks(
        self, question: str, *, budget: Budget | None = None, mode: str | None = None
    ) -> list[Allocation]:
        """`look` at each of the session's images."""
        return self.prepared(question, budget=budget, mode=mode).allocations

    def prepared(self, question: str, *, budget: Budget | None = None, mode: str | None = None) -> Prepared:
        """All that is decided before the model is called, as in `look`."""
        if mode is None:
            mode = self.model.mode if MODES[self.model.mode].chooses else self.model.default_mode
        with torch.no_grad():
            return self.model.prepare(
                self._call_inputs(question), budget=budget, mode=mode, encoded=self.encoded(mode)
            )

    def _text(self, ids: list[int]) -> str:
        return self.model.processor.tokenizer.decode(ids, skip_special_tokens=True).strip()
