"""What the server would encode of the images of a chat request, and why.

    VLLM_PLUGINS=arr_coc vllm serve ...        vLLM adds routes of plugins only where they are named
    curl --json @request.json localhost:8000/arr_coc/trace
    curl --json @request.json localhost:8000/arr_coc/trace/1 -o trace.safetensors

The body is that of /v1/chat/completions. The first says of each image its grid, how many cells are kept of
how many, their places, the question that decided, and the allocation with its relevance, which
`arr_coc.Allocation` describes; the model is asked nothing. The second is the trace of one image, counted
from 1, with the server's answer: a file that `arr-coc view` makes a page of.
"""

from __future__ import annotations

import asyncio
import time
from argparse import Namespace
from functools import partial
from typing import Any, NamedTuple

from fastapi import FastAPI, HTTPException, Request, Response
from starlette.datastructures import State
from vllm.engine.protocol import EngineClient
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse

from arr_coc_vllm.choosing import Pictured, Record, chooser_for
from arr_coc_vllm.settings import KEY, read_settings
from arr_coc_vllm.tracing import trace_bytes
from arr_coc_vllm.worker import COUNT, KEEP, NAME, NUMBER, QUESTION, Item


class Endpoint:
    """The routes, as vLLM's endpoint plugins are."""

    name = "arr_coc"
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        """Add the routes."""
        app.add_api_route("/arr_coc/trace", trace, methods=["POST"], tags=["arr-coc"])
        app.add_api_route("/arr_coc/trace/{number}", trace_file, methods=["POST"], tags=["arr-coc"])

    async def init_state(self, engine_client: EngineClient | None, state: State, args: Namespace) -> None:
        """Keep what the routes need of the server's configuration."""
        config = None if engine_client is None else engine_client.model_config.hf_config
        state.arr_coc = read_settings(getattr(config, KEY, None))
        vision = None if config is None else config.vision_config
        sides = (getattr(vision, name, None) for name in ("spatial_merge_size", "pooling_kernel_size"))
        state.arr_coc_merge = next((side for side in sides if side), 1)


class Looked(NamedTuple):
    """An image of a request: its grid, the places of the kept cells, and the decision behind them."""

    grid: tuple[int, int]
    cells: list[int]
    record: Record | None


async def trace(body: ChatCompletionRequest, request: Request) -> dict[str, Any]:
    """What would be encoded of the images of a request."""
    looked = await _look(body, request.app.state)
    images = [
        {
            "grid": list(grid),
            "total": grid[0] * grid[1],
            "kept": len(cells),
            "cells": cells,
            "question": None if record is None else record.question,
            "allocation": None if record is None else record.allocation.to_dict(),
        }
        for grid, cells, record in looked
    ]
    kept, total = (sum(image[name] for image in images) for name in ("kept", "total"))
    return {"images": images, "kept": kept, "total": total}


async def trace_file(number: int, body: ChatCompletionRequest, request: Request) -> Response:
    """The trace of an image of a request, with the server's answer, as a file."""
    state, start = request.app.state, time.perf_counter()
    looked = await _look(body, state)
    if not 1 <= number <= len(looked):
        raise HTTPException(400, f"image {number} of a request with {len(looked)}: count them from 1")
    record = looked[number - 1].record
    if record is None:
        raise HTTPException(
            400, f"nothing was chosen in image {number}: ask something, in a mode other than full"
        )
    asked = body.model_copy(update={"stream": False, "stream_options": None, "n": 1})
    reply = await state.openai_serving_chat.create_chat_completion(asked, request)
    if isinstance(reply, ErrorResponse):
        raise HTTPException(reply.error.code, reply.error.message)
    seconds = time.perf_counter() - start
    online = state.online_renderer
    params = body.build_chat_params(online.chat_template, online.chat_template_content_format)
    _, prompt = await online.renderer.render_messages_async(body.messages, params)
    picture = prompt["multi_modal_data"]["image"][number - 1]
    content = await asyncio.to_thread(
        trace_bytes,
        chooser_for(state.arr_coc),
        getattr(picture, "media", picture),
        record,
        reply.choices[0].message.content or "",
        seconds,
        reply.model,
    )
    name = f'attachment; filename="trace-{number}.safetensors"'
    return Response(content, media_type="application/octet-stream", headers={"Content-Disposition": name})


async def _look(body: ChatCompletionRequest, state: State) -> list[Looked]:
    """The images of a request, looked at as for an answer.

    Raises:
        HTTPException: the request is refused.
    """
    try:
        rendered = await state.online_renderer.render_chat(body, skip_mm_cache=True)
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
    if isinstance(rendered, ErrorResponse):
        raise HTTPException(rendered.error.code, rendered.error.message)
    chooser, looked = chooser_for(state.arr_coc), []
    processor = state.online_renderer.renderer.get_mm_processor()
    for fields in rendered[1][0].get("mm_kwargs", {}).get("image", []):
        _, h, w = fields["image_grid_thw"].data.tolist()
        grid = (h // state.arr_coc_merge, w // state.arr_coc_merge)
        item = Item.read(*(fields[name].data for name in (NAME, QUESTION, COUNT)))
        if item is None:
            keep, record = fields[KEEP].data, chooser.record(int(fields[NUMBER].data))
        else:  # left to the worker, which chooses the same
            opening = partial(processor.picture_of, fields["pixel_values"].data, (h, w))
            picture = Pictured(item.picture, grid, opening)
            record = await asyncio.to_thread(chooser.decide, picture, item.question, item.count)
            keep = record.allocation.keep
        looked.append(Looked(grid, keep.flatten().tolist(), record))
    return looked
