"""The proxy on a port of its own, in front of a stand-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from arr_coc.proxy import packing, server
from arr_coc.proxy.packing import Packer
from arr_coc.proxy.server import Proxy, ProxySettings, read_trust, server_config
from chat_servers import SelectorDouble, StandIn, Started, encoded, listening, pack_double

TRUST = read_trust(None)


@pytest.fixture(scope="session")
def screenshot() -> str:
    """A picture of 1280 x 800 px with two coloured parts, a PNG in base64."""
    return encoded(1280, 800)


@pytest.fixture(scope="module")
def upstream() -> Iterator[tuple[StandIn, str]]:
    made = StandIn()
    with listening(made.config) as address:
        yield made, address


@pytest.fixture
def start(upstream: tuple[StandIn, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Started]]:
    """A function that starts a proxy in front of the stand-in; what packs and chooses is a double."""
    stand_in, address = upstream
    stand_in.go_on.set()
    stand_in.aborted.clear()
    stand_in.most_pictures = 99
    for kept in (stand_in.bodies, stand_in.headers, stand_in.targets):
        kept.clear()
    monkeypatch.setattr(packing, "pack_for", pack_double)
    monkeypatch.setattr(packing, "Selector", SelectorDouble)
    with ExitStack() as stack:

        def starting(seconds: float = 20.0, target: str = "", **settings: Any) -> Started:
            packer = Packer(1, seconds=seconds)
            with monkeypatch.context() as patch:
                if not target:  # without https; reading the authorities is most of what a proxy's start takes
                    patch.setattr(server, "read_trust", lambda _: TRUST)
                proxy = Proxy(ProxySettings(target or address + "/v1", **settings), packer)
            return stack.enter_context(listening(server_config(proxy))), stand_in, proxy

        yield starting
