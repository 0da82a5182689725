"""Sessions: encode one image, or several together, once, and ask any number of questions about them.

What depends on the image alone is computed for the first question and reused. Questions are independent
unless they come with a `history`: a session keeps no answers. Each of several images has its own budget.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypedDict, Unpack

import torch
from PIL import Image
from torch import Tensor

from arr_coc.answer import Answer, Transcription
from arr_coc.choose.allocation import Allocation
from arr_coc.choose.budget import Budget, coverage_budget
from arr_coc.choose.layer import ARRCOCLayer
from arr_coc.choose.reading_order import print_blocks
from arr_coc.choose.stem import foreign_note
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.files.drawing import figure, thumbnail
from arr_coc.files.images import ImageSource
from arr_coc.files.paths import BUNDLED_NAME
from arr_coc.files.pixels import image_pixels
from arr_coc.files.question import check_questions, check_turns, standing_questions
from arr_coc.modes import FULL, MODES, find_mode
from arr_coc.modes.call import Call, Chooser, EncodedImages, Prepared, guarded
from arr_coc.modes.magnify import Magnify
from arr_coc.modes.notes import joined, too_large
from arr_coc.modes.request import (
    NamedCells,
    layout_of,
    mode_for_question,
    new_call,
    reads_crops,
    runs_as,
)
from arr_coc.modes.route import prepare
from arr_coc.modes.scoring import FAMILIARITY_FAILED, foreign_visuals
from arr_coc.seam import PROMPT_NAMES
from arr_coc.seam.base import FamilyAdapter, as_frames
from arr_coc.seam.batching import left_padded, with_answer
from arr_coc.seam.clips import StepPixels, with_whole_pixels
from arr_coc.seam.decoding import (
    FirstLogits,
    KeptPrompt,
    KeptPrompts,
    NewTokens,
    after,
    check_keeping,
    check_length,
    generate_whole,
    read_prefix,
    refuse_settings,
    setting,
)
from arr_coc.seam.lora import LoRAs
from arr_coc.seam.prompt import Turn, VisualPrompt, chat_prompt, refuse_placeholders, too_long
from arr_coc.store.checkpoint import BUNDLED_CELLS
from arr_coc.video import FrameSource
from arr_coc.video.opening import Visual, first_picture, open_visuals, size_text

VisualSource: TypeAlias = "ImageSource | FrameSource"  # what a session opens
TRANSCRIBE = "Transcribe the text."  # the default question of `transcribe`
UNTRAINED_TRANSCRIPTION = (
    "the bundled model was never taught to transcribe: it answers each part with a word or two, whatever is "
    "printed there; use a model that can read pages"
)
"""The note of a transcription by the bundled model."""
GREEDY = {"do_sample": False, "num_beams": 1, "num_return_sequences": 1} | dict.fromkeys(
    ("temperature", "top_k", "top_p")  # unset, so that a sampling model's settings don't warn
)
THUMBNAIL = 192  # longest side, in px, of a session's picture in a notebook


class ChoiceOptions(TypedDict, total=False):
    """Options of `Session.ask`, `plan`, `look` and `looks`: how the cells that a question needs are chosen.

    Attributes:
        budget: visual tokens to keep of each image: a count (at most all), a fraction or "auto"; None: the
            model's own.
        mode: one of `MODES`; None: the model's own, or "full" after `keep_image_after` questions and, without
            a budget, for questions about all that is printed (see `Session.transcribe`).
        gestalt: how the coarse view of "saccade" and "compress" is made; None: see `ARRCOCModel.prepare`.
        cells: raster indices [K] of one image's cells to answer from, a `KeepList` or the path of its file;
            or a list of such, one for each of several images; None: they are chosen.
        coverage: in place of a budget: keep as many cells of each image as hold all evidence for at least
            this share of questions, in (0, 1); the answer's note says if that can't be promised. It is
            calibrated for the guide, which "auto" relevance then means, and some others
            (`relevance.coverage`).
        magnify: in modes "sparse" and "saccade", read kept cells from your original picture, 1 to 3 times
            finer than the model's input; the budget then buys fewer cells, each in more tokens. "auto": as
            question and picture call for (`modes.magnify`).
    """

    budget: Budget | None
    mode: str | None
    gestalt: str | None
    cells: NamedCells | None
    coverage: float | None
    magnify: Magnify


class SessionCall(NamedTuple):
    """One question of a session, checked and ready for a decision."""

    chooser: Chooser  # the parts that choose
    call: Call
    images: EncodedImages  # as the session keeps them, for all conversations
    inputs: dict[str, Any]  # the processor's, in which clips are one piece
    images: EncodedImages  # of the session, in the call's mode
    note: str | None  # on the mode, where the question is about all that is printed


class AnsweringModel(Protocol):
    """The parts of a model that a session uses; `ARRCOCModel` has them all."""

    adapter: FamilyAdapter
    base: Any
    base_name: str
    processor: Any
    layer: ARRCOCLayer
    loras: LoRAs
    stem: Any
    familiarity_stem: Any
    budget: Budget
    mode: Any

    @property
    def device(self) -> torch.device: ...

    @property
    def chooser(self) -> Chooser: ...

    @property
    def named_mode(self) -> str | None: ...

    @property
    def default_mode(self) -> str: ...

    @property
    def about(self) -> str | None: ...


NO_NUMBERS = (
    "the model computed NaN in place of numbers, so its answer means nothing: load whole weights again, or "
    "with dtype 'float32'"
)
"""The note of an answer by a model whose computation gave NaN."""


class Session:
    """Answers many questions about one image, or several together. Made by `ARRCOCModel.session(image)`.

    Args:
        model: the model that answers.
        image: a path, bytes, a file object, pixels, a PIL image (as `open_image`), a clip (as `open_clip`) or
            a video's path; or a list of these, for questions about all of them at once.
        keep_image_after: number of questions after which those that name no mode are answered from every
            token, with keys and values kept (see `keep_image`); 0: from the first; None: never.
        fps: frames per second sampled from paths of videos; None: as `open_clip`.

    Attributes:
        images: the opened pictures and clips.

    Raises:
        ValueError: an unreadable image, several for a processor of one, a model without processor or chat
            template, a `keep_image_after` that is no count, or an `fps` without a video.
    """

    def __init__(
        self,
        model: AnsweringModel,
        image: VisualSource | Sequence[VisualSource],
        *,
        keep_image_after: int | None = None,
        fps: float | None = None,
    ) -> None:
        check_keeping(keep_image_after, model.adapter)
        processor = model.processor
        if getattr(processor, "chat_template", None) is None:
            raise ValueError(
                "asking needs a processor with a chat template; load the model with one, "
                "or write the prompt yourself and call generate()"
            )
        several = isinstance(image, list | tuple | Iterator) and not hasattr(image, "read")  # a file is one
        sources: Any = list(image) if several else [image]
        if not sources:
            raise ValueError("the list of images is empty: give at least one")
        self.model: Any = model  # typed Any: callers use more of it than the protocol
        self._device = model.device  # on which its pixels stay
        self.images = open_visuals(sources, fps)
        self._encoded: dict[tuple[bool, tuple[str, ...]], EncodedImages] = {}
        self._prefixes: dict[tuple[str, str | None], KeptPrompt | None] = {}
        self._kept: KeptPrompts | None = None
        self._after, self._answers = keep_image_after, 0
        self._prompt = VisualPrompt(processor, self.images, model.adapter.image_token_id)
        self._visual = self._on_device(self._prompt.visual)

    def __repr__(self) -> str:
        stills = all(isinstance(image, Image.Image) for image in self.images)
        sizes = [f"{image.size[0]}x{image.size[1]}" if stills else size_text(image) for image in self.images]
        return f"Session({', '.join(sizes)}{' px' * stills}, model {self.model.base_name!r})"

    def _repr_html_(self) -> str:
        sizes = ", ".join(map(size_text, self.images))
        pictures = [thumbnail(first_picture(image), THUMBNAIL) for image in self.images]
        return figure(pictures, [("size", sizes), ("model", self.model.base_name)], "the session's picture")

    @property
    def image(self) -> Visual:
        """The first opened picture or clip."""
        return self.images[0]

    @property
    def has_clips(self) -> bool:
        """Whether any of the images is a clip."""
        return not all(isinstance(image, Image.Image) for image in self.images)

    def encoded(self, mode: str) -> EncodedImages:
        """Return what is computed of the images already for a mode (by its LoRAs and crops).

        Raises:
            ValueError: there is no such mode.
        """
        adapter, sources = self.model.adapter, [im for im in self.images if isinstance(im, Image.Image)]
        ran, _ = runs_as(adapter, find_mode(mode))
        finer, kinds = reads_crops(adapter, ran), ran.kinds(self.model.loras.kinds)
        new = EncodedImages(sources=None if self.has_clips else sources, finer=finer)
        images = self._encoded.setdefault((finer, kinds), new)
        for other in list(self._encoded.values()):  # pixels are the same to all
            if other is not images:
                images.share(other)
        return images

    def forget(self) -> None:
        """Drop all that was computed of the images, so that the next answer takes as long as the first."""
        self._encoded, self._prefixes, self._kept, self._answers = {}, {}, None, 0

    def keep_image(self) -> None:
        """Read every token of the image now, and keep keys and values for later questions in mode "full".

        Each later question then costs its own words alone. `keep_image_after` calls this by itself; called
        between two questions it spares the next one the wait.
        """
        check_keeping(0, self.model.adapter)
        if self._kept is None:
            prompts = KeptPrompts()
            whole = self.plan("?", mode=FULL.name)
            with torch.no_grad():
                prompts.read_image(whole.model, self.model.adapter, whole.compacted)
            self._kept = prompts

    def fresh(self) -> Session:
        """Return a session of the same image with nothing computed; both share the processor's outputs."""
        other = copy.copy(self)
        other.forget()
        return other

    def prompt(self, question: str, history: Sequence[Turn] = ()) -> str:
        """Return the text that the model's chat template makes of a question about the images."""
        kinds = ["image" if isinstance(one, Image.Image) else "video" for one in self.images]
        check_turns(question, history)
        return chat_prompt(self.model.processor, question, kinds, history)

    def inputs(self, question: str, history: Sequence[Turn] = ()) -> dict[str, Any]:
        """Return ordinary processor inputs for a question about the image, which is not processed again.

        Raises:
            ValueError: no question, one that holds the model's image placeholder, or one too long; a bad
                history.
        """
        return dict(with_whole_pixels(self._call_inputs(question, history)))

    def _call_inputs(self, question: str, history: Sequence[Turn] = ()) -> dict[str, Any]:
        """Return `inputs` in which the pixels of clips are made only when they are read."""
        earlier, token = check_turns(question, history), self.model.adapter.image_token_id
        refuse_placeholders(self.model.processor, token, question, earlier)
        prompt = self._prompt.inputs(question, history)
        inputs = self._on_device({k: prompt[k] for k in PROMPT_NAMES if k in prompt}) | self._visual
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        longest = int(self.model.adapter.positions(inputs).max()) + 1
        if limit is not None and longest > limit:
            raise too_long(question, bool(history), longest, limit)
        return inputs

    def _on_device(self, values: Mapping[str, Any]) -> dict[str, Any]:
        device = self._device
        moved = {k: v.to(device) if isinstance(v, Tensor | StepPixels) else v for k, v in values.items()}
        if not self.model.adapter.casts and "pixel_values" in moved:
            moved["pixel_values"] = moved["pixel_values"].to(self.model.base.dtype)
        return moved

    def batch(self, questions: Sequence[str], answers: Sequence[str] | None = None) -> dict[str, Any]:
        """Return several questions about the image as one left-padded batch, without pixels.

        Its image tokens are `VisualFeatures.repeat` of the image, encoded once. With `answers`, each row goes
        on with its answer and the end of the turn, and `labels` are -100 except at these.

        Raises:
            ValueError: as `inputs`.
        """
        tokens, kind = self.model.processor.tokenizer, int(self.model.adapter.prefix)
        rows = [self.inputs(question) for question in check_questions(questions, answers)]
        if answers is not None:
            ends = [tokens(a, add_special_tokens=False)["input_ids"] + [tokens.eos_token_id] for a in answers]
            rows = [with_answer(row, ids, kind) for row, ids in zip(rows, ends, strict=True)]
        return left_padded(rows, self._visual, self.model.adapter)

    @contextmanager
    def call(
        self,
        question: str,
        *,
        history: Sequence[Turn] = (),
        watch: Stopwatch | None = None,
        **choice: Unpack[ChoiceOptions],
    ) -> Generator[SessionCall]:
        """Lend the call that `ask` and `plan` make of these arguments; what the block computes is kept.

        `watch` adds up the time of each stage.

        Raises:
            ValueError: as `ask`.
            TypeError: an option that isn't of `ChoiceOptions`.
        """
        if unknown := choice.keys() - ChoiceOptions.__annotations__.keys():
            raise TypeError(f"{min(unknown)!r} is no option: use {', '.join(ChoiceOptions.__annotations__)}")
        model, chooser = self.model, self.model.chooser
        watch = watch or Stopwatch(self._device)
        budget, coverage = choice.get("budget"), choice.get("coverage")
        if coverage is not None:
            budget = coverage_budget(budget, coverage)
        mode, cells = choice.get("mode"), choice.get("cells")
        free = cells is None and budget is None
        fitting, note = mode_for_question(chooser, question, mode or model.named_mode, free)
        if mode is None:  # named cells exclude the kept prompt of all tokens
            mode = FULL.name if self._keeps and cells is None else fitting or model.mode
        wanted = find_mode(mode)
        with watch("prompt"):
            inputs = self._call_inputs(question, history)
        asking: str | None = question
        if history:
            *_, asking = standing_questions([*(earlier for earlier, _ in history), question])
        images = self.encoded(mode)
        with images.in_conversation(history) if history else nullcontext(images) as encoded:
            call = new_call(
                chooser,
                inputs,
                wanted,
                budget,
                gestalt=choice.get("gestalt"),
                watch=watch,
                encoded=encoded,
                use_cache=setting(model.base, inputs, "use_cache") is not False,
                question=asking,
                keep=cells,
                magnify=choice.get("magnify", 1),
            )
            yield SessionCall(chooser, call, images, inputs, note)

    @property
    def _keeps(self) -> bool:
        """Whether questions that name no mode are answered from the kept prompt of all tokens."""
        return self._after is not None and self._answers >= self._after

    def plan(
        self, question: str, *, history: Sequence[Turn] = (), **choice: Unpack[ChoiceOptions]
    ) -> Prepared:
        """Return what `ask` would read with these arguments, without an answer: decision and model's input.

        Raises:
            ValueError: as `ask`.
        """
        with torch.no_grad(), self.call(question, history=history, **choice) as request:
            prepared = prepare(request.chooser, request.call)
        return replace(prepared, note=joined(prepared.note, request.note))

    def ask(
        self,
        question: str,
        *,
        max_new_tokens: int = 32,
        on_text: Callable[[str], None] | None = None,
        on_plan: Callable[[Prepared], None] | None = None,
        history: Sequence[Turn] = (),
        **choice: Unpack[ChoiceOptions],
    ) -> Answer:
        """Answer a question, greedily.

        `ChoiceOptions` lists how cells can be chosen, such as `budget=64` or `mode="sparse"`.

        Args:
            question: any text.
            max_new_tokens: the longest answer, in tokens.
            on_text: called with the answer so far after each new token; an exception from it ends the answer
                and is passed on, and the session stays usable.
            on_plan: called with what is about to be read, as `plan` returns it.
            history: earlier (question, answer) pairs, which the model reads first; cells are chosen for this
                question, and for those that it leans on ("And its price?"); channels with an attention
                history read the earlier relevance maps.
            **choice: how cells are chosen.

        Raises:
            ValueError: no question or one too long, a history that isn't pairs of texts, or a bad budget,
                coverage, length, mode, gestalt, magnification or set of cells.
        """
        check_length(max_new_tokens)
        model, gestalt = self.model, choice.get("gestalt")
        watch = Stopwatch(self._device)
        with watch("total"), torch.no_grad():
            with self.call(question, history=history, watch=watch, **choice) as request:
                if not request.call.mode.stock:  # the stock model honours all settings
                    refuse_settings(model.base, GREEDY)
                prepared = prepare(request.chooser, request.call)
                if not prepared.fallback and MODES[prepared.mode].chooses:
                    if "attention_history" in model.layer.wanted_inputs:
                        request.call.encoded.remember(question, prepared.allocations)
            if request.note is not None:
                prepared = replace(prepared, note=joined(prepared.note, request.note))
            if on_plan is not None:
                on_plan(prepared)
            logits = FirstLogits()
            new = self._read(prepared, request.inputs, gestalt, watch, on_text, max_new_tokens, logits)
        watch.settle()  # the time of "total" in no stage becomes "other"
        self._answers += 1
        images = request.images
        if prepared.mode != request.call.mode.name:  # which may have other LoRAs, so another encoding
            images = self.encoded(prepared.mode)
        foreign = self._foreign(request.chooser, request.inputs, prepared.mode, images)
        bundled = model.base_name == BUNDLED_NAME
        large = too_large(prepared, BUNDLED_CELLS, model.loras.kinds) if bundled and not foreign else None
        note = joined(None if logits.numbers else NO_NUMBERS, prepared.note, self._prompt.note, large)
        return Answer(
            text=self._text(new),
            allocation=prepared.allocations[0],
            ms=watch.ms,
            fallback=prepared.fallback,
            mode=prepared.mode,
            budget=model.budget if request.call.budget is None else request.call.budget,
            kept=sum(allocation.kept for allocation in prepared.allocations),
            total=sum(prepared.cells),
            read=sum(prepared.read),
            note=foreign_note(note) if foreign else note,
            foreign=foreign,
            allocations=tuple(prepared.allocations),
            question=question,
            images=self.images,
            couplings=prepared.couplings,
            magnified=prepared.magnified if any(scale > 1 for scale in prepared.magnified) else None,
        )

    def _read(
        self,
        prepared: Prepared,
        inputs: Mapping[str, Any],
        gestalt: str | None,
        watch: Stopwatch,
        on_text: Callable[[str], None] | None,
        most: int,
        logits: FirstLogits,
    ) -> list[int]:
        """Return the ids of the answer to a prepared call."""
        model, first = self.model, NewTokens(watch.now, self._text, on_text)
        stock = MODES[prepared.mode].stock
        own_cache = (
            setting(model.base, {}, "cache_implementation") is not None
        )  # such a cache can't start filled
        with watch("gestalt"):
            kind = (prepared.mode, gestalt)
            if kind not in self._prefixes:
                # Gaps in plain positions would be cut there; between two gestalts stand chosen cells.
                apart = model.adapter.plain_positions or len(self.images) > 1 or self.has_clips
                self._prefixes[kind] = None if apart else read_prefix(prepared.model, prepared.compacted)
            compacted = after(None if own_cache else self._prefixes[kind], prepared.compacted)
        start = watch.now()
        if self._keeps and stock and not own_cache:
            self.keep_image()
        kept = self._kept if stock and not own_cache else None
        if kept is not None:
            compacted = kept.continued(model.adapter, compacted)
        callbacks = {"streamer": first, "logits_processor": [logits], "max_new_tokens": most}
        ids = generate_whole(prepared.model, inputs, compacted, **callbacks, **GREEDY)
        end = watch.now()
        if kept is not None:
            kept.keep(ids[0], compacted)
        watch.ms["prefill"] += 1000.0 * (first.arrived() - start)
        watch.ms["decode"] += 1000.0 * (end - first.arrived())
        # ids begin with the uncut prompt
        return ids[0, inputs["input_ids"].shape[1] :].tolist()

    def transcribe(self, question: str = TRANSCRIBE, *, budget: int = 273, **how: Any) -> Transcription:
        """Read a page part after part in reading order (`choose.reading_order`), each within its own cells.

        The bundled model was not trained to transcribe: its result is no transcript, which its `note` tells.
        `budget` is the most cells of a part, but a single line may have more; `how` are arguments of `ask`
        other than `cells`.

        Raises:
            ValueError: several images, a clip, or a family without named cells; else as `ask`.
        """
        if len(self.images) > 1 or self.has_clips:
            raise ValueError(f"transcribe reads one image, and this session has {len(self.images)} or a clip")
        (grid,) = layout_of(self.model.adapter, self._call_inputs(question)).grids
        blocks = print_blocks(image_pixels(first_picture(self.image))[0], grid[1:], budget)
        how.setdefault("mode", self.model.default_mode)
        answers = [self.ask(question, cells=block.cells, **how) for block in blocks]
        untaught = (
            None if self.model.about is None else UNTRAINED_TRANSCRIPTION
        )  # `about` is a line of the bundled model alone
        return Transcription(tuple(answers), tuple(blocks), untaught)

    def _foreign(
        self, chooser: Chooser, inputs: Mapping[str, Any], mode: str, encoded: EncodedImages
    ) -> bool:
        """Return whether any image or clip is unlike all training images; False where it can't be told.

        By the stem's cells, which mode "sparse" computes anyway; in other modes after the answer.
        """
        model = self.model
        if encoded.foreign is not None:
            return any(encoded.foreign)
        stems = [stem for stem in (model.stem, model.familiarity_stem) if stem is not None]
        if all(stem.familiarity is None for stem in stems):
            return False
        adapter = chooser.adapter_for(MODES[mode])
        if not adapter.clips and self.has_clips:
            return False
        framed, frames = as_frames(adapter, inputs)
        tell = partial(foreign_visuals, adapter, model.stem, model.familiarity_stem, framed, encoded, frames)
        return any(guarded(chooser, tell, FAMILIARITY_FAILED) or ())

    def look(
        self, question: str, *, history: Sequence[Turn] = (), **choice: Unpack[ChoiceOptions]
    ) -> Allocation:
        """Return the allocation for a question, without an answer; of the first image (`looks` has all).

        Arguments are those of `plan`, but `mode` must choose: "prune", "sparse" or "saccade"; None: the
        model's own, or its `default_mode` where that chooses nothing.

        Raises:
            ValueError: as `plan`, or a mode that chooses nothing.
        """
        return self.looks(question, history=history, **choice)[0]

    def looks(
        self, question: str, *, history: Sequence[Turn] = (), **choice: Unpack[ChoiceOptions]
    ) -> list[Allocation]:
        """Return the allocation of each of the session's images, as `look`."""
        model, mode = self.model, choice.get("mode")
        if mode is not None and not find_mode(mode).chooses:
            choosing = ", ".join(name for name, one in MODES.items() if one.chooses)
            raise ValueError(
                f"mode {mode!r} chooses no cells, so there is nothing to look at: use {choosing}"
            )
        if mode is None:
            choice["mode"] = model.mode if MODES[model.mode].chooses else model.default_mode
        return self.plan(question, history=history, **choice).allocations

    def _text(self, ids: list[int]) -> str:
        return self.model.processor.tokenizer.decode(ids, skip_special_tokens=True).strip()
