"""No session dies of its pictures: whatever they are and whoever sent them, no upstream refuses them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from arr_coc.proxy import packing
from arr_coc.proxy.packing import Packer
from arr_coc.proxy.server import Proxy, ProxySettings, server_config
from chat_servers import CLIENT, listening, pack_double
from strict_upstream import PATHS, StrictUpstream, body_of, refusal, rest

CONVERSATIONS = 200


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, StrictUpstream]]:
    upstream = StrictUpstream()
    monkeypatch.setattr(packing, "pack_for", pack_double)
    with listening(upstream.config) as address:
        proxy = Proxy(ProxySettings(address, traces=0), Packer(1))
        with listening(server_config(proxy)) as own:
            yield own, upstream


def test_nothing_is_refused_and_nothing_else_changes(strict: tuple[str, StrictUpstream]) -> None:
    address, upstream = strict
    refused_before = 0
    for seed in range(CONVERSATIONS):
        rng = random.Random(seed)
        name = rng.choice([*PATHS])
        body = body_of(rng, name)
        content = json.dumps(body).encode()
        refused_before += bool(refusal(PATHS[name], content))
        answer = CLIENT.post(address + PATHS[name], content=content, timeout=60)
        assert answer.status_code == 200, (seed, name, body["model"], answer.text)
        assert rest(json.loads(upstream.last)) == rest(body), seed
    assert refused_before > 0.6 * CONVERSATIONS  # the server is strict
