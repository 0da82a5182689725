"""The proxy as a server: pictures of the user's turns are packed, everything else passes byte for byte.

    serve(Proxy(ProxySettings("http://127.0.0.1:11434"), Packer()), "127.0.0.1", 8080, ready=print)

Only the upstream is ever called: no redirect is followed, no address of a picture is opened. Keys go to it
with the other headers, and nowhere else.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio
import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from arr_coc.app.server import WRONG_HOST, OwnOriginOnly, own_names
from arr_coc.files.paths import shorten
from arr_coc.pixels import LAYOUTS, find_rule
from arr_coc.proxy.journal import Journal, RequestedPicture
from arr_coc.proxy.messages import Api, PictureSlot, api_of, model_of, picture_slots, with_parts
from arr_coc.proxy.packing import Dial, Outcome, Packer, digest_of, guess_rule

PAGES = "/arr_coc"
SWITCH, TOKENS, LAYOUT = b"x-arr-coc", b"x-arr-coc-tokens", b"x-arr-coc-layout"  # headers of a request
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
"""Headers of one connection, which are not passed on (RFC 9110, 7.6.1)."""
HOST_NAME = re.compile(r"[\w.-]+|[0-9a-f:.]+", re.ASCII | re.IGNORECASE)
MARKS = (b"image", b"\\u")  # of a body with pictures, the second where letters may be escaped
MOST_BODY = 64 * 2**20  # bytes of a body that is looked into; a longer one passes as it is
MOST_BODIES = 256 * 2**20  # bytes of all bodies that are looked into at a time
MOST_SIGNS = 1_000_000  # of a body's brackets and commas: each may take a hundred bytes once it is parsed
MOST_PICTURES = 32  # of a request that are packed
MOST_TOKENS = 100_000
BODY_SECONDS = 120.0  # for a body that is looked into to arrive
CONNECT_SECONDS, IDLE_SECONDS = 10.0, 3600.0  # of the upstream: models may think for long before they answer
MOST_CONNECTIONS = 512
ENDING_SECONDS = 5

log = logging.getLogger(__name__)


class ProxySettings(NamedTuple):
    """What a proxy does if a request doesn't say.

    Attributes:
        upstream: the server that answers, by its http or https address; a "/v1" at its end may be left out.
        tokens: of each picture.
        rule: that counts them, as in `find_rule`; None: guessed from the name of the request's model.
        layout: as in `pack_for`.
        traces: requests that are kept for the page.
    """

    upstream: str
    tokens: int = 400
    rule: str | None = None
    layout: str = "auto"
    traces: int = 100


class Upstream(NamedTuple):
    """The address of the server that answers, in parts."""

    base: httpx.URL
    host: bytes  # as in a Host header
    prefix: bytes  # of every path


def read_upstream(address: str) -> Upstream:
    """The parts of an upstream's address; a ValueError if it isn't one.

    Clients know the proxy as http://127.0.0.1:8080/v1 if they know the upstream as http://.../v1, so that
    this end of its path isn't part of the prefix.
    """
    remedy = "give one such as http://127.0.0.1:11434 or https://api.openai.com/v1"
    try:
        parts = urlsplit(address)
        base = httpx.URL(address)
        named = HOST_NAME.fullmatch(parts.hostname or "") is not None and parts.port != 0
        usual = named and parts.scheme in ("http", "https")
    except (ValueError, httpx.InvalidURL) as error:
        raise ValueError(f"upstream {shorten(address)} is no address: {remedy}") from error
    if not usual or parts.query or parts.fragment:
        raise ValueError(f"upstream {shorten(address)} is no http address of a server: {remedy}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the upstream's address has a user or a password in it: keys go in headers")
    prefix = base.raw_path.rstrip(b"/").removesuffix(b"/v1")
    return Upstream(base.copy_with(raw_path=b"/"), base.netloc, prefix)


class Proxy:
    """An ASGI application that forwards every request to one upstream, pictures packed.

    Args:
        settings: what it does if a request doesn't say.
        packer: that chooses and packs; it is closed with the proxy.
        host: on which it listens, and `allow_hosts` further names by which it may be called, so that no page
            of another site can reach it through a browser under a name of its own.

    Raises:
        ValueError: a bad address, rule, layout or count.
    """

    def __init__(
        self,
        settings: ProxySettings,
        packer: Packer,
        host: str = "127.0.0.1",
        allow_hosts: Sequence[str] = (),
    ) -> None:
        self.settings, self.packer = settings, packer
        self.upstream = read_upstream(settings.upstream)
        self.dial = Dial(_tokens(settings.tokens), "", _layout(settings.layout))
        self.rule = None if settings.rule is None else find_rule(settings.rule).name
        self.journal = Journal(settings.traces)
        self._held = 0  # bytes of bodies that are looked into
        limits = httpx.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=64)
        self._transport = httpx.AsyncHTTPTransport(trust_env=False, limits=limits)
        self._parsing = ThreadPoolExecutor(2, "arr-coc-parser")
        own = own_names(host, allow_hosts)
        self._guard = OwnOriginOnly(self._pages(), **own)
        self.app = Starlette(routes=[Mount("/", app=self._dispatch)], lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        await self.app(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self._transport.aclose()
            self._parsing.shutdown(wait=False, cancel_futures=True)
            self.packer.close()

    # ---- pages of its own -----------------------------------------------------------------------------

    def _pages(self) -> ASGIApp:
        async def requests(request: Request) -> Response:
            return HTMLResponse(self.journal.page())

        async def as_json(request: Request) -> Response:
            return JSONResponse({"requests": [one.to_dict() for one in reversed(self.journal.records)]})

        async def metrics(request: Request) -> Response:
            self.journal.kept.set(self.packer.nbytes)
            return Response(self.journal.metrics(), media_type="text/plain; version=0.0.4")

        async def health(request: Request) -> Response:
            return JSONResponse({"status": "ok", "upstream": str(self.upstream.base)})

        pages = {"/requests": requests, "/requests.json": as_json, "/metrics": metrics, "/health": health}
        return Starlette(routes=[Route(PAGES + path, page) for path, page in pages.items()])

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # of an API that speaks by web sockets nothing is forwarded
            await send({"type": "websocket.close", "code": 1008})
        elif scope["path"] == PAGES or scope["path"].startswith(PAGES + "/"):
            await self._guard(scope, receive, send)
        elif (reason := self._guard.wrong_host(Headers(scope=scope))) is not None:
            await _refusal(api_of(scope["path"]), WRONG_HOST, reason)(scope, receive, send)
        else:
            try:
                await self._forward(scope, receive, send)
            except (ClientDisconnect, ConnectionResetError):  # whoever asked has gone
                self.journal.requests.labels("other", "aborted").inc()

    # ---- requests ---------------------------------------------------------------------------------------

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = time.perf_counter()
        api = api_of(scope["path"]) if scope["method"] == "POST" else None
        sent = {name: value for name, value in scope["headers"] if name.startswith(SWITCH)}
        if api is None or sent.get(SWITCH, b"").strip().lower() == b"off":
            self.journal.requests.labels("other" if api is None else api.name, "untouched").inc()
            await self._answer(scope, receive, send, _rest(receive), None)
            return
        try:
            dial = self._dial(sent)
        except ValueError as error:
            await _refusal(api, 400, str(error))(scope, receive, send)
            return
        body, pictures, whole = bytearray(), [], True
        try:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    whole = await self._read(receive, body)
            except TimeoutError:
                reason = f"the body did not arrive within {BODY_SECONDS:.0f} seconds"
                await _refusal(api, 408, reason)(scope, receive, send)
                return
            content: bytes | AsyncIterator[bytes] = bytes(body)
            if not whole:
                content = _rest(receive, content)
            elif not any(name == b"content-encoding" for name, _ in scope["headers"]):
                content, pictures, model, rule = await self._packed(api, content, dial)
        finally:
            self._held -= len(body)
        del body
        changed = any(one.outcome.parts for one in pictures)
        self.journal.requests.labels(api.name, "changed" if changed else "untouched").inc()
        if not pictures:
            await self._answer(scope, receive, send, content, api)
            return
        outcomes = [one.outcome for one in pictures]
        self.journal.count_pictures(rule, outcomes)

        def record(status: int) -> None:
            ms = 1000 * (time.perf_counter() - start)
            self.journal.add(scope["path"], model, rule, status, ms, pictures)

        await self._answer(scope, receive, send, content, api, record, _summary(outcomes))

    def _dial(self, sent: dict[bytes, bytes]) -> Dial:
        """The settings of a request by its headers; ValueError for values that are none."""
        dial, switch = self.dial, sent.get(SWITCH, b"on").strip().lower()
        if switch != b"on":
            raise ValueError(
                f"header {SWITCH.decode()} is {shorten(switch.decode('latin-1'))}: use on or off"
            )
        if TOKENS in sent:
            dial = dial._replace(tokens=_tokens(sent[TOKENS].decode("latin-1").strip()))
        if LAYOUT in sent:
            dial = dial._replace(layout=_layout(sent[LAYOUT].decode("latin-1").strip()))
        return dial

    async def _read(self, receive: Receive, body: bytearray) -> bool:
        """Read a request's body into `body`; False: there is more of it than may be held."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part = message.get("body", b"")
            body += part
            self._held += len(part)
            if not message.get("more_body", False):
                return len(body) <= MOST_BODY and self._held <= MOST_BODIES
            if len(body) > MOST_BODY or self._held > MOST_BODIES:
                return False

    async def _packed(
        self, api: Api, content: bytes, dial: Dial
    ) -> tuple[bytes, list[RequestedPicture], str, str]:
        """A body with its pictures packed, what became of each, the model and the rule that counts.

        Whatever can't be read comes back as it is, for the upstream to answer.
        """
        untouched = (content, [], "", "")
        if not any(mark in content for mark in MARKS):
            return untouched
        run = asyncio.get_running_loop().run_in_executor
        parsed = await run(self._parsing, _parse, api, content)
        if parsed is None or not parsed.slots:
            return untouched
        rule = self.rule or guess_rule(parsed.model)
        dial = dial._replace(rule=rule)
        first = len(parsed.slots) - MOST_PICTURES

        async def outcome(place: int) -> Outcome:
            slot = parsed.slots[place]
            if place < first:
                return Outcome("many_pictures")
            return await self.packer.pack(slot.data, parsed.digests[place], slot.questions, dial)

        outcomes = await asyncio.gather(*map(outcome, range(len(parsed.slots))))
        pictures = [
            RequestedPicture(slot.questions, one) for slot, one in zip(parsed.slots, outcomes, strict=True)
        ]
        parts = {slot: one.parts for slot, one in zip(parsed.slots, outcomes, strict=True) if one.parts}
        made = await run(self._parsing, _written, api, parsed.body, parts) if parts else None
        return content if made is None else made, pictures, parsed.model, rule

    # ---- the upstream -----------------------------------------------------------------------------------

    async def _answer(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        content: bytes | AsyncIterator[bytes],
        api: Api | None,
        record: Callable[[int], None] | None = None,
        summary: str | None = None,
    ) -> None:
        """Ask the upstream, and pass its answer on as it comes."""
        request = self._request(scope, content)
        try:
            asking = self._transport.handle_async_request(request)
            # Of a body that still comes, the upstream reads the end itself.
            response = await (_unless_gone(receive, asking) if isinstance(content, bytes) else asking)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self.journal.errors.inc()
            if record is not None:
                record(502)
            reason = f"the upstream {self.upstream.base} did not answer ({type(error).__name__})"
            await _refusal(api or api_of(scope["path"]), 502, reason)(scope, receive, send)
            return
        if record is not None:
            record(response.status_code)
        try:
            passed = StreamingResponse(_chunks(response), response.status_code)
            passed.raw_headers = _passed_on(response.headers.raw)
            if summary is not None:
                passed.raw_headers.append((SWITCH, summary.encode()))
            await passed(scope, receive, send)
        except httpx.HTTPError as error:
            # The answer has begun: its connection is cut, as the upstream cut its own.
            self.journal.errors.inc()
            raise ConnectionResetError(f"the upstream's answer broke off ({type(error).__name__})") from None
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    def _request(self, scope: Scope, content: bytes | AsyncIterator[bytes]) -> httpx.Request:
        """The request to the upstream, with the path and query as they came."""
        path = scope.get("raw_path") or scope["path"].encode()
        path = path.partition(b"?")[0]
        path = path if path.startswith(b"/") else b"/" + path
        query = scope.get("query_string", b"")
        target = self.upstream.prefix + path + (b"?" + query if query else b"")
        headers = [(b"Host", self.upstream.host)]
        length: bytes | None = None
        for name, value in _passed_on(scope["headers"]):
            if name == b"content-length":
                length = value
            elif name not in (b"host", b"expect") and not name.startswith(SWITCH):
                headers.append((name, value))
        chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        if isinstance(content, bytes):
            length = b"%d" % len(content) if content or length is not None else None
        elif length is None and not chunked:
            content = b""  # a request without a body
        if length is not None:
            headers.append((b"content-length", length))
        timeout = httpx.Timeout(IDLE_SECONDS, connect=CONNECT_SECONDS, pool=IDLE_SECONDS)
        extensions = {"target": target, "timeout": timeout.as_dict()}
        return httpx.Request(
            scope["method"], self.upstream.base, headers=headers, content=content, extensions=extensions
        )


class _Parsed(NamedTuple):
    body: Any
    model: str
    slots: list[PictureSlot]
    digests: list[bytes]


def _parse(api: Api, content: bytes) -> _Parsed | None:
    """A body and its pictures; None if it can't be read or would take too much memory."""
    if sum(map(content.count, (b",", b"[", b"{"))) > MOST_SIGNS:
        return None
    try:
        body = json.loads(content)
        slots = picture_slots(api, body)
        digests = [digest_of(slot.data) for slot in slots[-MOST_PICTURES:]]
    except (ValueError, RecursionError):
        return None
    return _Parsed(body, model_of(body), slots, [b""] * (len(slots) - len(digests)) + digests)


def _written(api: Api, body: Any, parts: Any) -> bytes | None:
    """A body with parts in place of pictures, as JSON; None if it can't be written."""
    try:
        return json.dumps(with_parts(api, body, parts), separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return None


def _tokens(value: int | str) -> int:
    text = str(value)
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= MOST_TOKENS):
        raise ValueError(f"tokens {shorten(text)} is no count: give 1 to {MOST_TOKENS:,}, such as 400")
    return int(text)


def _layout(name: str) -> str:
    if name not in LAYOUTS:
        raise ValueError(f"layout {shorten(name)} is not known: use one of {', '.join(LAYOUTS)}")
    return name


def _passed_on(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Headers without those of one connection."""
    named = b",".join(value for name, value in headers if name.lower() == b"connection")
    dropped = HOP_BY_HOP | {name.strip().lower() for name in named.split(b",")}
    return [(name, value) for name, value in headers if name.lower() not in dropped]


async def _rest(receive: Receive, begun: bytes = b"") -> AsyncIterator[bytes]:
    """What is still to come of a request's body, behind what has come."""
    if begun:
        yield begun
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        if part := message.get("body", b""):
            yield part
        if not message.get("more_body", False):
            return


async def _chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    """The bytes of an answer as they come, packed as the upstream packs them."""
    async for chunk in response.aiter_raw():
        yield chunk


async def _unless_gone(receive: Receive, asking: Any) -> httpx.Response:
    """An answer, if whoever asked waits for it: else the upstream's work is ended with its connection."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.ensure_future(asking), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()


def _summary(outcomes: Sequence[Outcome]) -> str:
    packed = sum(bool(one.parts) for one in outcomes)
    before, after = sum(one.before for one in outcomes), sum(one.after for one in outcomes)
    return f"packed {packed} of {len(outcomes)} pictures, {after} of {before} tokens"


def _refusal(api: Api | None, status: int, reason: str) -> Response:
    """An error in the words of an API's own errors."""
    message = f"arr-coc proxy: {reason}"
    kind = "invalid_request_error" if status < 500 else "api_error"
    error: dict[str, Any] = {"message": message, "type": kind, "param": None, "code": None}
    content: dict[str, Any] = {"error": error}
    if api is not None and api.name == "messages":
        content = {"type": "error", "error": {"type": kind, "message": message}}
    elif api is not None and api.name == "ollama":
        content = {"error": message}
    return JSONResponse(content, status)


def server_config(proxy: Proxy) -> uvicorn.Config:
    """How a proxy is served: nothing is logged of requests, and no header is added to answers."""
    return uvicorn.Config(
        proxy,
        log_level="warning",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        ws="none",
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=ENDING_SECONDS,
        lifespan="on",
    )


def serve(proxy: Proxy, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM.

    `ready` is called with the address once it listens. A ValueError where it can't listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ValueError(
            f"port {port} of host {shorten(host)} can't be used: choose others with --port or --host"
        ) from error
    with listening:
        # Connections inherit it; asyncio sets it for sockets of its own alone. Else each answer waits 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = f"[{host}]" if ":" in host else host
        ready(f"http://{name}:{listening.getsockname()[1]}")
        try:
            uvicorn.Server(server_config(proxy)).run(sockets=[listening])
        except KeyboardInterrupt:  # uvicorn ends first, then raises it anew
            return
