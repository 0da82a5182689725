"""The table of the families that arr-coc knows, for docs/models.md."""

from arr_coc.families import known_families

COLUMN = {
    "cells": "yes",
    "tiles": "by whole tiles",
    "crops": "`saccade` by finer crops",
    "images": "run as `prune`",
}
"""Whether a family has the modes that choose before the encoder, by what that encodes alone."""


def offers_table() -> str:
    """A row per family, from the registry."""
    lines = ["| family | `model_type` | `sparse`, `saccade` | clips | |", "|---|---|---|---|---|"]
    for one in known_families():
        types = ", ".join(f"`{kind}`" for kind in one.model_types)
        lines.append(
            f"| {one.title} | {types} | {COLUMN[one.encodes]} | {'yes' if one.clips else '-'} | {one.remark} |"
        )
    return "\n".join(lines)
