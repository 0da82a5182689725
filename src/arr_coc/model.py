"""ARRCOCModel: a frozen vision-language model that reads only the visual tokens a question needs.

By composition: a loaded transformers model (`base`, never changed), the small learned layer that decides
(`layer`), and the adapter of the model's family (`adapter`). Each call decides for itself; nothing is
kept from the last one.

    full    everything goes to the base model untouched
    prune   K of N visual tokens stay, each at its own position
    weight  all N stay, scaled by their relevance
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from arr_coc import checkpoint
from arr_coc.allocation import Allocation
from arr_coc.attending import DEFAULT_BUDGET, Budget, budget_count, parse_budget
from arr_coc.decoding import generate_whole, refuse_arguments, refuse_cache, refuse_settings, setting
from arr_coc.images import ImageSource
from arr_coc.layer import ARRCOCConfig, ARRCOCLayer
from arr_coc.lora import load_lora, save_lora, without_lora
from arr_coc.realize import EncodedImages, Prepared, Stopwatch, all_kept, decide
from arr_coc.seam import adapter_for
from arr_coc.session import Answer, Session

logger = logging.getLogger(__name__)

MODES = ("full", "prune", "weight")


@dataclass(frozen=True)
class Generated:
    """What `generate(..., return_allocation=True)` returns.

    Attributes:
        sequences: long [B * num_return_sequences, S + new], the original prompts and the new tokens.
        allocations: one per image, in order of appearance; empty in mode "full".
        fallback: the allocation failed and all tokens were used.
        details: the base model's own output, if it was asked for one with
            `return_dict_in_generate=True`.
    """

    sequences: Tensor
    allocations: list[Allocation]
    fallback: bool
    details: Any = None


class ARRCOCModel(nn.Module):
    """A vision-language model that keeps only the visual tokens a question needs.

    Use `from_pretrained` for a named or the bundled model, `wrap` for one you have loaded.

    Args:
        base: a loaded transformers model; it is frozen.
        processor: its processor, or None if only `forward` and `generate` are used.
        layer: the learned part; None: the untrained one, a documented fixed mixture.
        budget: visual tokens to keep per image if a call doesn't say: a count, a fraction or "auto";
            None: what the layer was configured with. Only the default count, 273, is cut to smaller
            images.
        mode: one of `MODES`, for calls that don't say.
        strict: raise when an allocation fails, instead of falling back to all tokens.
        base_name: the name that `save_pretrained` writes down for the base model.

    Raises:
        ValueError: an unsupported family, a layer of another width, a bad budget or mode.
    """

    def __init__(
        self,
        base: PreTrainedModel,
        processor: Any = None,
        layer: ARRCOCLayer | None = None,
        *,
        budget: Budget | None = None,
        mode: str = "prune",
        strict: bool = False,
        base_name: str | None = None,
    ) -> None:
        super().__init__()
        self.base: Any
        dim = base.config.get_text_config().hidden_size
        self.adapter = adapter_for(base, processor)
        self.base = base.requires_grad_(False)
        self.processor = processor
        self.layer = layer if layer is not None else ARRCOCLayer(ARRCOCConfig(dim=dim))
        if self.layer.config.dim != dim:
            raise ValueError(f"the layer is {self.layer.config.dim} wide but the base model {dim}")
        self.layer.to(base.device)
        self.budget = parse_budget(self.layer.config.budget if budget is None else budget)
        self.mode = self._checked(mode)
        self.strict = strict
        self.base_name = base_name if base_name is not None else base.config.name_or_path
        self.eval()

    # ---- making, saving -------------------------------------------------------------------------------

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | Path | None = None,
        *,
        budget: Budget | None = None,
        allocator: str | Path | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | str | None = None,
        mode: str = "prune",
        strict: bool = False,
    ) -> ARRCOCModel:
        """Load a base model, its processor and its allocator.

        Args:
            name_or_folder: a model folder or Hub name; an allocator folder or Hub name (its base model
                is loaded by the name it was saved with); None: the bundled model.
            budget: visual tokens to keep: a count, a fraction or "auto"; None: the allocator's own
                (273).
            allocator: an allocator folder or Hub name; None: the one that comes with the name, if any.
            device: where to put the model; None: the CPU.
            dtype: of the base model's weights; None: as saved.
            mode: "full", "prune" or "weight".
            strict: raise when an allocation fails, instead of falling back to all tokens.

        Raises:
            ValueError: what can't be loaded, in one line with the remedy.
        """
        cls._checked(mode)
        if budget is not None:
            parse_budget(budget)  # a bad value should not cost a download
        own = checkpoint.find_allocator(name_or_folder or checkpoint.BUNDLED_ALLOCATOR)
        base_name = str(name_or_folder or checkpoint.BUNDLED)
        if name_or_folder and own is not None and not (own / "config.json").is_file():
            base_name = checkpoint.read_settings(own)["base_model"]
        base, processor = checkpoint.load_base(base_name, dtype)
        if device is not None:
            base = base.to(device)
        folder = own if allocator is None else checkpoint.find_allocator(allocator)
        if allocator is not None and folder is None:
            raise ValueError(
                f"{str(allocator)!r} is not an allocator: it has no {checkpoint.CONFIG_NAME}; "
                "give a folder that save_pretrained wrote"
            )
        layer = None
        if folder is not None:
            layer = checkpoint.load_layer(folder, base)
            load_lora(base, folder)
        return cls(base, processor, layer, budget=budget, mode=mode, strict=strict, base_name=base_name)

    @classmethod
    def wrap(
        cls,
        model: PreTrainedModel,
        processor: Any = None,
        *,
        allocator: str | Path | None = None,
        budget: Budget | None = None,
        mode: str = "prune",
        strict: bool = False,
    ) -> ARRCOCModel:
        """Put ARR-COC around a loaded model. The model itself is not changed, only frozen.

        Raises:
            ValueError: an unsupported family, or an allocator that doesn't fit.
        """
        layer = None
        if allocator is not None:
            folder = checkpoint.find_allocator(allocator)
            layer = checkpoint.load_layer(folder or Path(allocator), model)
            load_lora(model, folder or Path(allocator))
        return cls(model, processor, layer, budget=budget, mode=mode, strict=strict)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the learned layer, a trained LoRA and the name of the base model; never the base itself."""
        config = self.config
        base = {
            "base_model": self.base_name,
            "base_model_type": config.model_type,
            "base_dim": config.get_text_config().hidden_size,
        }
        checkpoint.save_layer(self.layer, Path(folder), base)
        save_lora(self.base, Path(folder))

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
        """Upload what `save_pretrained` writes; returns the address of the commit."""
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return checkpoint.upload(Path(folder), repo_id, private=private, token=token)

    # ---- properties -----------------------------------------------------------------------------------

    @property
    def config(self) -> Any:
        """The base model's configuration."""
        return self.base.config

    @property
    def device(self) -> torch.device:
        """Where the base model lives."""
        return self.base.device

    def train(self, mode: bool = True) -> ARRCOCModel:
        """Set training mode for the layer; the frozen base stays in evaluation mode."""
        super().train(mode)
        self.base.eval()
        return self

    @contextmanager
    def full(self) -> Generator[ARRCOCModel, None, None]:
        """Stock behaviour inside the block: calls that don't name a mode use all tokens."""
        before, self.mode = self.mode, "full"
        try:
            yield self
        finally:
            self.mode = before

    @staticmethod
    def _checked(mode: str) -> str:
        if mode not in MODES:
            raise ValueError(f"mode {mode!r} is unknown; use one of {', '.join(MODES)}")
        return mode

    # ---- deciding -------------------------------------------------------------------------------------

    def _budget(self, budget: Budget | None, total: int) -> Budget:
        """What one image of `total` cells is allowed; only the default count is cut to small images."""
        asked = self.budget if budget is None else parse_budget(budget)
        if budget is None and asked == DEFAULT_BUDGET:
            return min(DEFAULT_BUDGET, total)
        if asked != "auto":
            budget_count(asked, total)
        return asked

    def prepare(
        self,
        inputs: Mapping[str, Any],
        *,
        budget: Budget | None = None,
        mode: str | None = None,
        watch: Stopwatch | None = None,
        encoded: EncodedImages | None = None,
    ) -> Prepared:
        """Encode, decide, drop: everything before the base model is called.

        Args:
            inputs: ordinary processor inputs with images.
            budget: visual tokens to keep per image; None: the model's own.
            mode: one of `MODES`; None: the model's own. In mode "full" everything is kept and nothing
                scored.
            watch: where to add the time of each stage.
            encoded: what is known of these images already; filled in for the next call.

        Raises:
            ValueError: a bad budget or mode, or a prompt that doesn't match its images.
        """
        mode = self._checked(self.mode if mode is None else mode)
        if budget is not None:
            parse_budget(budget)  # before any work is done
        watch = watch or Stopwatch(self.device)
        encoded = encoded or EncodedImages()
        with watch("encode"):
            features = encoded.features = encoded.features or self.adapter.features(inputs)
        decision = all_kept(features)
        if mode != "full":
            budgets = [self._budget(budget, len(cells)) for cells in features.cells]
            try:
                decision = decide(self.adapter, self.layer, inputs, encoded, budgets, mode, watch)
            except Exception:  # whatever goes wrong in deciding, the answer must still come
                if self.strict:
                    raise
                logger.exception("allocation failed; all visual tokens are used")
                decision = all_kept(features, fallback=True)
        if decision.gates is not None:
            features = features.scale(decision.gates)
        keep = [
            allocation.keep.to(ids.device)
            for allocation, ids in zip(decision.allocations, features.cells, strict=True)
        ]
        use_cache = setting(self.base, inputs, "use_cache") is not False
        compacted = self.adapter.compact(inputs, features, keep, use_cache=use_cache)
        return Prepared(compacted, decision.allocations, decision.fallback)

    # ---- the base model's own calls -------------------------------------------------------------------

    def forward(self, *, budget: Budget | None = None, mode: str | None = None, **inputs: Any) -> Any:
        """Call the base model on the kept tokens.

        Args:
            budget: visual tokens to keep per image; None: the model's own.
            mode: one of `MODES`; None: the model's own.
            inputs: ordinary processor inputs, `labels`, and whatever else the base model takes.

        Returns:
            The base model's own output. Its logits are those of the kept sequence. It also has
            `allocations` (one per image), `allocation` (the first, or None), `fallback` (bool) and
            `columns` (long [B, S'], the original column of each position, -1 for padding; None if
            nothing was decided).

        Raises:
            ValueError: a bad budget or mode, or arguments that can't be honoured while tokens are
            dropped.
        """
        mode = self._checked(self.mode if mode is None else mode)
        if mode != "full":
            refuse_cache(inputs.get("past_key_values"))
        if mode == "full" or not self.adapter.has_images(inputs):
            with without_lora(self.base):
                output = self.base(**inputs)
            allocations, fallback, columns = [], False, None
        else:
            refuse_arguments(inputs)
            prepared = self.prepare(inputs, budget=budget, mode=mode)
            output = self.base(**prepared.compacted.kwargs)
            allocations, fallback = prepared.allocations, prepared.fallback
            columns = prepared.compacted.columns
        output.allocations, output.allocation = allocations, next(iter(allocations), None)
        output.fallback, output.columns = fallback, columns
        return output

    @torch.no_grad()
    def generate(
        self,
        *,
        budget: Budget | None = None,
        mode: str | None = None,
        return_allocation: bool = False,
        **inputs: Any,
    ) -> Any:
        """Generate on the kept tokens.

        Args:
            budget: visual tokens to keep per image; None: the model's own.
            mode: one of `MODES`; None: the model's own.
            return_allocation: return a `Generated` instead of the ids.
            inputs: ordinary processor inputs and ordinary arguments of `generate`.

        Returns:
            What the base model's `generate` returns: ids [B * num_return_sequences, S + new] that begin
            with the original, whole prompts; or its own output object, with such `sequences`.

        Raises:
            ValueError: a bad budget or mode, or arguments that can't be honoured while tokens are
            dropped.
        """
        mode = self._checked(self.mode if mode is None else mode)
        if mode != "full":
            refuse_cache(inputs.get("past_key_values"))
        if mode == "full" or not self.adapter.has_images(inputs):
            allocations, fallback = [], False
            with without_lora(self.base):
                output = self.base.generate(**inputs)
        else:
            refuse_settings(self.base, inputs)
            prepared = self.prepare(inputs, budget=budget, mode=mode)
            output = generate_whole(self.base, inputs, prepared.compacted)
            allocations, fallback = prepared.allocations, prepared.fallback
        if not return_allocation:
            return output
        plain = isinstance(output, Tensor)
        sequences = output if plain else output.sequences
        return Generated(sequences, allocations, fallback, None if plain else output)

    # ---- asking ---------------------------------------------------------------------------------------

    def session(self, image: ImageSource) -> Session:
        """Open an image for many questions; it is encoded once.

        Raises:
            ValueError: an image that can't be read.
        """
        return Session(self, image)

    def ask(
        self,
        image: ImageSource,
        question: str,
        budget: Budget | None = None,
        mode: str | None = None,
        max_new_tokens: int = 32,
    ) -> Answer:
        """Answer one question about one image, greedily; see `Session.ask`."""
        watch = Stopwatch(self.device)
        with watch("total"):
            answer = self.session(image).ask(
                question, budget=budget, mode=mode, max_new_tokens=max_new_tokens
            )
        answer.ms["total"] = watch.ms["total"]  # with opening and preprocessing the image
        return answer

    def look(self, image: ImageSource, question: str, budget: Budget | None = None) -> Allocation:
        """Where the model would look: the allocation alone; see `Session.look`."""
        return self.session(image).look(question, budget=budget)


ARRCOCQwen = ARRCOCModel
"""The plan's name for it."""
