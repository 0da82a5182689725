"""
title: arr-coc
author: arr-coc
version: 0.1.0
license: Apache-2.0
description: Sends the model only those parts of pictures that your questions need (by `arr-coc proxy`).
required_open_webui_version: 0.6.0
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from pydantic import BaseModel, Field

PATH = "/beta/litellm_basic_guardrail_api"
log = logging.getLogger(__name__)


class Filter:
    """A filter function of Open WebUI that packs the pictures of each request.

    Open WebUI keeps the chat as it is: every turn comes with its own pictures, and equal turns are packed
    alike. If the proxy doesn't answer, the request goes on as it came.
    """

    class Valves(BaseModel):
        """What an administrator may set."""

        address: str = Field("http://127.0.0.1:8080", description="Where `arr-coc proxy` listens.")
        tokens: int = Field(400, ge=1, description="Visual tokens that each picture may cost.")
        seconds: float = Field(60.0, gt=0, description="How long to wait; then pictures go on whole.")
        priority: int = Field(0, description="Filters with a lower number run first.")

    def __init__(self) -> None:
        self.valves = self.Valves()

    async def inlet(
        self,
        body: dict[str, Any],
        __event_emitter__: Callable[[dict[str, Any]], Awaitable[None]] | None = None,
    ) -> dict[str, Any]:
        """Return the request with its pictures packed; the same one without pictures, or if that fails."""
        if not any(isinstance(turn.get("content"), list) for turn in body.get("messages", ())):
            return body
        asked = {
            "input_type": "request",
            "model": body.get("model"),
            "structured_messages": body["messages"],
            "additional_provider_specific_params": {"tokens": self.valves.tokens},
        }
        try:
            async with httpx.AsyncClient(timeout=self.valves.seconds, trust_env=False) as client:
                answer = await client.post(self.valves.address.rstrip("/") + PATH, json=asked)
                answer.raise_for_status()
                packed = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            log.warning("arr-coc: pictures go on whole (%s: %s)", type(error).__name__, error)
            await _say(__event_emitter__, "arr-coc did not answer: pictures are sent whole")
            return body
        rows = packed.get("structured_messages")
        if not isinstance(rows, list) or len(rows) != len(body["messages"]):
            return body
        await _say(__event_emitter__, f"arr-coc: {packed.get('summary', 'packed')}")
        return body | {"messages": rows}


async def _say(emit: Callable[[dict[str, Any]], Awaitable[None]] | None, text: str) -> None:
    """Show a line above the answer in the chat."""
    if emit is not None:
        await emit({"type": "status", "data": {"description": text, "done": True}})
