"""A stand-in for the servers of chat APIs, servers on ports of their own, and a quick double of packing."""

from __future__ import annotations

import base64
import gzip
import io
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import httpx
import torch
import uvicorn
from PIL import Image, ImageDraw
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from arr_coc.guide.coupling import Coupling, Match
from arr_coc.guide.question import terms
from arr_coc.pixels import Packed, Place
from arr_coc.proxy.earlier import named_things
from arr_coc.proxy.server import Proxy
from arr_coc.relevance.deciding import Decision
from arr_coc.selector import KnownPicture

KEY = "sk-this-is-a-secret"
URL = "data:image/png;base64,"
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "ollama": "/api/chat",
}
CLIENT = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0))
"""For calls that share nothing; `httpx.get` reads the machine's authorities for each of them."""


class QuickServer(uvicorn.Server):
    """A server that notices within a hundredth of a second that it should end, not within a tenth."""

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await anyio.sleep(0.01)


@contextmanager
def listening(config: uvicorn.Config) -> Generator[str]:
    """The address of a server on a free port of this machine, stopped at the end."""
    config.host, config.port = "127.0.0.1", 0
    server = QuickServer(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


def named(body: dict[str, Any]) -> str:
    """The model of a body, as far as it can be written."""
    return str(body.get("model")).encode("ascii", "replace").decode()


class StandIn:
    """A server that speaks the three protocols in their recorded shapes, and keeps what it was sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[list[tuple[bytes, bytes]]] = []
        self.targets: list[bytes] = []
        self.aborted = threading.Event()
        self.most_pictures = 99  # of a request
        self.failures: list[str] = []  # of requests of several pictures, in turn, with status 500
        self.go_on = threading.Event()  # between the first and the second part of a stream
        routes = [
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/responses", self.responses, methods=["POST"]),
            Route("/v1/messages", self.messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", self.count, methods=["POST"]),
            Route("/api/chat", self.ollama, methods=["POST"]),
            Route("/api/generate", self.ollama, methods=["POST"]),
            Route("/models", self.other),
            Route("/away", self.away, methods=["GET", "POST"]),
            Route("/{path:path}", self.other, methods=["GET", "POST", "PUT", "DELETE", "HEAD"]),
        ]
        self.config = uvicorn.Config(Starlette(routes=routes), log_level="warning", server_header=False)

    async def keep(self, request: Request) -> Any:
        self.bodies.append(await request.body())
        self.headers.append(list(request.scope["headers"]))
        query = request.scope["query_string"]
        self.targets.append(request.scope["raw_path"] + (b"?" + query if query else b""))
        try:
            return json.loads(self.bodies[-1])
        except (ValueError, RecursionError):
            return None

    def refusal(self, body: Any) -> Response | None:
        """What a server says that takes fewer pictures: vLLM, and Ollama of some models."""
        count = json.dumps(body).count('"image_url": {') + len(json.dumps(body).split('"images": ["')) - 1
        count += sum(len(turn.get("images") or ()) for turn in body["messages"] if isinstance(turn, dict)) > 1
        if count > 1 and self.failures:
            return JSONResponse({"error": self.failures.pop(0)}, 500)
        if count <= self.most_pictures:
            return None
        reason = f"At most {self.most_pictures} image(s) may be provided in one prompt."
        return Response(
            gzip.compress(json.dumps({"error": reason}).encode()), 400, {"content-encoding": "gzip"}
        )

    def last(self) -> Any:
        """The last body, parsed."""
        return json.loads(self.bodies[-1])

    async def parts(self, first: str, second: str) -> AsyncIterator[str]:
        ended = False
        try:
            yield first
            for _ in range(3000):
                if self.go_on.is_set():
                    break
                await anyio.sleep(0.01)
            yield second
            ended = True
        finally:
            if not ended:
                self.aborted.set()

    def stream(self, lines: Sequence[str], kind: str) -> Response:
        half = len(lines) // 2
        parts = self.parts("".join(lines[:half]), "".join(lines[half:]))
        return StreamingResponse(parts, media_type=kind)

    async def chat(self, request: Request) -> Response:
        body = await self.keep(request)
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            error = {
                "message": "none",
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
            return JSONResponse({"error": error}, 400)
        if (refusal := self.refusal(body)) is not None:
            return refusal
        while body.get("wait") and not self.go_on.is_set():
            if await request.is_disconnected():
                self.aborted.set()
                break
            await anyio.sleep(0.01)
        facts = {"id": "chatcmpl-1", "created": 1764000000, "model": named(body)}
        if body.get("stream"):
            chunks = [{"role": "assistant", "content": ""}, {"content": "On the 30th"}, {"content": "."}, {}]
            lines = []
            for number, delta in enumerate(chunks):
                choice = {"index": 0, "delta": delta, "finish_reason": "stop" if number == 3 else None}
                chunk = facts | {"object": "chat.completion.chunk", "choices": [choice]}
                lines.append(f"data: {json.dumps(chunk)}\n\n")
            return self.stream([*lines, "data: [DONE]\n\n"], "text/event-stream")
        message = {"role": "assistant", "content": "On the 30th."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
        return JSONResponse(facts | {"object": "chat.completion", "choices": [choice], "usage": usage})

    async def responses(self, request: Request) -> Response:
        await self.keep(request)
        text = {"type": "output_text", "text": "On the 30th.", "annotations": []}
        item = {
            "type": "message",
            "id": "msg_1",
            "status": "completed",
            "role": "assistant",
            "content": [text],
        }
        facts = {"id": "resp_1", "object": "response", "created_at": 1764000000, "model": "m"}
        return JSONResponse(
            facts | {"output": [item], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        )

    async def messages(self, request: Request) -> Response:
        body = await self.keep(request)
        if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
            error = {"type": "invalid_request_error", "message": "messages: Field required"}
            return JSONResponse({"type": "error", "error": error}, 400)
        usage = {"input_tokens": 9, "output_tokens": 4}
        message: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": named(body),
        }
        message |= {"stop_reason": None, "stop_sequence": None, "usage": usage, "content": []}
        if body.get("stream"):
            events: list[dict[str, Any]] = [
                {"type": "message_start", "message": message},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "On "}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "30th"}},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                 "usage": {"output_tokens": 4}},
                {"type": "message_stop"},
            ]  # fmt: skip
            lines = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events]
            return self.stream(lines, "text/event-stream")
        content = [{"type": "text", "text": "On the 30th."}]
        return JSONResponse(message | {"content": content, "stop_reason": "end_turn"})

    async def count(self, request: Request) -> Response:
        await self.keep(request)
        return JSONResponse({"input_tokens": 42})

    async def ollama(self, request: Request) -> Response:
        body = await self.keep(request)
        if not isinstance(body, dict) or not isinstance(body.get("model"), str):
            return JSONResponse({"error": "model is required"}, 400)
        if isinstance(body.get("messages"), list) and (refusal := self.refusal(body)) is not None:
            return refusal
        field = {"message": {"role": "assistant", "content": "On the 30th."}}
        if request.url.path.endswith("generate"):
            field = {"response": "On the 30th."}
        answer = {"model": named(body), "created_at": "2026-11-28T10:00:00Z", "done": False} | field
        last = answer | {"done": True, "done_reason": "stop"}
        if body.get("stream") is False:
            return JSONResponse(last)
        lines = [json.dumps(one) + "\n" for one in (answer, last)]
        return self.stream(lines, "application/x-ndjson")

    async def away(self, request: Request) -> Response:
        await self.keep(request)
        return RedirectResponse("http://127.0.0.1:9/elsewhere", 307)

    async def other(self, request: Request) -> Response:
        await self.keep(request)
        headers = {"x-own": "1", "connection": "x-private", "x-private": "2"}
        if request.method == "PUT":
            headers["content-encoding"] = "gzip"
        return Response(
            b"\x1f\x8b not really gzip \x00\xff", 418, headers, media_type="application/x-strange"
        )


def pack_double(
    picture: Image.Image, questions: Sequence[str], tokens: int, rule: Any = 32, layout: str = "auto",
    selector: Any = None, readable: float = 6.5,
) -> Packed:  # fmt: skip
    """A quick double of `pack_for`: an overview and, per question that names a colour, the part of it.

    It is unsure of questions with "purple" in them, fails at "fail", and keeps small pictures whole.
    """
    width, height = picture.size
    joined = " ".join(questions)
    if "fail" in joined:
        raise RuntimeError("the double fails")
    place = Place(0, (0, 0, 64, 48), (0, 0, width, height), 0.1)
    whole = width * height // 1024
    confidence = 0.1 if "purple" in joined else 0.9
    if whole <= tokens and layout == "auto":
        return Packed((picture,), ("All.",), (place,), picture.size, whole, whole, "whole", "32", confidence)
    pictures, captions, places = [picture.resize((64, 48))], ["An overview."], [place]
    for name, x in (("red", 0), ("green", width // 2)):
        if name in joined:
            box = (float(x), 0.0, float(x + width // 4), height / 4)
            pictures.append(picture.crop(box).resize((96, 96)))
            captions.append(f"The {name} part.")
            places.append(Place(len(places), (0, 0, 96, 96), box, 1.0))
    if layout == "strip":
        pictures, captions, places = pictures[:1], ["A strip."], places[:1]
    return Packed(
        tuple(pictures), tuple(captions), tuple(places), picture.size, tokens, whole, "overview+crops", "32",
        confidence,
    )  # fmt: skip


class SelectorDouble:
    """A quick double of `Selector`: a picture shows what is red, what is green, and its height, as "p800"."""

    def __init__(self, guide: Any = None, relevance: str = "auto") -> None:
        self.asked: list[str] = []

    def known(self, picture: Image.Image) -> KnownPicture:
        return KnownPicture(picture, picture.tobytes())

    def beside(self, picture: KnownPicture, make: Callable[[Image.Image], Any]) -> Any:
        return make(picture.image)

    def decide(self, picture: Any, question: str, budget: Any = None) -> Decision:
        self.asked.append(question)
        image = picture.image if isinstance(picture, KnownPicture) else picture
        shown = ("red", "green", f"p{image.height}")
        named = named_things(terms(question).words)
        matches = tuple(Match(word, word, float(word in shown), (0.5, 0.5)) for word in named)
        share = sum(word in shown for word in named) / max(1, len(named))
        return Decision([], couplings=(Coupling(torch.zeros(1, 1), 0.1 + 0.8 * share, matches=matches),))


def encoded(width: int, height: int, shade: int = 255, kind: str = "PNG") -> str:
    """A picture with a red and a green part, in base64."""
    image = Image.new("RGB", (width, height), (shade, 255, shade))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, width // 8, height // 8), fill="red")
    draw.rectangle((width // 2, 0, width // 2 + width // 8, height // 8), fill="green")
    file = io.BytesIO()
    image.save(file, kind)
    return base64.b64encode(file.getvalue()).decode()


Started = tuple[str, StandIn, Proxy]  # the address of a proxy, what it stands in front of, and itself


def users_turn(api: str, words: str, pictures: list[str], rng: random.Random | None = None) -> dict[str, Any]:
    """A turn of the user, its words in any place between its pictures."""
    if api == "ollama":
        return {"role": "user", "content": words} | ({"images": pictures} if pictures else {})
    kind = "input_text" if api == "responses" else "text"
    parts: list[dict[str, Any]] = []
    for data in pictures:
        source = {"type": "base64", "media_type": "image/png", "data": data}
        parts.append({
            "chat": {"type": "image_url", "image_url": {"url": URL + data}},
            "responses": {"type": "input_image", "image_url": URL + data},
            "messages": {"type": "image", "source": source},
        }[api])  # fmt: skip
    if words:
        parts.insert(rng.randint(0, len(parts)) if rng else 0, {"type": kind, "text": words})
    if rng and not pictures and rng.random() < 0.5:
        return {"role": "user", "content": words}
    return {"role": "user", "content": parts}


def written(api: str, turns: list[dict[str, Any]]) -> bytes:
    """A body whose turns stand last."""
    return json.dumps({"model": "qwen3-vl", "input" if api == "responses" else "messages": turns}).encode()


def sent_for(started: Started, api: str, turns: list[dict[str, Any]]) -> bytes:
    """What goes on of a conversation."""
    address, stand_in, _ = started
    CLIENT.post(address + PATHS[api], content=written(api, turns), timeout=60).raise_for_status()
    return stand_in.bodies.pop()
