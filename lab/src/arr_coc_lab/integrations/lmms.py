"""lmms-eval's model `arr_coc`, as registered by the entry point `lmms_eval.models`.

lmms-eval calls `manifest` at every start, whichever model is asked for, so nothing heavy is imported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmms_eval.models.registry_v2 import ModelManifest

MODEL_ID = "arr_coc"
MODEL_CLASS = "arr_coc_lab.integrations.lmms_model.ARRCOC"


def manifest() -> ModelManifest:
    """Return the model's name and the path of its class."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest(MODEL_ID, chat_class_path=MODEL_CLASS)
