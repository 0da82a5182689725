"""The proxy server: packs pictures in the user's turns of chat requests, and makes all of them fit what the
upstream takes; all else passes byte for byte.

    serve(Proxy(ProxySettings("http://127.0.0.1:11434"), Packer()), "127.0.0.1", 8080, ready=print)

Only the upstream is ever called: no redirect is followed, no address of a picture is opened. Keys go to it
with the other headers, and nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio
import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from arr_coc.app.server import FORBIDDEN, WRONG_HOST, OwnOriginOnly, own_names
from arr_coc.files.paths import local_path, shorten
from arr_coc.pixels import LAYOUTS, find_rule
from arr_coc.pixels.limits import Limits
from arr_coc.pixels.naming import find_limits, guess_rule, named_rule
from arr_coc.proxy.bodies import BODY_SECONDS, PIECE, Body, Held, parse, rewritten
from arr_coc.proxy.fitting import Fitter
from arr_coc.proxy.guardrail import CHAT_PATH, NOTHING, read_rows, written_rows
from arr_coc.proxy.guardrail import PATH as GUARDRAIL
from arr_coc.proxy.journal import Journal, RequestedPicture, RequestRecord
from arr_coc.proxy.messages import APIS, Api, api_of, model_in_path
from arr_coc.proxy.packing import Dial, Outcome, Packer, Picture, captioned
from arr_coc.proxy.recall import Recalled, recall_all
from arr_coc.proxy.screens import Screens

PAGES = "/arr_coc"
SWITCH, TOKENS, LAYOUT = b"x-arr-coc", b"x-arr-coc-tokens", b"x-arr-coc-layout"  # headers of a request
HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
"""Headers of one connection, which are not passed on (RFC 9110, 7.6.1)."""
VERSION = re.compile(rb"/v\d+[a-z]*\d*(/|$)")  # in the path of an upstream
ONE_EACH = "strip"  # the layout of one picture in place of each
REFUSALS = (400, 413, 415, 422, 500)  # statuses with which servers refuse more pictures than they take
MAX_REFUSAL = 2**16  # bytes of a refusal that are looked into
ABOUT_PICTURES = re.compile(r"image|picture|vision|multi-?modal", re.IGNORECASE)
# A server that fails says so once; one that takes no more than one picture names a number.
ABOUT_NUMBER = re.compile(r"\b(one|1|single|multiple|several|most|more|only|many|limit)\b", re.IGNORECASE)
MAX_MODELS = 1000  # that are known to take one picture each
HOST_NAME = re.compile(r"[\w.-]+|[0-9a-f:.]+", re.ASCII | re.IGNORECASE)
MARKS = (b"image", b"\\u")  # of a body with pictures, the second where letters may be escaped
MAX_PICTURES = 100  # of a request that are packed, the first ones
FEW = 10  # pictures of a request: where no more are taken, each that came becomes one
SEVERAL = ("auto", "crops", "overview+crops")  # layouts of several pictures
MAX_TOKENS = 100_000
CONNECT_SECONDS, IDLE_SECONDS = 10.0, 3600.0  # of the upstream: models may think for long before they answer
MAX_CONNECTIONS = 512
ENDING_SECONDS = 5
HEAD_SECONDS = 20.0  # for the head of a request to arrive, from the first connection or the first byte on
PAGE_HEADERS = {  # of the pages of its own
    # By `sandbox` a page has an origin of its own: one of the upstream that opened it can't look inside.
    "content-security-policy": "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}

log = logging.getLogger(__name__)

CHAT = next(api for api in APIS if CHAT_PATH.endswith(api.path))


class ProxySettings(NamedTuple):
    """The settings of a proxy, for requests that name none of their own.

    Attributes:
        upstream: the server that answers, by its http or https address; a "/v1" at its end may be left out.
            None: nothing is forwarded, gateways alone are served (`proxy.guardrail`).
        ca: a file of certificates that are trusted beside the usual ones, for https; None: no more.
        tokens: of each picture.
        rule: that counts them, as in `find_rule`; None: guessed from the name of the request's model.
        layout: as in `pack_for`.
        traces: requests that are kept for the page.
        pictures: the most pictures that the upstream takes in a request, where those are fewer than its
            limits say; None: as they say.
        screens: what is done with screenshots that tools return, as in `Screens`.
    """

    upstream: str | None
    tokens: int = 400
    rule: str | None = None
    layout: str = "auto"
    traces: int = 100
    ca: str | None = None
    pictures: int | None = None
    screens: str = "unchanged"


class Upstream(NamedTuple):
    """The address of the server behind the proxy, in parts."""

    base: httpx.URL
    host: bytes  # as in a Host header
    prefix: bytes  # of every path
    versioned: bool = False  # whether the prefix stands for the "/v1" of clients

    def target(self, path: bytes) -> bytes:
        """Return the upstream's path for a path that a client asks for."""
        if self.versioned and (path == b"/v1" or path.startswith(b"/v1/")):
            path = path.removeprefix(b"/v1")
        return self.prefix + path


NOWHERE = Upstream(httpx.URL(), b"", b"")
"""That of a proxy which serves gateways alone."""


def read_upstream(address: str) -> Upstream:
    """Return the parts of an upstream's address; raise ValueError if it isn't one.

    Clients know the proxy as http://127.0.0.1:8080/v1 if they know the upstream as http://.../v1, so that
    this end of its path isn't part of the prefix. Another version in it, as in .../v1beta/openai or
    .../paas/v4, stands in the place of that /v1.
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
    path = base.raw_path.rstrip(b"/")
    prefix = path.removesuffix(b"/v1")
    versioned = prefix == path and VERSION.search(path) is not None
    return Upstream(base.copy_with(raw_path=b"/"), base.netloc, prefix, versioned)


def read_trust(ca: str | None) -> ssl.SSLContext:
    """Return the certificates trusted for an upstream: the usual ones, and those of a file.

    SSL_CERT_FILE or SSL_CERT_DIR names others than the usual ones. ValueError if one can't be read.
    """
    name = "ca" if ca is not None else "SSL_CERT_FILE"
    try:
        context = httpx.create_ssl_context()
        if ca is not None:
            context.load_verify_locations(cafile=local_path(ca))
    except OSError as error:  # an SSLError is one
        place = ca or os.environ.get("SSL_CERT_FILE", "")
        raise ValueError(
            f"{name} {shorten(place)} holds no certificates that can be read "
            f"({error.strerror or type(error).__name__}): give a file with those of the authority, as PEM"
        ) from error
    return context


class Proxy:
    """An ASGI application that forwards every request to one upstream, pictures packed.

    Args:
        settings: what it does if a request doesn't say.
        packer: that chooses and packs; it is closed with the proxy.
        host: on which it listens, and `allow_hosts` further names by which it may be called, so that no page
            of another site can reach it through a browser under a name of its own.
        tell: what is called with a line about each request with pictures; None: nothing.

    Raises:
        ValueError: a bad address, rule, layout or count, or a file without certificates.
    """

    def __init__(
        self,
        settings: ProxySettings,
        packer: Packer,
        host: str = "127.0.0.1",
        allow_hosts: Sequence[str] = (),
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.settings, self.packer = settings, packer
        self.upstream = NOWHERE if settings.upstream is None else read_upstream(settings.upstream)
        self.dial = Dial(_tokens(settings.tokens), "", _layout(settings.layout))
        self.rule = None if settings.rule is None else find_rule(settings.rule).name
        self.journal = Journal(settings.traces, tell)
        self.screens = Screens(settings.screens)
        self._held = Held()
        limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=64)
        trust = read_trust(settings.ca)
        self._transport = httpx.AsyncHTTPTransport(verify=trust, trust_env=False, limits=limits)
        self._alone: dict[str, None] = {}  # models that take one picture where one came
        self._parsing = ThreadPoolExecutor(2, "arr-coc-parser")
        self._fitter, self._fitting = Fitter(), ThreadPoolExecutor(2, "arr-coc-fitter")
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
            self._fitting.shutdown(wait=False, cancel_futures=True)
            self.packer.close()
            self.screens.close()

    # ---- pages of its own -----------------------------------------------------------------------------

    def _pages(self) -> ASGIApp:
        async def drawn(draw: Callable[[], bytes], kind: str) -> Response:
            content = await asyncio.get_running_loop().run_in_executor(self._parsing, draw)
            pieces = (content[at : at + PIECE] for at in range(0, len(content), PIECE))  # as they are read
            return StreamingResponse(pieces, headers=PAGE_HEADERS, media_type=kind)

        async def requests(request: Request) -> Response:
            return await drawn(self.journal.page, "text/html")

        async def as_json(request: Request) -> Response:
            return await drawn(self.journal.as_json, "application/json")

        async def metrics(request: Request) -> Response:
            self.journal.kept.set(self.packer.nbytes)
            kind = "text/plain; version=0.0.4"
            return Response(self.journal.metrics(), headers=PAGE_HEADERS, media_type=kind)

        async def health(request: Request) -> Response:
            facts = {"status": "ok", "upstream": str(self.upstream.base) or None}
            return JSONResponse(facts, headers=PAGE_HEADERS)

        pages = {"/requests": requests, "/requests.json": as_json, "/metrics": metrics, "/health": health}
        return Starlette(routes=[Route(PAGES + path, page) for path, page in pages.items()])

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # of an API that speaks by web sockets nothing is forwarded
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        if scope["path"] == PAGES or scope["path"].startswith(PAGES + "/"):
            if _is_of_a_script(headers):
                reason = "scripts of web pages may not read this page: open it in a tab of its own\n"
                await PlainTextResponse(reason, FORBIDDEN, PAGE_HEADERS)(scope, receive, send)
                return
            await self._guard(scope, receive, send)
        elif (reason := self._guard.wrong_host(headers)) is not None:
            await _refusal(api_of(scope["path"]), WRONG_HOST, reason)(scope, receive, send)
        elif "service-worker" in headers:
            reason = "service workers are not passed on: one could read the page of requests"
            await _refusal(None, FORBIDDEN, reason)(scope, receive, send)
        elif self.upstream is NOWHERE and scope["path"] != GUARDRAIL:
            reason = f"it was started without --upstream, so it answers {GUARDRAIL} alone"
            await _refusal(api_of(scope["path"]), 404, reason)(scope, receive, send)
        else:
            try:
                await (self._guarded if scope["path"] == GUARDRAIL else self._forward)(scope, receive, send)
            except (ClientDisconnect, ConnectionResetError):  # whoever asked has gone
                self.journal.requests.labels("other", "aborted").inc()

    # ---- requests ---------------------------------------------------------------------------------------

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        api = api_of(scope["path"]) if scope["method"] == "POST" else None
        body = Body(receive, self._held)
        try:
            await self._look_and_ask(scope, body, send, api)
        except TimeoutError:  # before anything was answered
            reason = f"the body did not arrive within {BODY_SECONDS:.0f} seconds"
            await _refusal(api or api_of(scope["path"]), 408, reason)(scope, receive, send)
        finally:
            body.resize(0)

    async def _look_and_ask(self, scope: Scope, body: Body, send: Send, api: Api | None) -> None:
        start = time.perf_counter()
        sent = {name: value for name, value in scope["headers"] if name.startswith(SWITCH)}
        if api is None or sent.get(SWITCH, b"").strip().lower() == b"off":
            self.journal.requests.labels("other" if api is None else api.name, "untouched").inc()
            await self._answer(scope, send, body, None)
            return
        try:
            dial = self._dial(sent)
        except ValueError as error:
            await _refusal(api, 400, str(error))(scope, body.receive, send)
            return
        async with asyncio.timeout(BODY_SECONDS):
            whole = await body.read()
        became, record = "untouched" if whole else "unread", None
        if whole and not any(name == b"content-encoding" for name, _ in scope["headers"]):
            became, record = await self._packed(scope["path"], api, body, dial)
        self.journal.requests.labels(api.name, became).inc()

        def answered(record: RequestRecord | None, status: int) -> None:
            if record is not None:
                ms = 1000 * (time.perf_counter() - start)
                self.journal.keep(record._replace(status=status, ms=ms))

        async def one_each() -> RequestRecord | None:
            body.content, body.spare = body.spare, b""
            return (await self._packed(scope["path"], api, body, dial._replace(layout=ONE_EACH)))[1]

        await self._answer(scope, send, body, api, answered, record, one_each)

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a gateway: the turns that it sent with their pictures packed, or that nothing is changed."""
        start, body = time.perf_counter(), Body(receive, self._held)
        try:
            async with asyncio.timeout(BODY_SECONDS):
                whole = await body.read()
            request = read_rows(bytes(body.content)) if whole else None
            became, record = "untouched" if whole else "unread", None
            if request is not None:
                named = request.settings.items()
                dial = self._dial({SWITCH + b"-" + name.encode(): value.encode() for name, value in named})
                body.content = request.content
                became, record = await self._packed(CHAT_PATH, CHAT, body, dial)
            self.journal.requests.labels(CHAT.name, became).inc()
            if record is not None:
                ms = 1000 * (time.perf_counter() - start)
                self.journal.keep(record._replace(path=GUARDRAIL, status=200, ms=ms))
            changed = record is not None and became == "changed"
            facts = written_rows(body.content, record.summary) if changed else NOTHING
            answer: Response = JSONResponse(facts)
        except TimeoutError:
            reason = f"the body did not arrive within {BODY_SECONDS:.0f} seconds"
            answer = _refusal(None, 408, reason)
        except ValueError as error:
            answer = _refusal(None, 400, str(error))
        finally:
            body.resize(0)
        await answer(scope, receive, send)

    def _dial(self, sent: dict[bytes, bytes]) -> Dial:
        """Return the settings that a request's headers name; raise ValueError for bad ones."""
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

    async def _packed(self, path: str, api: Api, body: Body, dial: Dial) -> tuple[str, RequestRecord | None]:
        """Pack a body's pictures and make all fit; return in a word what became of it, and its record if any.

        Whatever can't be read stays as it is, for the upstream to answer.
        """
        content = body.content
        if not any(mark in content for mark in MARKS):
            return "untouched", None
        if not body.can_be_parsed():
            return "unread", None
        run = asyncio.get_running_loop().run_in_executor
        parsed = await run(self._parsing, parse, api, content, MAX_PICTURES)
        if parsed is None:
            body.resize(len(content))
            return "untouched", None
        named = model_in_path((self.upstream.prefix + path.encode()).decode("utf-8", "replace"))
        model = named or parsed.model
        rule = self.rule or guess_rule(named, parsed.model, path)
        slots, dial = parsed.slots, dial._replace(rule=rule)
        limits = self._limits(api, named, parsed.model, path)
        few = limits.a_turn == 1 or 0 < limits.pictures <= FEW
        if model in self._alone or (few and dial.layout in SEVERAL):
            dial = dial._replace(layout=ONE_EACH)
        pictures = [
            Picture(slot.data, digest, slot.question)
            for slot, digest in zip(slots, parsed.digests, strict=True)
        ]
        outcomes = await self.packer.pack_all(pictures, dial)
        recalled: dict[int, Recalled] = {}
        if dial.layout != ONE_EACH:
            recalled = await recall_all(self.packer, slots, pictures, outcomes, parsed.questions, dial)
        outcomes = [
            one if slot.alone else captioned(one, f"Picture {slot.number}: ")
            for slot, one in zip(slots, outcomes, strict=True)
        ]
        parts = {slot: one.parts for slot, one in zip(slots, outcomes, strict=True) if one.parts}
        added = {turn: one.outcome.parts for turn, one in recalled.items()}
        frames = await self.screens.outcomes(parsed.screens, rule, dial.layout == ONE_EACH, limits.held_side)
        screens = {slot: one.parts for slot, one in zip(parsed.screens, frames, strict=False) if one.parts}
        changes: Counter[str] = Counter()

        def fitted(changed: Any) -> Any:
            made, counts = self._fitter.fitted(api, changed, limits, parsed.body)
            changes.update(counts)
            return made

        write = partial(rewritten, api, content, parsed, parts, added=added, screens=screens, fitted=fitted)
        made = await run(self._fitting, write)
        if made is None:
            changes.clear()
            recalled = {}
            outcomes, frames = list(map(_undone, outcomes)), list(map(_undone, frames))
        else:
            if recalled or any(len(one.parts) > 1 for one in (*outcomes, *frames)):
                body.spare = content
            body.content = made
        body.resize(len(body.content) + len(body.spare))
        if not slots and not changes and not frames:
            return "untouched", None
        traced = [
            (slot.turn, RequestedPicture(slot.question, one))
            for slot, one in zip(slots, outcomes, strict=True)
        ]
        traced += [
            (turn, RequestedPicture(parsed.questions[turn], one.outcome)) for turn, one in recalled.items()
        ]
        traced += [
            (slot.turn, RequestedPicture("", one)) for slot, one in zip(parsed.screens, frames, strict=False)
        ]
        traced.sort(key=lambda one: one[0])
        drawn = [one for _, one in traced]
        record = self.journal.add_pictures(path, model, rule, drawn, parsed.others, changes)
        if self.rule is None and named_rule(named, parsed.model, path) is None:
            record = record._replace(guessed=False)
        return "untouched" if made is None else "changed", record

    def _limits(self, api: Api, *models: str) -> Limits:
        """Return what the upstream takes of a model's pictures."""
        limits = find_limits(self.upstream.base.host, api.name, *models)
        most = self.settings.pictures
        return limits if most is None else replace(limits, pictures=min(most, limits.pictures or most))

    # ---- the upstream -----------------------------------------------------------------------------------

    async def _answer(
        self,
        scope: Scope,
        send: Send,
        body: Body,
        api: Api | None,
        answered: Callable[[RequestRecord | None, int], None] = lambda record, status: None,
        record: RequestRecord | None = None,
        one_each: Callable[[], Awaitable[RequestRecord | None]] | None = None,
    ) -> None:
        """Ask the upstream, and pass its answer on as it comes.

        Where more pictures were sent than came, and it refuses them, it is asked once more by `one_each`,
        which packs each into one.
        """
        begun = b""
        try:
            response = await self._asked(scope, body)
            chunks = response.aiter_raw()
            if one_each is not None and body.spare:
                begun = await _refused(response, chunks)
                text = _text_of(response, begun)
                if ABOUT_PICTURES.search(text):
                    lasting = response.is_client_error or bool(ABOUT_NUMBER.search(text))
                    await response.aclose()
                    record, begun = await one_each(), b""
                    response = await self._asked(scope, body)
                    chunks = response.aiter_raw()
                    one_picture = lasting and response.is_success and record is not None
                    if one_picture and len(self._alone) < MAX_MODELS:
                        self._alone[record.model] = None
                body.spare = b""
                body.resize(0)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            self.journal.errors.inc()
            answered(record, 502)
            reason = f"the upstream {self.upstream.base} did not answer ({type(error).__name__})"
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                reason += ": its certificate is of no authority that is trusted; name its file with --ca"
            await _refusal(api or api_of(scope["path"]), 502, reason)(scope, body.receive, send)
            return
        answered(record, response.status_code)
        try:
            passed = StreamingResponse(_chunks(begun, chunks), response.status_code)
            passed.raw_headers = _passed_on(response.headers.raw)
            if record is not None:
                passed.raw_headers.append((SWITCH, record.summary.encode()))
            await passed(scope, body.receive, send)
        except httpx.HTTPError as error:
            # The answer has begun: its connection is cut, as the upstream cut its own.
            self.journal.errors.inc()
            raise ConnectionResetError(f"the upstream's answer broke off ({type(error).__name__})") from None
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()

    async def _asked(self, scope: Scope, body: Body) -> httpx.Response:
        """Return the head of the upstream's answer."""
        complete = body.complete
        asking = self._transport.handle_async_request(self._request(scope, body))
        # Of a body that still comes, the upstream reads the end itself.
        response = await (_unless_gone(body.receive, asking) if complete else asking)
        if not 200 <= response.status_code < 600:  # 101 would change the protocol, which nobody asked for
            await response.aclose()
            raise httpx.RemoteProtocolError(f"status {response.status_code}")
        return response

    def _request(self, scope: Scope, body: Body) -> httpx.Request:
        """Return the request to the upstream, with the path and query as they came."""
        path = scope.get("raw_path") or scope["path"].encode()
        path = path.partition(b"?")[0]
        path = path if path.startswith(b"/") else b"/" + path
        query = scope.get("query_string", b"")
        target = self.upstream.target(path) + (b"?" + query if query else b"")
        headers = [(b"Host", self.upstream.host)]
        for name, value in _passed_on(scope["headers"]):
            if name not in (b"host", b"expect", b"content-length") and not name.startswith(SWITCH):
                headers.append((name, value))
        framing = dict(scope["headers"])
        chunked = b"transfer-encoding" in framing  # which counts where both say how long a body is
        length = None if chunked else framing.get(b"content-length")
        if body.complete and (body.content or length is not None):
            length = b"%d" % len(body.content)
        if length is not None:
            headers.append((b"content-length", length))
        content = b"" if length is None and not chunked else body.pieces()
        timeout = httpx.Timeout(IDLE_SECONDS, connect=CONNECT_SECONDS, pool=IDLE_SECONDS)
        extensions = {"target": target, "timeout": timeout.as_dict()}
        return httpx.Request(
            scope["method"], self.upstream.base, headers=headers, content=content, extensions=extensions
        )


def _undone(outcome: Outcome) -> Outcome:
    """Return an outcome whose parts couldn't be written into the request."""
    if not outcome.parts:
        return outcome
    return outcome._replace(reason="failed", parts=(), after=outcome.before, layout="whole")


def _is_of_a_script(headers: Headers) -> bool:
    """Return whether a script or a frame of a page asks, rather than a user in a tab.

    Pages of the upstream have the origin of the proxy, so that no check of origins tells them apart.
    """
    kinds = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return kinds not in ((None, None), ("navigate", "document"))


def _tokens(value: int | str) -> int:
    text = str(value)
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= MAX_TOKENS):
        raise ValueError(f"tokens {shorten(text)} is no count: give 1 to {MAX_TOKENS:,}, such as 400")
    return int(text)


def _layout(name: str) -> str:
    if name not in LAYOUTS:
        raise ValueError(f"layout {shorten(name)} is not known: use one of {', '.join(LAYOUTS)}")
    return name


def _passed_on(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return headers that go on: not those of one connection, nor a length that chunks contradict."""
    named = b",".join(value for name, value in headers if name.lower() == b"connection")
    dropped = HOP_BY_HOP | {name.strip().lower() for name in named.split(b",")}
    if any(name.lower() == b"transfer-encoding" for name, _ in headers):
        dropped |= {b"content-length"}
    return [(name, value) for name, value in headers if name.lower() not in dropped]


async def _chunks(begun: bytes, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the bytes of an answer as they come, packed as the upstream packs them."""
    if begun:
        yield begun
    async for chunk in chunks:
        yield chunk


async def _refused(response: httpx.Response, chunks: AsyncIterator[bytes]) -> bytes:
    """Return the first bytes of an answer that refuses a request; none of any other."""
    begun = b""
    if response.status_code in REFUSALS:
        async for chunk in chunks:
            begun += chunk
            if len(begun) >= MAX_REFUSAL:
                break
    return begun


def _text_of(response: httpx.Response, begun: bytes) -> str:
    """Return the text of a refusal's beginning; "" if that can't be read."""
    try:
        return httpx.Response(response.status_code, headers=response.headers, content=begun).text
    except httpx.DecodingError:  # compressed, and cut off
        return ""


async def _unless_gone(receive: Receive, asking: Any) -> httpx.Response:
    """Return an answer while the client waits; once it has gone, end the upstream's work."""

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


def _refusal(api: Api | None, status: int, reason: str) -> Response:
    """Return an error in the words of an API's own errors."""
    message = f"arr-coc proxy: {reason}"
    kind = "invalid_request_error" if status < 500 else "api_error"
    error: dict[str, Any] = {"message": message, "type": kind, "param": None, "code": None}
    content: dict[str, Any] = {"error": error}
    if api is not None and api.name == "messages":
        content = {"type": "error", "error": {"type": kind, "message": message}}
    elif api is not None and api.name == "ollama":
        content = {"error": message}
    return JSONResponse(content, status)


class HeadTimer(H11Protocol):
    """A connection that is closed if the head of a request takes longer than HEAD_SECONDS.

    Uvicorn closes connections on which nothing comes between requests; before the first one, and once a
    request has begun, it waits for ever.
    """

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take some bytes; wait on if no request is at work behind them."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """End with the connection."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def server_config(proxy: Proxy) -> uvicorn.Config:
    """Return how a proxy is served: requests aren't logged, and no header is added to answers."""
    return uvicorn.Config(
        proxy,
        http=HeadTimer,
        log_level="warning",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        ws="none",
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
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
