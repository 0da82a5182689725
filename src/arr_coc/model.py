"""ARRCOCModel: a frozen vision-language model that reads only the visual tokens a question needs.

It holds a loaded transformers model (`base`, never changed), the small trained layer that decides (`layer`)
and the adapter of the model's family. Each call decides for itself, in one of the modes of `arr_coc.modes`;
no state is kept between calls, so any number of threads may call one model.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from arr_coc.answer import Answer
from arr_coc.choose.allocation import Allocation
from arr_coc.choose.budget import Budget, check_budget, parse_budget
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.choose.stem import Stem
from arr_coc.choose.stopwatch import Stopwatch
from arr_coc.families import adapter_for
from arr_coc.files.collecting import without_collecting
from arr_coc.files.device import resolve_device, resolve_dtype
from arr_coc.files.images import ImageSource
from arr_coc.files.question import check_question
from arr_coc.guide import GUIDE
from arr_coc.guide.guide import guide_folder
from arr_coc.modes import Mode, find_mode
from arr_coc.modes.call import Chooser, EncodedImages, Prepared
from arr_coc.modes.magnify import Magnify
from arr_coc.modes.mode import FULL
from arr_coc.modes.notes import joined, unused
from arr_coc.modes.request import default_mode, new_call
from arr_coc.modes.route import prepare
from arr_coc.modes.scoring import deciding_layer
from arr_coc.relevance.names import OF_MODELS
from arr_coc.relevance.source import RelevanceSource
from arr_coc.relevance.sums import open_relevance
from arr_coc.seam import BaseProperties, FamilyAdapter, plain_model
from arr_coc.seam.assembly import PROCESSOR_NAMES
from arr_coc.seam.decoding import (
    FirstLogits,
    Generated,
    cache_of,
    check_without_images,
    generate_whole,
    mark_caches,
    named_arguments,
    naming,
    refuse_arguments,
    refuse_continuation,
    refuse_settings,
    setting,
    with_inferred_mask,
)
from arr_coc.seam.loaded import freeze, restore
from arr_coc.seam.lora import LoRAs
from arr_coc.session import NO_NUMBERS, Session, VisualSource
from arr_coc.store import checkpoint
from arr_coc.store.allocator import load_learned
from arr_coc.store.card import Shareable
from arr_coc.store.checkpoint import try_question

_STOCK: ContextVar[frozenset[int]] = ContextVar("stock", default=frozenset())
"""The ids of the models whose `full()` block this thread or task is in."""


class ARRCOCModel(Shareable, BaseProperties, nn.Module):
    """A vision-language model that keeps only the visual tokens a question needs.

    `from_pretrained` loads a named or the bundled model, `wrap` takes a loaded one.

    Args:
        base: a loaded transformers model; it is frozen.
        processor: its processor; None: only `forward` and `generate` are used.
        layer: scores cells and allocates tokens; None: an untrained one, which uses the guide.
        stem: encodes cells from pixels in modes "sparse" and "saccade"; None: a coarse view stands for them.
        compressors: trained compressors by name: "tower4", "tower16".
        loras: LoRAs trained for this base model, if there are any.
        budget: visual tokens per image for calls that name none: a count (at most all), a fraction or "auto";
            None: the layer's own.
        mode: one of `arr_coc.modes.MODES` for calls that name none; None: `default_mode`, which is "sparse"
            with a stem in a family that encodes cells alone, else "prune".
        strict: raise when an allocation fails, instead of falling back to all tokens.
        base_name: of the base model, for `save_pretrained`.
        relevance: what says which cells the question needs: "auto", "trained", "gaze", a source, or the name
            of one or of a sum, such as "guide+ocr"; see `modes.scoring.deciding_layer`.
        guide: folder of your own guide (`arr-coc train guide`), saved with the rest; None: the bundled one.
        familiarity_stem: detects pictures unlike those trained on where `stem` can't.

    Raises:
        ValueError: an unsupported family, a layer of another width, a bad budget, mode, relevance or guide.
    """

    def __init__(
        self,
        base: PreTrainedModel | None = None,
        processor: Any = None,
        layer: ARRCOCLayer | None = None,
        *,
        stem: Stem | None = None,
        compressors: Mapping[str, nn.Module] | None = None,
        loras: LoRAs | None = None,
        budget: Budget | None = None,
        mode: str | None = None,
        strict: bool = False,
        base_name: str | None = None,
        relevance: str | RelevanceSource = "auto",
        guide: str | Path | None = None,
        familiarity_stem: Stem | None = None,
        **others: Any,
    ) -> None:
        if not isinstance(base, nn.Module) or others:
            own, named = type(self).__name__, [f"{name}={value!r:.60}" for name, value in others.items()]
            raise TypeError(
                f"{own}({', '.join(named) or repr(base)[:60]}): it goes around a loaded transformers model; "
                f"by its name or folder use {own}.from_pretrained('Qwen/Qwen3-VL-2B-Instruct')"
            )
        super().__init__()
        self.base: Any  # its family's class is known at run time alone
        base = plain_model(base)
        self.adapter = adapter_for(base, processor)
        dim = base.config.get_text_config().hidden_size
        layer = layer if layer is not None else ARRCOCLayer(ARRCOCConfig(dim=dim))
        if layer.config.dim != dim:
            raise ValueError(f"the layer is {layer.config.dim} wide but the base model {dim}")
        if stem is not None and stem.dim != dim:
            raise ValueError(f"the stem is {stem.dim} wide but the base model {dim}")
        deciding_layer(layer, relevance)
        if relevance not in (*OF_MODELS, GUIDE):
            open_relevance(relevance)  # so that what can't be opened is refused now
        self.guide = None if guide is None else guide_folder(guide)
        self.budget = parse_budget(layer.config.budget if budget is None else budget)
        self.mode = mode
        self.base = freeze(base, self)  # last, so that a refused model stays as it came
        self.processor = processor
        self.layer = layer.to(self.device)
        self.stem = None if stem is None else stem.to(self.device, base.dtype).requires_grad_(False)
        self.familiarity_stem = familiarity_stem and familiarity_stem.to(self.device, base.dtype)
        self.compressors = nn.ModuleDict(compressors or {}).to(self.device).requires_grad_(False)
        self.loras = LoRAs(base) if loras is None else loras
        self.strict = strict
        self.relevance = relevance
        self.base_name = str(base.config.name_or_path if base_name is None else base_name)
        self.eval()  # dropout would change choices from call to call

    @classmethod
    @without_collecting()
    def from_pretrained(
        cls,
        name_or_folder: str | Path | None = None,
        *,
        budget: Budget | None = None,
        allocator: str | Path | None = None,
        revision: str | None = None,
        device: str | torch.device | None = "auto",
        dtype: torch.dtype | str | None = None,
        mode: str | None = None,
        strict: bool = False,
        relevance: str | RelevanceSource = "auto",
        guide: str | Path | None = None,
    ) -> ARRCOCModel:
        """Load a base model, its processor and its allocator.

        Args:
            name_or_folder: folder or Hub name of a model, or of an allocator, whose base model is loaded by
                the name and commit it was saved with; None: the bundled model.
            budget: a count, a fraction or "auto" of visual tokens; None: the allocator's own (273).
            allocator: an allocator folder or Hub name; None: the one that comes with the name, if any.
            revision: branch, tag or commit hash of a Hub name; None: the newest.
            device: "cpu", "cuda", "cuda:1", "mps" ...; "auto" or None: CUDA or MPS where there is one.
            dtype: of the base's weights: "float32", "bfloat16", "float16"; "auto" or None: as saved.
            mode: one of `arr_coc.modes.MODES` for calls that name none; None: `default_mode`.
            strict: as in the class, like `relevance` and `guide`.
            relevance: as in the class.
            guide: folder of a guide.

        Raises:
            ValueError: what can't be loaded, in one line with the remedy.
        """
        if mode is not None:
            find_mode(mode)
        check_budget(budget)  # a bad value should not cost a download
        place, dtype = resolve_device(device), resolve_dtype(dtype)
        source = checkpoint.find(name_or_folder, allocator, revision)
        base, processor = checkpoint.load_base(source.base, dtype, source.revision)
        base.to(place)
        parts = load_learned(source.allocator, base, guide)
        parts |= {"base_name": source.base, "relevance": relevance}
        model = cls(base, processor, budget=budget, mode=mode, strict=strict, **parts)
        if (source.base, source.allocator) != (checkpoint.BUNDLED_NAME, checkpoint.BUNDLED_ALLOCATOR):
            own = source.base != checkpoint.BUNDLED_NAME
            try_question(model, source.base if own else str(source.allocator))
        return model

    @classmethod
    def wrap(
        cls,
        model: PreTrainedModel,
        processor: Any = None,
        *,
        allocator: str | Path | None = None,
        budget: Budget | None = None,
        mode: str | None = None,
        strict: bool = False,
        relevance: str | RelevanceSource = "auto",
        guide: str | Path | None = None,
    ) -> ARRCOCModel:
        """Put ARR-COC around a loaded model, which is only frozen, not changed; see `unwrap`.

        A compiled or peft model is taken out of its wrapper; peft adapters stay active. Of an ARRCOCModel the
        trained parts, unless an allocator is named, and the processor are used again.

        Raises:
            ValueError: an unsupported family, or an allocator that doesn't fit.
        """
        parts: dict[str, Any] = {}
        if isinstance(model, ARRCOCModel):
            names = ("layer", "stem", "familiarity_stem", "compressors", "loras", "base_name", "guide")
            parts = {name: getattr(model, name) for name in names}
            processor, model = processor or model.processor, model.base
        base = plain_model(model)
        if allocator is not None:
            parts = load_learned(checkpoint.find_allocator(allocator) or Path(allocator), base)
        parts |= {"relevance": relevance} | ({} if guide is None else {"guide": guide})
        return cls(base, processor, budget=budget, mode=mode, strict=strict, **parts)

    def unwrap(self) -> PreTrainedModel:
        """Return the base model as it came; it stays frozen while other wrappers of it are in use."""
        return restore(self.base, self)

    def train(self, mode: bool = True) -> ARRCOCModel:
        """Set training mode for the layer; the frozen base stays in evaluation mode."""
        super().train(mode)
        self.base.eval()  # `train` went down to it
        return self

    def __repr__(self) -> str:
        parts = ["trained layer" if self.layer.trained else "untrained layer"]
        parts += ["stem"] if self.stem is not None else []
        parts += [f"LoRA {kind}" for kind in self.loras.kinds]
        facts = f"{self.config.model_type}, budget {self.budget}, mode {self.mode!r}, {', '.join(parts)}"
        return f"{type(self).__name__}({self.base_name!r}, {facts})"

    @property
    def default_mode(self) -> str:
        """The mode that this model runs if none is named; see `modes.request.default_mode`."""
        return default_mode(self.adapter, self.stem).name

    @property
    def named_mode(self) -> str | None:
        """The mode set for this model, "full" inside a `full()` block, or None."""
        return FULL.name if id(self) in _STOCK.get() else self._mode

    @property
    def mode(self) -> str:
        """The mode of calls that name none, "full" inside a `full()` block; None restores `default_mode`."""
        return self.named_mode or self.default_mode

    @mode.setter
    def mode(self, name: str | None) -> None:
        self._mode = None if name is None else find_mode(name).name

    @contextmanager
    def full(self) -> Generator[Self, None, None]:
        """Use all tokens inside the block, in calls of this thread or asynchronous task that name no mode."""
        token = _STOCK.set(_STOCK.get() | {id(self)})
        try:
            yield self
        finally:
            _STOCK.reset(token)

    @property
    def chooser(self) -> Chooser:
        """The parts that choose cells for this model, and their settings, as one record."""
        layer = deciding_layer(self.layer, self.relevance)
        parts = (
            self.loras,
            self.stem,
            self.relevance,
            dict(self.compressors),
            self.strict,
            self.guide,
            self.budget,
        )
        return Chooser(self.adapter, layer, *parts)

    def adapter_for(self, mode: str | Mode) -> FamilyAdapter:
        """Return the family's adapter on the model that a mode runs: `.model`, the base with its LoRAs.

        Raises:
            ValueError: there is no such mode.
        """
        return self.chooser.adapter_for(find_mode(mode) if isinstance(mode, str) else mode)

    def prepare(
        self,
        inputs: Mapping[str, Any],
        *,
        budget: Budget | None = None,
        mode: str | None = None,
        gestalt: str | None = None,
        watch: Stopwatch | None = None,
        encoded: EncodedImages | None = None,
        pictures: Sequence[ImageSource] | None = None,
        **more: Any,
    ) -> Prepared:
        """Encode and decide a call, without running it: the result's `.model` takes its `.compacted.kwargs`.

        `inputs` are ordinary processor inputs with images or clips, `budget` the visual tokens to keep of
        each (in mode "saccade" beside the coarse view), `gestalt` one of `gestalt.COMPRESSORS`, `pictures`
        the images at their own resolution for the guide, crops and magnified cells. `encoded` holds what is
        computed of them already and is filled in; `more` are `question`, `keep` and `magnify` of a `Call`.
        None stands for the model's or the family's default.

        Raises:
            ValueError: a bad budget, mode or gestalt, or a prompt that doesn't match its images.
        """
        wanted = find_mode(self.mode if mode is None else mode)
        check_budget(budget)  # before any work is done
        chooser = self.chooser
        call = new_call(
            chooser,
            inputs,
            wanted,
            budget,
            gestalt=gestalt,
            watch=watch,
            encoded=encoded,
            pictures=pictures,
            use_cache=setting(self.base, inputs, "use_cache") is not False,
            **more,
        )
        return prepare(chooser, call)

    def _is_stock(self, mode: str, budget: Budget | None, inputs: Mapping[str, Any]) -> bool:
        """Return whether a call goes to the base model as it is: mode "full", or a prompt without images."""
        check_budget(budget)  # also where nothing is chosen
        refuse_continuation(inputs, stock := find_mode(mode).stock)
        if stock or self.adapter.has_images(inputs):
            return stock
        check_without_images(self.adapter, inputs)
        return True

    @naming(*PROCESSOR_NAMES)
    def forward(
        self,
        *args: Any,
        budget: Budget | None = None,
        mode: str | None = None,
        pictures: Sequence[ImageSource] | None = None,
        magnify: Magnify = 1,
        **inputs: Any,
    ) -> Any:
        """Call the base model on the kept tokens; `budget`, `mode` and `pictures` are as in `prepare`.

        `magnify` above 1 reads kept cells from `pictures`, that many times finer (`ChoiceOptions`).

        `args` and `inputs` are those of the base model: processor inputs, `labels` and all else that it
        takes.

        Returns:
            The base model's own output, whose logits, hidden states and attentions are those of the kept
            sequence; `logits_to_keep` names columns of the whole prompt, or counts the last kept. It also has
            `allocations` (one per image or clip), `allocation` (the first, or None), `fallback` (bool) and
            `columns` (long [B, S'], the original column of each position, -1 for padding, -2 for a gestalt,
            -3 for crops; None if nothing was decided). With `return_dict=False` its tuple alone.

        Raises:
            ValueError: a bad budget or mode, or arguments that dropping tokens can't honour.
        """
        mode = self.mode if mode is None else mode
        inputs = named_arguments(self.base.forward, args, inputs)
        if self._is_stock(mode, budget, inputs):
            output = self.base(**inputs)
            allocations, fallback, columns = [], False, None
        else:
            refuse_arguments(inputs)
            prepared = self.prepare(inputs, budget=budget, mode=mode, pictures=pictures, magnify=magnify)
            output = prepared.model(**prepared.compacted.kwargs)
            allocations, fallback = prepared.allocations, prepared.fallback
            columns = prepared.compacted.columns
            mark_caches(output, cache_of(inputs), columns, inputs)
        if isinstance(output, tuple):  # `return_dict=False`: it takes no attributes
            return output
        # attributes, not fields: the output's tuple form stays the base model's
        output.allocations, output.allocation = allocations, next(iter(allocations), None)
        output.fallback, output.columns = fallback, columns
        return output

    @torch.no_grad()
    def generate(
        self,
        *args: Any,
        budget: Budget | None = None,
        mode: str | None = None,
        pictures: Sequence[ImageSource] | None = None,
        magnify: Magnify = 1,
        return_allocation: bool = False,
        **inputs: Any,
    ) -> Any:
        """Generate on the kept tokens; `budget`, `mode`, `pictures` and `magnify` are as in `forward`.

        `args` and `inputs` are those of the base model's `generate`: processor inputs and its settings.

        Returns:
            What the base model's `generate` returns: ids [B * num_return_sequences, S + new] that begin with
            the original, uncut prompts, or its own output object; with `return_allocation`, a `Generated`.

        Raises:
            ValueError: a bad budget or mode, or arguments that dropping tokens can't honour.
        """
        mode = self.mode if mode is None else mode
        inputs = named_arguments(self.base.generate, args, inputs)
        if self._is_stock(mode, budget, inputs):
            allocations, fallback, note = [], False, unused(find_mode(mode), budget, False)
            output = self.base.generate(**inputs)
        else:
            refuse_settings(self.base, inputs)
            inputs = with_inferred_mask(self.base, inputs)
            prepared = self.prepare(inputs, budget=budget, mode=mode, pictures=pictures, magnify=magnify)
            mode, note = prepared.mode, prepared.note
            first, more = FirstLogits(), {}
            if return_allocation:  # else no note could be returned
                more = {"logits_processor": [*(inputs.get("logits_processor") or ()), first]}
            output = generate_whole(prepared.model, inputs, prepared.compacted, **more)
            note = joined(note, None if first.numbers else NO_NUMBERS)
            allocations, fallback = prepared.allocations, prepared.fallback
        if not return_allocation:
            return output
        plain = isinstance(output, Tensor)
        sequences = output if plain else output.sequences
        return Generated(sequences, allocations, fallback, mode, note, None if plain else output)

    def session(self, image: VisualSource | Sequence[VisualSource], **settings: Any) -> Session:
        """Open a `Session` about images or clips, one or a list, each encoded once for many questions."""
        return Session(self, image, **settings)

    def ask(
        self,
        image: VisualSource | Sequence[VisualSource],
        question: str,
        budget: Budget | None = None,
        mode: str | None = None,
        max_new_tokens: int = 32,
        gestalt: str | None = None,
        fps: float | None = None,
        **how: Any,
    ) -> Answer:
        """Answer one question about an image, a clip or a list of them; see `Session` and its `ask`."""
        check_question(question)  # before an image is opened
        watch = Stopwatch(self.device)
        with watch("prompt"):
            session = self.session(image, fps=fps)
        answer = session.ask(
            question, budget=budget, mode=mode, max_new_tokens=max_new_tokens, gestalt=gestalt, **how
        )
        for stage in ("prompt", "total"):
            answer.ms[stage] += watch.ms["prompt"]
        return answer

    def look(
        self,
        image: VisualSource | Sequence[VisualSource],
        question: str,
        budget: Budget | None = None,
        mode: str | None = None,
        fps: float | None = None,
        **how: Any,
    ) -> Allocation:
        """Return the allocation for a question, without an answer; see `Session.look`."""
        check_question(question)
        return self.session(image, fps=fps).look(question, budget=budget, mode=mode, **how)


ARRCOCQwen = ARRCOCModel  # its name in the project's plan
