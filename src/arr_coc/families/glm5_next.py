"""GLM-5 Next: GLM-4V's tower without learned positions, on a language model with recurrent layers.

Its other layers pick the tokens that they read and have no positions at all. Its image processor pads a
picture on the right and below, and the padding is cells as well.
"""

from __future__ import annotations

from arr_coc.families.qwen2_5_vl import Qwen2_5VLAdapter


class Glm5NextAdapter(Qwen2_5VLAdapter):
    """GLM-5 Next, whose positions are counted along the prompt."""

    model_types = ("glm5_next",)
    title = "GLM-5 Next"
    remark = "its recurrent layers have no masked equivalent of a dropped token; no clips"
    recurrent = True
    clips = False  # frames have placeholders of images, and no three-row positions
    halves = False  # it shrinks by a convolution between its blocks and its merger
