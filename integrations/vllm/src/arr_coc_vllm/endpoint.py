"""POST /arr_coc/trace: what the server would encode of the images of a chat request, without an answer.

    VLLM_PLUGINS=arr_coc vllm serve ...        vLLM adds routes of plugins only where they are named
    curl -d @request.json localhost:8000/arr_coc/trace

The body is that of /v1/chat/completions. The reply says of each image its grid, how many cells are kept of
how many, their places, the question that decided, and the allocation with its relevance, which
`arr_coc.Allocation` describes.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from starlette.datastructures import State
from vllm.engine.protocol import EngineClient
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse

from arr_coc_vllm.choosing import chooser_for
from arr_coc_vllm.processor import KEEP, NUMBER
from arr_coc_vllm.settings import KEY, read_settings


class Endpoint:
    """The route, as vLLM's endpoint plugins are."""

    name = "arr_coc"
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        """Add the route."""
        app.add_api_route("/arr_coc/trace", trace, methods=["POST"], tags=["arr-coc"])

    async def init_state(self, engine_client: EngineClient | None, state: State, args: Namespace) -> None:
        """Keep what the route needs of the server's configuration."""
        config = None if engine_client is None else engine_client.model_config.hf_config
        state.arr_coc = read_settings(getattr(config, KEY, None))
        state.arr_coc_merge = 1 if config is None else config.vision_config.spatial_merge_size


async def trace(body: ChatCompletionRequest, request: Request) -> dict[str, Any]:
    """What would be encoded of the images of a request."""
    state = request.app.state
    try:
        rendered = await state.online_renderer.render_chat(body, skip_mm_cache=True)
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
    if isinstance(rendered, ErrorResponse):
        raise HTTPException(rendered.error.code, rendered.error.message)
    chooser, images = chooser_for(state.arr_coc.allocator), []
    for item in rendered[1][0].get("mm_kwargs", {}).get("image", []):
        _, h, w = item["image_grid_thw"].data.tolist()
        grid = (h // state.arr_coc_merge, w // state.arr_coc_merge)
        cells = item[KEEP].data.flatten().tolist()
        record = chooser.record(int(item[NUMBER].data))
        images.append(
            {
                "grid": list(grid),
                "total": grid[0] * grid[1],
                "kept": len(cells),
                "cells": cells,
                "question": None if record is None else record.question,
                "allocation": None if record is None else record.allocation.to_dict(),
            }
        )
    return {
        "images": images,
        "kept": sum(i["kept"] for i in images),
        "total": sum(i["total"] for i in images),
    }
