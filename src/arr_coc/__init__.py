"""ARR-COC: answer questions about an image from a fraction of its visual tokens, and see which ones.

    model = ARRCOCQwen.from_pretrained()                        # the bundled small model, offline
    answer = model.ask("page.png", "What is the invoice number?")
    answer.text, answer.kept, answer.total, answer.allocation

Names are imported when they are first used, so that `import arr_coc` costs nothing: torch and
transformers load with the first name that needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arr_coc.answer import Answer
    from arr_coc.choose.allocation import Allocation, Reason
    from arr_coc.choose.attending import TokenAllocator, compute_retention_mask
    from arr_coc.choose.balancing import AdaptiveTensionBalancer
    from arr_coc.choose.budget import (
        DEFAULT_BUDGET,
        budget_count,
        compute_retained_tokens_count,
        parse_budget,
    )
    from arr_coc.choose.channels import ChannelContext, ChannelGroup, register_channel_group
    from arr_coc.choose.keep_list import KeepList
    from arr_coc.choose.knowing import InformationScorer, ParticipatoryScorer, PerspectivalScorer
    from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer, ARRCOCOutput, Relevance
    from arr_coc.choose.texture import generate_texture_array
    from arr_coc.files.images import open_image
    from arr_coc.model import ARRCOCModel, ARRCOCQwen
    from arr_coc.modes import MODES, Mode
    from arr_coc.selector import Selector
    from arr_coc.session import Session
    from arr_coc.trace.picture import draw_allocation, draw_layers

__version__ = "0.1.0"

# Where each public name lives.
_HOMES = {
    "model": ("ARRCOCModel", "ARRCOCQwen"),
    "answer": ("Answer",),
    "session": ("Session",),
    "selector": ("Selector",),
    "modes": ("MODES", "Mode"),
    "choose.layer": ("ARRCOCConfig", "ARRCOCLayer", "ARRCOCOutput", "Relevance"),
    "choose.allocation": ("Allocation", "Reason"),
    "choose.keep_list": ("KeepList",),
    "choose.texture": ("ChannelContext", "ChannelGroup", "generate_texture_array", "register_channel_group"),
    "choose.knowing": ("InformationScorer", "ParticipatoryScorer", "PerspectivalScorer"),
    "choose.balancing": ("AdaptiveTensionBalancer",),
    "choose.attending": ("TokenAllocator", "compute_retention_mask"),
    "choose.budget": ("DEFAULT_BUDGET", "budget_count", "compute_retained_tokens_count", "parse_budget"),
    "files.images": ("open_image",),
    "trace.picture": ("draw_allocation", "draw_layers"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ARRCOCModel",
    "ARRCOCQwen",
    "Answer",
    "Session",
    "Selector",
    "MODES",
    "Mode",
    "ARRCOCConfig",
    "ARRCOCLayer",
    "ARRCOCOutput",
    "Relevance",
    "Allocation",
    "Reason",
    "KeepList",
    "ChannelContext",
    "ChannelGroup",
    "generate_texture_array",
    "register_channel_group",
    "InformationScorer",
    "ParticipatoryScorer",
    "PerspectivalScorer",
    "AdaptiveTensionBalancer",
    "DEFAULT_BUDGET",
    "TokenAllocator",
    "budget_count",
    "compute_retained_tokens_count",
    "compute_retention_mask",
    "parse_budget",
    "open_image",
    "draw_allocation",
    "draw_layers",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arr_coc.files.collecting import without_collecting

    with without_collecting():
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
