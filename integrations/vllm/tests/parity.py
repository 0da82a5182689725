"""An engine's answers beside those of the same model by way of transformers."""

from __future__ import annotations

import torch
from PIL import Image
from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size
from vllm import SamplingParams

from conftest import prompt

GREEDY = SamplingParams(temperature=0, max_tokens=8, logprobs=20)


def run(llm, text, images, **more):
    """The one output for a prompt."""
    wanted = {"prompt": text, "multi_modal_data": {"image": images}}
    if more:
        wanted["mm_processor_kwargs"] = {"arr_coc": more}
    return llm.generate(wanted, GREEDY, use_tqdm=False)[0]


def by_transformers(wrapped, question, images, budget):
    """Log-probabilities of the first token, the answer and the length, by transformers."""
    session = wrapped.session(images)
    prepared = session.plan(question, budget=budget)
    with torch.no_grad():
        first = prepared.model(**prepared.compacted.kwargs).logits[0, -1].log_softmax(-1)
    answer = session.ask(question, budget=budget, max_new_tokens=8).text
    return first, answer, int(prepared.compacted.columns.shape[1])


def distance(first, output) -> float:
    """The largest difference between the 20 largest log-probabilities of vLLM and those of transformers."""
    top = output.outputs[0].logprobs[0]
    return max(abs(float(first[token]) - value.logprob) for token, value in top.items())


def agrees(llm, wrapped, question, images, budget, within: float = 2e-3) -> bool:
    """Whether length, answer and log-probabilities of a question are those of transformers.

    Args:
        within: of the log-probabilities; above 0.01 (bfloat16) the answers aren't compared.
    """
    output = run(llm, prompt(wrapped.processor, (len(images), question)), images, budget=budget)
    first, answer, length = by_transformers(wrapped, question, images, budget)
    assert len(output.prompt_token_ids) == length
    unfinished = " \n\ufffd"  # vLLM holds back half of a character, transformers marks it
    assert within > 0.01 or output.outputs[0].text.strip(unfinished) == answer.strip(unfinished)
    return distance(first, output) < within


def as_gemma_reads(image: Image.Image, tokens: int) -> Image.Image:
    """A picture at the size at which Gemma 4 reads it with so many tokens, so that nothing is resized."""
    height, width = get_aspect_ratio_preserving_size(image.height, image.width, 16, 9 * tokens, 3)
    return image.resize((width, height), Image.Resampling.BICUBIC)
