"""Serving the app on one address until it is interrupted; uploads and exports are deleted then."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, MutableMapping
from threading import Event
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arr_coc.app.screen import App

OWN_ORIGIN = "; ".join(
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
"""The content security policy: the browser lets the page load nothing but from its own server."""


class OwnOriginOnly:
    """ASGI middleware that adds `OWN_ORIGIN` to the headers of every response."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Call the wrapped app, with the policy among the headers of its response."""

        async def with_policy(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                policy = (b"content-security-policy", OWN_ORIGIN.encode())
                message["headers"] = [*message["headers"], policy, (b"referrer-policy", b"no-referrer")]
            await send(message)

        await self.app(scope, receive, with_policy)


def serve(build: Callable[[], App], host: str, port: int, share: bool, ready: Callable[[str], None]) -> None:
    """Build and serve until interrupted (Ctrl-C or a SIGTERM).

    Args:
        build: makes the app; called once the folder for its files is there.
        host: the address to listen on.
        port: the port there.
        share: make a public link.
        ready: called with the address once the page can be opened.

    Raises:
        ValueError: the port is taken, or the app can't be built.
    """
    with tempfile.TemporaryDirectory(prefix="arr-coc-app-", ignore_cleanup_errors=True) as folder:
        # Gradio reads these when it is imported and when a component is made.
        os.environ |= {"GRADIO_TEMP_DIR": folder, "GRADIO_ANALYTICS_ENABLED": "False"}
        app = build()
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            policy = {} if share else own_origin()
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
        except KeyboardInterrupt:
            pass
        finally:
            app.close(verbose=False)


def own_origin() -> dict[str, Any]:
    """Arguments of Gradio's `launch` that add the policy."""
    from starlette.middleware import Middleware

    return {"app_kwargs": {"middleware": [Middleware(OwnOriginOnly)]}}


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
