"""The table of MLX-VLM's model types that are served: a row each.

A family has a row if it holds the laws: kept tokens stay at their positions, and dropping a token is the same
as hiding it. Most families of MLX-VLM number the columns of a prompt one after another by the length of their
cache; there a kept token would move to another place, so they are refused.
"""

from __future__ import annotations

from typing import NamedTuple

from arr_coc_mlx.towers import Tower, glm4v, glm_ocr, qwen2, qwen2_5, qwen3


class Family(NamedTuple):
    """How a family is served.

    Attributes:
        tower: encodes some cells alone; None: its tower can't, and `sparse` runs as `prune`.
        remembers: the language model keeps a prompt's positions itself, in place of being handed them.
        batches: several prompts at a time are answered as each alone. (MLX-VLM 0.7.10 doesn't hide the
            padding of a batch from Qwen2-VL, with dropped tokens or without.)
        dense: the language model takes deepstack tokens with a place for every column, in place of a list.
    """

    tower: Tower | None = None
    remembers: bool = False
    batches: bool = True
    dense: bool = False


FAMILIES: dict[str, Family] = {
    "qwen2_vl": Family(qwen2, batches=False),
    "qwen2_5_vl": Family(qwen2_5),
    "qwen3_vl": Family(qwen3),
    "qwen3_vl_moe": Family(qwen3),
    "qwen3_5": Family(qwen3),
    "qwen3_5_moe": Family(qwen3),
    "glm4v": Family(glm4v, remembers=True),
    "glm4v_moe": Family(glm4v, remembers=True),
    "glm_ocr": Family(glm_ocr, remembers=True),
    "cohere_compass": Family(qwen3),
    "qwen3_omni_moe": Family(qwen3, dense=True),
}
"""By `model_type` of a checkpoint."""
NO_TEXT = "it writes no text"
REFUSED = {
    "falcon_ocr": "it transcribes a picture by the name of a task, and no question says what of it to keep",
    "minicpmv4_7": "its pictures are crops of several sizes, whose cells are not those of one grid",
    "qwen4_exp": "it reads columns and ids in blocks of neighbours, which dropping one would change",
    "prism_hadamard_qwen35": "its packed weights were not tried",
    "colqwen2_5": NO_TEXT,
    "qwen3_vl_embedding": NO_TEXT,
    "clef": NO_TEXT,
}
"""Model types that give the positions of a prompt and are refused nevertheless, and why."""


def find_family(model_type: str) -> Family:
    """Return the row of a model type.

    Raises:
        ValueError: it isn't served; names those that are.
    """
    if model_type not in FAMILIES:
        why = REFUSED.get(model_type, "kept tokens would lose their positions, or it was not tried")
        raise ValueError(
            f"model_type {model_type!r} is not served with MLX: {why}; use one of {', '.join(FAMILIES)}, or "
            "the proxy (`arr-coc proxy`)"
        )
    return FAMILIES[model_type]
