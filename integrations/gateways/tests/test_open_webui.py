"""The filter, loaded and run by Open WebUI's own code for functions."""

from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import pixels

pytest.importorskip("open_webui")
FILTER = Path(__file__).parents[1] / "open_webui_filter.py"


@pytest.fixture(scope="module")
def utilities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Open WebUI's modules that load functions and run filters, with a data folder of their own."""
    os.environ |= {"DATA_DIR": str(tmp_path_factory.mktemp("data")), "WEBUI_SECRET_KEY": "k"}
    os.environ |= {"VECTOR_DB": "none", "OFFLINE_MODE": "true"}
    from open_webui.utils import filter as filters
    from open_webui.utils import plugin

    return plugin, filters


def test_a_picture_is_packed(
    utilities: tuple[Any, Any], proxy: str, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, filters = utilities
    loaded = plugin.load_function_module_by_id("arr_coc", content=FILTER.read_text())
    module, kind, front, _ = asyncio.run(loaded)
    assert kind == "filter"
    assert front["title"] == "arr-coc"
    module.valves = module.Valves(address=proxy)
    assert set(inspect.signature(module.inlet).parameters) == {"body", "__event_emitter__"}
    said: list[dict[str, Any]] = []

    async def emit(event: dict[str, Any]) -> None:
        said.append(event)

    async def of_cache(request: object, function_id: str, **how: object) -> tuple[Any, Any, Any]:
        return module, kind, front

    class Kept:
        """The table of functions, with the valves that an administrator has set."""

        @staticmethod
        async def get_function_valves_by_ids(ids: list[str]) -> dict[str, Any]:
            return {one: {"address": proxy, "tokens": 300} for one in ids}

    monkeypatch.setattr(filters, "get_function_module_from_cache", of_cache)
    monkeypatch.setattr(filters, "Functions", Kept)
    body = {"model": "qwen3-vl", "stream": True, "messages": rows}
    made, _ = asyncio.run(
        filters.process_filter_functions(
            request=None,
            filter_context=None,
            filter_functions=[SimpleNamespace(id="arr_coc")],
            filter_type="inlet",
            form_data=body,
            extra_params={"__event_emitter__": emit, "__user__": {"id": "1"}, "__model__": {}},
        )
    )
    assert made["messages"][0] == rows[0]
    assert pixels(made["messages"][1]) < pixels(rows[1]) / 3
    assert said[-1]["data"]["description"].startswith("arr-coc: packed 1 of 1 pictures")
