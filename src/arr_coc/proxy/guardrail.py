"""LiteLLM's generic guardrail API: a gateway sends the turns of a request, and gets them back packed.

    content = read_rows(body)                 a chat request in JSON, for the route that packs any other
    answer = written_rows(content, changed)   what the gateway reads

LiteLLM posts to PATH before it asks a model, and so does the filter for Open WebUI (integrations/gateways).
Turns come in the form of OpenAI's chat completions, whichever API the client speaks.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from arr_coc.files.question import kind_of

PATH = "/beta/litellm_basic_guardrail_api"
CHAT_PATH = "/v1/chat/completions"  # of the requests that it is read as
SETTINGS = ("tokens", "layout")  # that a gateway's own configuration may hold for it
NOTHING: dict[str, Any] = {"action": "NONE"}


class GuardedRequest(NamedTuple):
    """What a gateway asks: a chat request in JSON, with its turns and model, and settings by name."""

    content: bytes
    settings: dict[str, str]


def read_rows(content: bytes) -> GuardedRequest | None:
    """Return the turns that a gateway sent; None if it sent none to change, such as a model's answer.

    Raises:
        ValueError: the body is no JSON object, or a setting of it isn't known.
    """
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError("the body is no JSON: send what LiteLLM's generic guardrail API sends") from error
    if not isinstance(body, dict):
        raise ValueError(f"the body is {kind_of(body)}: send what LiteLLM's generic guardrail API sends")
    named = body.get("additional_provider_specific_params") or {}
    if not isinstance(named, dict) or not named.keys() <= set(SETTINGS):
        raise ValueError(
            f"additional_provider_specific_params {json.dumps(named)[:80]} has settings that are not known: "
            f"use {' and '.join(SETTINGS)}"
        )
    rows = body.get("structured_messages")
    if body.get("input_type") != "request" or not isinstance(rows, list):
        return None
    request = {"model": body.get("model"), "messages": rows}
    return GuardedRequest(json.dumps(request).encode(), {name: str(value) for name, value in named.items()})


def written_rows(content: bytes | bytearray, summary: str) -> dict[str, Any]:
    """Return what a gateway reads of a request whose turns were changed; `summary` says it in a line."""
    rows = json.loads(content)["messages"]
    return {"action": "GUARDRAIL_INTERVENED", "structured_messages": rows, "summary": summary}
