"""Serving the app at one address until it is interrupted.

Pages of other sites must not reach a server on this machine through the browser. `OwnOriginOnly` checks the
name by which it was called (a site can point its own name at 127.0.0.1, but not call itself localhost) and
the origin that the browser reports.
"""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable, Collection, Generator, MutableMapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from arr_coc.app.clips import MAX_MB
from arr_coc.files.atomic import temporary_folder

if TYPE_CHECKING:
    from arr_coc.app.screen import App  # which imports Gradio: see `serve_app`

OWN_ORIGIN = "; ".join(  # content security policy: the page may load nothing but from its own server
    (
        "default-src 'self'",
        "img-src 'self' data: blob:",
        "style-src 'self' 'unsafe-inline'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",  # Gradio makes components from text
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "form-action 'self'",
        "base-uri 'self'",
    )
)


LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))  # names of this machine that no other host can have
WRONG_HOST, FORBIDDEN, UNKNOWN, TOO_LARGE = 421, 403, 404, 413
# A Host header: a name, or an address in brackets, and a port; no user, path or spaces.
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(:\d*)?", re.ASCII | re.IGNORECASE)
# Bytes of a request that uploads a file, with the form around it, and of any other request.
MAX_UPLOAD, MAX_BODY = (MAX_MB + 1) * 2**20, 4 * 2**20
PATIENCE = 5.0  # seconds to wait at the end for a running model and for the guide
FOLDER = "arr-coc-app-"  # prefix of the temporary folders of a server
ENDINGS = ("SIGINT", "SIGTERM", "SIGHUP")  # signals that end the server


class OwnOriginOnly:
    """ASGI middleware that refuses requests from other sites and adds `OWN_ORIGIN` to every response.

    Args:
        app: the wrapped application.
        names: hosts by which the server may be called, without ports, since a tunnel may have another.
        addresses: also accept any numeric address: no site can use one as its own name.
    """

    def __init__(self, app: Any, names: Collection[str] = LOCAL, addresses: bool = False) -> None:
        self.app, self.names, self.addresses = app, {name.lower() for name in names}, addresses

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Handle one ASGI connection."""

        async def with_policy(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                policy = (b"content-security-policy", OWN_ORIGIN.encode())
                message["headers"] = [*message["headers"], policy, (b"referrer-policy", b"no-referrer")]
            await send(message)

        refusal = self._refusal(scope) if scope["type"] in ("http", "websocket") else None
        if refusal is None:
            await self.app(scope, receive, with_policy)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await PlainTextResponse(refusal[1] + "\n", refusal[0])(scope, receive, with_policy)

    def wrong_host(self, headers: Headers) -> str | None:
        """Return why a request that calls the server by the name in its headers is refused; None if it
        isn't.
        """
        host = headers.get("host", "")
        name = _host_name(host)
        if len(headers.getlist("host")) == 1 and self._is_own(name):
            return None
        return (
            f"this server isn't called {name or host!r}: use its own name, or allow this one with "
            "--allow-host"
        )

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str] | None:
        """Return the status and reason of a refusal; None for a request that is allowed."""
        headers = Headers(raw=scope["headers"])
        host, origin = headers.get("host", ""), headers.get("origin")
        if (reason := self.wrong_host(headers)) is not None:
            return WRONG_HOST, reason
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return FORBIDDEN, f"a page of {origin!r} asks, and only pages of {host!r} may"
        return None

    def _is_own(self, name: str) -> bool:
        return name in self.names or (self.addresses and _is_address(name))


class BodyLimit:
    """ASGI middleware that refuses bodies above `upload` bytes for "/upload" paths, else above `other`.

    The declared length is checked first, then the bytes as they arrive.
    """

    def __init__(self, app: Any, upload: int = MAX_UPLOAD, other: int = MAX_BODY) -> None:
        self.app, self.upload, self.other = app, upload, other

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        most = self.upload if scope["path"].endswith("/upload") else self.other
        length = Headers(raw=scope["headers"]).get("content-length", "")
        read, begun = int(length) if length.isdecimal() and int(length) > most else 0, False

        async def counted() -> MutableMapping[str, Any]:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                raise TooLarge
            return message

        async def unless_refused(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if begun or read <= most:
                begun = True
                await send(message)

        if read <= most:
            try:
                await self.app(scope, counted, unless_refused)
            except Exception:
                if read <= most:
                    raise
        if read > most and not begun:  # a response that has begun can't be replaced
            reason = f"the request has more than {most / 2**20:,.0f} MB, the most that is taken here\n"
            await PlainTextResponse(reason, TOO_LARGE, {"connection": "close"})(scope, receive, send)


class TooLarge(Exception):
    """Raised inside the wrapped app when a body exceeds its limit."""


def own_names(host: str, allowed: Sequence[str] = ()) -> dict[str, Any]:
    """Return the arguments of `OwnOriginOnly` for a server on `host`; a ValueError for a bad name in
    `allowed`.
    """
    names = set(LOCAL)
    for text in allowed:
        name = text if _is_address(text) else _host_name(text)
        if not name or "/" in text:
            raise ValueError(f"allowed host {text!r} is no name of a host: give one such as lab.example.org")
        names.add(name)
    if host in LOCAL:
        return {"names": names, "addresses": False}
    return {"names": names | {host, socket.gethostname(), socket.getfqdn()}, "addresses": True}


def serve_app(
    build: Callable[[], App],
    host: str,
    port: int,
    share: bool,
    ready: Callable[[str], None],
    allow_hosts: Sequence[str] = (),
) -> bool:
    """Build and serve the app until Ctrl-C, SIGTERM or SIGHUP; its files are deleted then.

    `build` makes the app once the folder for its files exists, `ready` is called with the address once the
    page can be opened, and `allow_hosts` are further names of the server; with `share`, any page may ask.

    Returns:
        Whether a model or the guide is still at work after `PATIENCE`, for example downloading.

    Raises:
        ValueError: not an address of this machine, the port is taken, or the app can't be built.
    """
    _check_host(host)
    app: App | None = None
    with (
        _interruptible(),
        temporary_folder(FOLDER) as folder,
    ):
        # Gradio reads these when it is imported and when a component is made.
        os.environ |= {"GRADIO_TEMP_DIR": str(folder), "GRADIO_ANALYTICS_ENABLED": "False"}
        app = build()
        try:
            policy = {"app_kwargs": refusals()} if share else own_origin(host, allow_hosts)
            _, local, public = app.launch(
                server_name=host,
                server_port=port,
                share=share,
                prevent_thread_lock=True,
                quiet=True,
                **policy,
            )
            ready(public or local)
            Event().wait()
        except OSError as error:
            raise ValueError(f"port {port} of {host} can't be used: choose another with --port") from error
        finally:
            app.close(verbose=False)
    return app is not None and app.end(PATIENCE)


def own_origin(host: str = "127.0.0.1", allow_hosts: Sequence[str] = ()) -> dict[str, Any]:
    """Arguments of Gradio's `launch` that add `OwnOriginOnly` and `refusals`."""
    kwargs = refusals()
    kwargs["middleware"] = [Middleware(OwnOriginOnly, **own_names(host, allow_hosts)), *kwargs["middleware"]]
    return {"app_kwargs": kwargs}


def refusals() -> dict[str, Any]:
    """Arguments of Gradio's server: one-line errors for unknown endpoints and too large bodies."""
    from gradio.route_utils import FnIndexInferError

    async def unknown(request: Request, error: Exception) -> PlainTextResponse:
        return PlainTextResponse("there is no endpoint of this name: the only one is /ask\n", UNKNOWN)

    async def missing(request: Request, error: Exception) -> PlainTextResponse:
        if request.method == "POST" and error.args and type(error.args[0]) is int:  # Gradio's own look-up
            return await unknown(request, error)
        raise error

    handlers = {FnIndexInferError: unknown, KeyError: missing}
    return {"exception_handlers": handlers, "middleware": [Middleware(BodyLimit)]}


@contextmanager
def _interruptible() -> Generator[None]:
    """End the block without an error at a signal of `ENDINGS`; further ones don't interrupt clean-up."""
    kinds = [getattr(signal, name) for name in ENDINGS if hasattr(signal, name)]
    before = {kind: signal.getsignal(kind) for kind in kinds}

    def interrupt(*_: object) -> None:
        for kind in kinds:
            signal.signal(kind, signal.SIG_IGN)
        raise KeyboardInterrupt

    for kind, handler in before.items():
        if handler is not signal.SIG_IGN:  # as nohup has it
            signal.signal(kind, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _check_host(host: str) -> None:
    """Raise a ValueError unless a server can listen on `host` of this machine, whatever the port."""
    reason: Exception | None = None
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM):
            try:
                with socket.socket(family, kind) as place:
                    place.bind(address)
                return
            except OSError as error:  # a name may have several addresses
                reason = error
    except (OSError, UnicodeError) as error:
        reason = error
    raise ValueError(
        f"host {host!r} is no address of this machine: choose another with --host, such as 127.0.0.1"
    ) from reason


def _host_name(host: str) -> str:
    """Return the name in a Host header, lower case, without the port; "" if the header is malformed."""
    if not HOST.fullmatch(host):
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
