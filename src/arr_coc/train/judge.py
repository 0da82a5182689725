"""A judge of answers that are sampled from kept cells: the reward of REINFORCE as the metric itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from arr_coc.data.metrics import anls, exact_match, f1
from arr_coc.model import ARRCOCModel
from arr_coc.modes import PRUNE
from arr_coc.seam import VisualFeatures
from arr_coc.seam.decoding import generate_whole
from arr_coc.session import GREEDY, Session
from arr_coc.train.rows import Row

REWARDS: dict[str, Callable[[str, Sequence[str]], float]] = {
    "exact_match": exact_match,
    "anls": anls,
    "f1": f1,
}
LONGEST = 32
"""Tokens of a sampled answer at most."""
SAMPLING = GREEDY | {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}


class Judge:
    """The metric of answers to an image's questions.

    Args:
        model: that answers.
        session: of the image.
        encoded: the image, encoded.
        rows: its questions.
        truths: the accepted answers of each.
        reward: a name of `REWARDS`.
        together: go on until all processes of the run have their answers, which hold the model together.
    """

    def __init__(
        self,
        model: ARRCOCModel,
        session: Session,
        encoded: VisualFeatures,
        rows: Sequence[Row],
        truths: Sequence[Sequence[str]],
        reward: str,
        together: bool = False,
    ) -> None:
        self.model, self.metric, self.features = model, REWARDS[reward], encoded.repeat(len(rows))
        self.inputs = session.batch([row.question for row in rows])
        self.truths, self.together = truths, together

    @torch.no_grad()
    def costs(self, keep: Tensor, sampled: bool, draws: torch.Generator | None = None) -> Tensor:
        """1 less the metric of each answer: [Q] in [0, 1].

        Args:
            keep: long [Q, K], the kept cells.
            sampled: from the model's own distribution; else greedily.
            draws: what the sampling is seeded from; None: torch's own generator.
        """
        adapter = self.model.adapter_for(PRUNE)
        compacted = self.model.adapter.compact(self.inputs, self.features, list(keep))
        options = SAMPLING if sampled else GREEDY
        options = options | {"max_new_tokens": LONGEST, "synced_gpus": self.together}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=draws)))
            ids = generate_whole(adapter.model, self.inputs, compacted, **options)
        new = ids[:, self.inputs["input_ids"].shape[1] :]
        answers = self.model.processor.tokenizer.batch_decode(new, skip_special_tokens=True)
        pairs = zip(answers, self.truths, strict=True)
        costs = [1 - self.metric(answer.strip(), truths) for answer, truths in pairs]
        return torch.tensor(costs, device=keep.device)
