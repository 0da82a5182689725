"""Serving the app: on one address, from a folder that is deleted, with no word to anyone else."""

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
"""The page asks its own server and nobody else; the browser sees to it."""


class OwnOriginOnly:
    """ASGI middleware that sends this policy with every page."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Pass on, with the policy among the headers of the answer."""

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
        ready: told the address.

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
    """The arguments of `launch` that add the policy."""
    from starlette.middleware import Middleware

    return {"app_kwargs": {"middleware": [Middleware(OwnOriginOnly)]}}


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
