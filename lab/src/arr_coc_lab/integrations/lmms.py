"""lmms-eval's model `arr_coc`: what its entry point `lmms_eval.models` names.

python -m lmms_eval --model arr_coc --model_args pretrained=bundled,mode=sparse,budget=64 --tasks ...

lmms-eval calls `manifest` whenever it starts, whichever model is wanted, so that nothing heavy is imported
here; the model itself is `arr_coc_lab.integrations.lmms_model.ARRCOC`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmms_eval.models.registry_v2 import ModelManifest

MODEL_ID = "arr_coc"
MODEL_CLASS = "arr_coc_lab.integrations.lmms_model.ARRCOC"


def manifest() -> ModelManifest:
    """What lmms-eval registers: the model's name and where its class is."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest(MODEL_ID, chat_class_path=MODEL_CLASS)
