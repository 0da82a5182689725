"""One question answered from any cells of its image, with the log-probability of a right answer.

reader = open_reader(session, question, "prune")       right: the stock model's answer with all tokens
reader.read(reader.encode(keep), keep)                 {"answer", "right", "logprob", "tokens", "keep"}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from arr_coc.choose.allocation import Allocation
from arr_coc.choose.budget import Budget
from arr_coc.data.metrics import exact_match
from arr_coc.modes import find_mode
from arr_coc.modes.request import runs_as
from arr_coc.modes.route import encode_parts
from arr_coc.seam import VisualFeatures
from arr_coc.seam.batching import answer_costs
from arr_coc.session import Session
from arr_coc_lab.evaluate.answering import answer_compacted

LONGEST = 32  # tokens of an answer, at most


def open_reader(session: Session, question: str, mode: str, right: str | None = None) -> CellReader:
    """Return a reader in the mode that this family really runs, of `mode` "prune" or "sparse".

    `right` is the answer that counts as right; None: the stock model's with all tokens.

    Raises:
        ValueError: a mode that keeps no cells of an order, or as `Session.ask`.
    """
    choosing = find_mode(mode)
    if not choosing.chooses or choosing.gestalt:
        raise ValueError(f"mode {mode!r} can't be probed: use 'prune' or 'sparse'")
    if right is None:
        right = session.ask(question, mode="full", max_new_tokens=LONGEST).text
    return CellReader(session, question, right, runs_as(session.model.adapter, find_mode(mode))[0].name)


@dataclass(frozen=True)
class CellReader:
    """Answers one question from any cells of one image, with the LoRA of the mode, if there is one.

    In mode "sparse" the cells are encoded alone, else taken from the encoded image; "full" is the stock
    model.
    """

    session: Session
    question: str
    right: str
    mode: str

    def decide(self, budget: Budget) -> Allocation:
        """Return the model's allocation; ValueError for a bad budget, or if choosing failed."""
        model = self.session.model
        inputs, encoded = self.session.inputs(self.question), self.session.encoded(self.mode)
        prepared = model.prepare(inputs, budget=budget, mode=self.mode, encoded=encoded)
        if prepared.fallback:
            raise ValueError(
                "the allocation failed, so that there is no order of cells to probe; the log says why"
            )
        return prepared.allocations[0]

    def encode(self, keep: Tensor) -> VisualFeatures:
        """Return the encoded image, as far as cells [k] need it: in mode "sparse" the other cells are 0."""
        model, mode = self.session.model, find_mode(self.mode)
        adapter, inputs = model.adapter_for(mode), self.session.inputs(self.question)
        if not mode.before_encoder:
            encoded = self.session.encoded(self.mode)
            encoded.features = encoded.features or adapter.features(inputs)
            return encoded.features
        layout = adapter.layout(inputs)
        some = encode_parts(model.chooser, mode, inputs, [keep], layout.sizes)

        def place(values: list[Tensor]) -> list[Tensor]:
            whole = values[0].new_zeros(layout.counts[0], values[0].shape[1])
            # all but the chosen tokens are 0
            return [whole.index_copy(0, layout.tokens_to_keep([keep])[0], values[0])]

        levels = [place(level) for level in some.levels]  # deepstack's, per layer
        return VisualFeatures(place(some.tokens), levels, layout.grids, layout.cells, some.kind)

    def answer(self, features: VisualFeatures, keep: Tensor) -> str:
        """Return the greedy answer from cells [k]."""
        model = self.session.model
        compacted = model.adapter.compact(self.session.inputs(self.question), features, [keep])
        return answer_compacted(model, [compacted], self.mode, most=1, max_new_tokens=LONGEST)[0]

    def is_right(self, answer: str) -> bool:
        """Letter by letter."""
        return exact_match(answer, (self.right,)) == 1.0

    def logprobs(self, features: VisualFeatures, keeps: Sequence[Tensor]) -> list[float]:
        """Mean log-probability per token, nats, of the right answer and end of turn, per set of cells [k]."""
        model, count = self.session.model, len(keeps)
        inputs = self.session.batch([self.question] * count, [self.right] * count)
        return (-answer_costs(model.adapter_for(self.mode), inputs, features, keeps)).tolist()

    def read(self, features: VisualFeatures, keep: Tensor) -> dict[str, Any]:
        """Return the answer from cells [k] of one encoded image, as a row of `contenders`."""
        answer = self.answer(features, keep)
        return {
            "answer": answer,
            "right": self.is_right(answer),
            "logprob": self.logprobs(features, [keep])[0],
            "tokens": len(features.tokens_to_keep([keep])[0]),
            "keep": keep.tolist(),
        }
