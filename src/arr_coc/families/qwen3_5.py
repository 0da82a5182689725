"""Qwen3.5 and Qwen4-Exp: as Qwen3-VL without deepstack, on a language model with recurrent layers.

A recurrent state has no mask, so dropping a token is not the same as masking it. With all tokens kept,
results are the stock model's; with some dropped there is no masked equivalent to compare with. In Qwen4-Exp
the other layers pick the tokens that they read, in blocks of neighbours: of those that are kept.
"""

from __future__ import annotations

from arr_coc.families.qwen3_vl import Qwen3VLAdapter


class Qwen3_5Adapter(Qwen3VLAdapter):
    """Qwen3.5, dense and with experts, and Qwen4-Exp: no method differs from Qwen3-VL's."""

    model_types = ("qwen3_5", "qwen3_5_moe", "qwen4_exp")
    recurrent = True
    title = "Qwen3.5, Qwen4-Exp"
    remark = "its recurrent layers have no masked equivalent of a dropped token"
