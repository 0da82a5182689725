"""arr-coc as a chat model of lmms-eval, which has to be installed (`pip install 'lmms-eval>=0.7.3,<0.8'`).

`token_counts` of each sample are `input_tokens` (text and visual tokens that the language model read) and
`output_tokens`; the throughput metrics have the mean visual tokens read and available, and the fallbacks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from statistics import mean
from typing import NoReturn

from lmms_eval.api.instance import GenerationResult, Instance, TokenCounts
from lmms_eval.api.model import lmms
from lmms_eval.models.model_utils.gen_metrics import log_metrics
from lmms_eval.protocol import ChatMessages
from tqdm import tqdm

from arr_coc.files.paths import BUNDLED_NAME
from arr_coc_lab.integrations.chat import Decoding, Reply, Responder, load


class ARRCOC(lmms):
    """A vision-language model that reads only the visual tokens a question needs.

    Args:
        pretrained: a model or allocator, folder or Hub name, or "bundled".
        mode: one of arr-coc's modes; "full" is the stock model. None: the model's own.
        budget: visual tokens to keep of each image: a count, a fraction or "auto"; None: the model's own.
        allocator, revision, dtype: as of `ARRCOCModel.from_pretrained`.
        relevance: "auto", "guide", "gaze" or "trained".
        device: such as "cuda:1"; None: the GPU if there is one; several processes have one each.
        strict: end the run where choosing fails, instead of reading all tokens and counting it.
        max_new_tokens: of an answer, for tasks that do not set it.
        batch_size, max_batch_size: 1, as prompts are answered one at a time; the second is ignored.

    Raises:
        ValueError: it can't be loaded, or a value out of range.
    """

    is_simple = False

    def __init__(
        self,
        pretrained: str = BUNDLED_NAME,
        mode: str | None = None,
        budget: int | float | str | None = None,
        allocator: str | None = None,
        relevance: str | None = None,
        revision: str | None = None,
        device: str | None = None,
        dtype: str | None = None,
        strict: bool = False,
        max_new_tokens: int = 128,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        if str(batch_size) != "1":
            raise ValueError(f"batch_size {batch_size!r} can't be had: arr_coc answers one by one; use 1")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            from accelerate import Accelerator

            self.accelerator = Accelerator()
            # lmms-eval shares questions out by these two
            self._rank, self._world_size = self.accelerator.process_index, self.accelerator.num_processes
            device = str(self.accelerator.device) if device is None else device
        self.model = load(
            pretrained,
            mode=mode,
            budget=budget,
            allocator=allocator,
            relevance=relevance,
            revision=revision,
            device=device,
            dtype=dtype,
            strict=strict,
        )
        self.device = self.model.device
        self.max_new_tokens = max_new_tokens
        self.responder: Responder | None = Responder(self.model)

    def clean(self) -> None:
        """Free the model's memory, for a judge."""
        self.responder = None
        super().clean()

    def generate_until(self, requests: list[Instance]) -> list[GenerationResult]:
        assert self.responder is not None, "lmms-eval cleans up after its last request"
        replies: list[Reply] = []
        for request in tqdm(requests, disable=self.rank != 0, desc="Model Responding"):
            context, doc_to_messages, options, doc_id, task, split = request.args
            messages = ChatMessages(messages=doc_to_messages(self.task_dict[task][split][doc_id]))
            decoding = Decoding.of_task(options or {}, self.max_new_tokens)
            reply = self.responder.reply(messages.to_hf_messages(), decoding)
            # for lmms-eval's own cache of answers
            self.cache_hook.add_partial("generate_until", (context, options), reply.text)
            replies.append(reply)
        if replies:
            self._log(replies)
        return [
            GenerationResult(
                text=reply.text,
                token_counts=TokenCounts(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens),
            )
            for reply in replies
        ]

    def _log(self, replies: Sequence[Reply]) -> None:
        seconds, tokens = sum(r.seconds for r in replies), sum(r.output_tokens for r in replies)
        log_metrics(
            total_elapsed_time=seconds,
            total_gen_tokens=tokens,
            avg_speed=tokens / seconds,
            additional_metrics={
                "rank": self.rank,
                "total_requests": len(replies),
                "input_tokens": mean(r.input_tokens for r in replies),
                "visual_tokens_read": mean(r.read for r in replies),
                "visual_tokens_of_the_pictures": mean(r.total for r in replies),
                "fallbacks": sum(r.fallback for r in replies),
            },
        )

    def loglikelihood(self, requests: list[Instance]) -> NoReturn:
        """Refused: the kept tokens depend on the question, which these tasks do not state by itself."""
        raise NotImplementedError("arr_coc writes answers: choose tasks of output_type generate_until")

    def generate_until_multi_round(self, requests: list[Instance]) -> NoReturn:
        raise NotImplementedError("arr_coc answers single rounds: choose tasks of output_type generate_until")
