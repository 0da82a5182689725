"""Ways to answer one question after another about the same image; for `bench/follow.py`.

stock            all tokens; the key/value cache is kept from turn to turn, as a server's prefix cache is
RULE@K           a rule of `rivals` on the stock model: K tokens chosen once, at the first question,
                 and kept, cache and all, for every later one
MODE@K           ours: chosen anew for each question; what a session keeps is kept
MODE@K+keepN     ours for the first N questions, then all tokens, kept (`Session(keep_image_after=N)`)

A way is asked in turns. Between them it keeps what it keeps, and nothing else:

    way.open(session, source)               another image
    way.first_token(inputs) -> logits       a question, to the logits of the answer's first token
    way.absorb(ids)                         the answer, read as it is written
    way.answer(question, history) -> text   all of that, greedily

`stock` and the rules are plain transformers: a `DynamicCache`, cut to what the next prompt shares with the
last (`crop`), the positions behind it counted on, the new words read. No session keeps anything for them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from arr_coc import ARRCOCModel
from arr_coc.modes import MODES
from arr_coc.seam.decoding import CACHE, KeptPrompts, setting, unread
from arr_coc.session import Session
from arr_coc_lab.evaluate.answering import with_merged
from arr_coc_lab.evaluate.layer_pruning import PrunedPrefill, cut_layer, pruned_continuation, pruned_prefill
from arr_coc_lab.evaluate.methods import METHODS
from arr_coc_lab.evaluate.questions import ImageQueries
from arr_coc_lab.evaluate.view import View, encode
from arr_coc_lab.evaluate.ways import rivals_on_stock
from arr_coc_lab.rivals import QueryBlindScorer
from arr_coc_lab.rivals.method import Method, find_method

STOCK = "stock"
Inputs = dict[str, Any]
History = Sequence[tuple[str, str]]


def find_way(model: ARRCOCModel, name: str, scorer: QueryBlindScorer | None, most: int) -> Way:
    """The way of a name.

    Args:
        model: that answers.
        name: as in the module.
        scorer: for the rules that need one.
        most: tokens of an answer.

    Raises:
        ValueError: there is none of that name.
    """
    if name == STOCK:
        return Kept(model, name, most)
    match = re.fullmatch(r"([^@]+)@(\d+)(?:\+keep(\d+))?", name)
    if match and match[1] in MODES and MODES[match[1]].chooses:
        return Ours(model, name, most, match[1], int(match[2]), None if match[3] is None else int(match[3]))
    if match and match[3] is None and match[1].partition(":")[0] in METHODS:
        method = find_method(match[1], METHODS)
        if method.name.partition(":")[0] in rivals_on_stock():
            return Kept(model, name, most, method, int(match[2]), scorer)
    raise ValueError(f"way {name!r} is unknown: use stock, prune@64, sparse@64+keep1, or visionzip@64")


class Way(ABC):
    """One way; see the module.

    Attributes:
        name: as it was named.
    """

    def __init__(self, model: ARRCOCModel, name: str, most: int) -> None:
        self.model, self.name, self.most = model, name, most
        self.session: Session
        self.source: ImageQueries

    def open(self, session: Session, source: ImageQueries) -> None:
        """Forget everything; the next questions are about another image."""
        self.session, self.source = session.fresh(), source

    @abstractmethod
    def first_token(self, inputs: Inputs) -> Tensor:
        """Logits [1, vocabulary] of the first token of an answer."""

    @abstractmethod
    def absorb(self, ids: Tensor) -> Tensor | None:
        """Read an answer [n] or a part of it; logits of the token after it, None where nothing is kept."""

    @abstractmethod
    def answer(self, question: str, history: History) -> str:
        """The greedy answer."""

    @property
    @abstractmethod
    def tokens(self) -> float:
        """Visual tokens in the cache while the last question was answered, the mean over layers."""

    @abstractmethod
    def holds(self) -> list[Any]:
        """All that waits for the next question, beside the weights and the picture."""

    @property
    def megabytes(self) -> float:
        """MiB of the tensors among that."""
        storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors(self.holds())}
        return sum(tensor.untyped_storage().nbytes() for tensor in storages.values()) / 2**20


class Kept(Way):
    """The stock model with its prefix cache; with a method, of the tokens chosen at the first question.

    Args:
        model: whose base model runs.
        name: of the way.
        most: tokens of an answer.
        method: None: all tokens stay.
        count: how many it keeps, all of a smaller image.
        scorer: for methods that need one.
    """

    def __init__(
        self,
        model: ARRCOCModel,
        name: str,
        most: int,
        method: Method | None = None,
        count: int = 0,
        scorer: QueryBlindScorer | None = None,
    ) -> None:
        super().__init__(model, name, most)
        self._method, self._count, self._scorer = method, count, scorer
        self._layers = model.config.get_text_config().num_hidden_layers
        self._cut = 0 if method is None else cut_layer(model, method.layers)

    def open(self, session: Session, source: ImageQueries) -> None:
        super().open(session, source)
        self._ids: Tensor | None = None  # [S], the prompt so far, with all of its image
        self._cache = DynamicCache(config=self.model.config.get_text_config())
        self._pruned: PrunedPrefill | None = None  # between layers, which keep caches of two lengths
        self._tokens, self._offset = 0.0, 0

    def first_token(self, inputs: Inputs) -> Tensor:
        ids = inputs["input_ids"][0]
        if self._ids is None:
            positions = self.model.adapter.positions(inputs)
            self._offset = int(positions.max()) + 1 - len(ids)  # of the text behind the image
            logits = self._begin(inputs)
        else:
            width = min(len(self._ids), len(ids) - 1)
            differ = (self._ids[:width] != ids[:width]).nonzero()
            same = int(differ[0]) if len(differ) else width
            self._crop(len(self._ids) - same, same)
            logits = self._go_on(ids[same:], same)
        self._ids = ids
        return logits

    def absorb(self, ids: Tensor) -> Tensor:
        assert self._ids is not None, "an answer comes after its question"
        logits = self._go_on(ids, len(self._ids))
        self._ids = torch.cat([self._ids, ids])
        return logits

    def answer(self, question: str, history: History) -> str:
        inputs = self.session.inputs(question, history)
        end = setting(self.model.base, {}, "eos_token_id")
        ends = [end] if isinstance(end, int) else list(end or ())
        new = [int(self.first_token(inputs).argmax())]
        while new[-1] not in ends and len(new) < self.most:
            last = torch.tensor([new[-1]], device=self.model.device)
            new.append(int(self.absorb(last).argmax()))
        return self.model.processor.tokenizer.decode(new, skip_special_tokens=True).strip()

    @property
    def tokens(self) -> float:
        return self._tokens

    def holds(self) -> list[Any]:
        cache = self._cache if self._pruned is None else self._pruned.cache
        return [(layer.keys, layer.values) for layer in cache.layers]

    def _begin(self, inputs: Inputs) -> Tensor:
        """The whole prompt; of its image what the method chooses."""
        model, method = self.model, self._method
        if method is None:
            self._tokens = float((inputs["input_ids"] == model.adapter.image_token_id).sum())
            return self._read(inputs)
        features, tower = encode(model, inputs, "tower" in method.needs)
        count = min(self._count, len(features.cells[0]))
        if method.between_layers is not None:
            rule, cut = method.between_layers, self._cut
            self._pruned = pruned_prefill(model, inputs, features, rule, count, layer=cut)
            self._tokens = (features.counts[0] * cut + count * (self._layers - cut)) / self._layers
            return self._pruned.logits
        assert method.select is not None, "`find_way` takes no others"
        view = View(model, self.source, (inputs,), features, tower, scorer=self._scorer)
        kept = method.select(view, 0, count)
        self._tokens = float(len(kept.keep))
        compacted = model.adapter.compact(inputs, with_merged(features, [kept]), [kept.keep])
        return self._read(compacted.kwargs)

    def _go_on(self, ids: Tensor, start: int) -> Tensor:
        """The columns of text [n] that begin at `start`, behind what the cache holds."""
        if self._pruned is not None:
            self._pruned = pruned_continuation(self.model, self._pruned, ids[None], layer=self._cut)
            return self._pruned.logits
        position = torch.arange(start, start + len(ids), device=ids.device)[None] + self._offset
        if not self.model.adapter.plain_positions:
            position = position.expand(3, 1, -1)
        return self._read({"input_ids": ids[None], "position_ids": position})

    def _read(self, kwargs: Inputs) -> Tensor:
        output = self.model.base(**kwargs, use_cache=True, **{CACHE: self._cache}, logits_to_keep=1)
        return output.logits[:, -1]

    def _crop(self, surplus: int, length: int) -> None:
        """Take columns away from the end, so that `length` of the prompt stay."""
        if self._pruned is None:
            self._cache.crop(-surplus)
            return
        self._pruned.cache.crop(-surplus)
        masks = [mask[:, : mask.shape[1] - surplus] for mask in self._pruned.masks]
        position = torch.full_like(self._pruned.position, length + self._offset)
        self._pruned = replace(self._pruned, masks=(masks[0], masks[1]), position=position)


class Ours(Way):
    """A mode that chooses for each question; after `after` of them, all tokens, kept.

    Args:
        model: that answers.
        name: of the way.
        most: tokens of an answer.
        mode: that chooses.
        budget: how many tokens.
        after: None: always.
    """

    def __init__(
        self, model: ARRCOCModel, name: str, most: int, mode: str, budget: int, after: int | None = None
    ) -> None:
        super().__init__(model, name, most)
        self._mode, self._budget, self._after = mode, budget, after

    def open(self, session: Session, source: ImageQueries) -> None:
        fresh = Session(self.model, session.images[0], keep_image_after=self._after)
        super().open(fresh, source)
        self._turn, self._read = 0, 0
        self._kept: KeptPrompts | None = None
        self._compacted: Any = None
        self._ids: Tensor | None = None

    def first_token(self, inputs: Inputs) -> Tensor:
        """What `Session.ask` does before its first token, without `generate` around it."""
        self._turn += 1
        if self._after is not None and self._turn > self._after:
            return self._all(inputs)
        mode, encoded = self._mode, self.session.encoded(self._mode)
        ready = self.model.prepare(inputs, mode=mode, budget=self._budget, encoded=encoded)
        if ready.fallback:
            raise ValueError(f"choosing failed in {self.name}, which is no time of it; see the log")
        self._read = sum(ready.read)
        return ready.model(**ready.compacted.kwargs, use_cache=True, logits_to_keep=1).logits[:, -1]

    def _all(self, inputs: Inputs) -> Tensor:
        """As the stock model, from what is kept."""
        model, adapter = self.model, self.model.adapter
        whole = model.prepare(inputs, mode="full", encoded=self.session.encoded("full"))
        if self._kept is None:
            self._kept = KeptPrompts()
            self._kept.read_image(model.base, adapter, whole.compacted)
        self._compacted = self._kept.continued(adapter, whole.compacted)
        self._read, self._ids = sum(whole.read), inputs["input_ids"][0]
        logits = model.base(**unread(self._compacted), logits_to_keep=1).logits[:, -1]
        self._kept.keep(self._ids, self._compacted)
        return logits

    def absorb(self, ids: Tensor) -> Tensor | None:
        if self._kept is None or self._ids is None:
            return None
        cache, position = (
            self._compacted.kwargs[CACHE],
            self._compacted.kwargs.get("position_ids"),
        )
        kwargs: Inputs = {"input_ids": ids[None], CACHE: cache}
        if position is not None:
            steps = torch.arange(1, len(ids) + 1, device=ids.device)
            kwargs["position_ids"] = position[..., -1:] + steps
        logits = self.model.base(**kwargs, logits_to_keep=1).logits[:, -1]
        self._kept.keep(torch.cat([self._ids, ids]), self._compacted)
        return logits

    def answer(self, question: str, history: History) -> str:
        keeps = self._after is not None and self._turn >= self._after
        self._turn += 1
        options = {} if keeps else {"mode": self._mode, "budget": self._budget}
        answer = self.session.ask(question, **options, history=history, max_new_tokens=self.most)
        self._read = answer.read
        return answer.text

    @property
    def tokens(self) -> float:
        return float(self._read)

    def holds(self) -> list[Any]:
        session = self.session
        everything = [list(session._encoded.values()), session._visual]
        kept = self._kept if self._kept is not None else session._kept
        if kept is not None:
            prompts = [prompt for prompt in (kept._image, kept._last) if prompt is not None]
            caches = [prompt.cache.layers for prompt in prompts]
            everything += [(layer.keys, layer.values) for layers in caches for layer in layers]
        return everything


def tensors(things: Any) -> list[Tensor]:
    """All tensors in lists, tuples, dictionaries and data classes."""
    if isinstance(things, Tensor):
        return [things]
    if isinstance(things, dict):
        things = list(things.values())
    elif is_dataclass(things) and not isinstance(things, type):
        things = [getattr(things, field.name) for field in fields(things)]
    if isinstance(things, list | tuple):
        return [tensor for thing in things for tensor in tensors(thing)]
    return []
