"""The app as a person meets it: one server, a real browser. Run: pytest tests/browser/test_app_browser.py"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")

import arr_coc
from arr_coc.app.samples import COUNTED
from arr_coc.inspect.trace import Trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

SERVE = (
    "from arr_coc.app import launch; launch(port={port}, ready=lambda address: print(address, flush=True))"
)
PHONE = {"width": 390, "height": 844}
Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def address(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the app with the bundled model; ended by a SIGTERM, it leaves nothing behind."""
    files = tmp_path_factory.mktemp("served")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": str(Path(arr_coc.__file__).parents[1]), "TMPDIR": str(files), "OMP_NUM_THREADS": "1"
    }  # fmt: skip
    command = [sys.executable, "-c", SERVE.format(port=port)]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0
    assert list(files.glob("arr-coc-*")) == []


@pytest.fixture
def open_app(browser: Browser, address: str) -> Iterator[Open]:
    """Opens the app, each time as another user; the page asks nobody but its server, and has no errors."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def opened(**settings: Any) -> Page:
        settings = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | settings
        contexts.append(browser.new_context(**settings))
        contexts[-1].set_default_timeout(30_000)
        page = contexts[-1].new_page()
        page.on(
            "request",
            lambda r: None if r.url.startswith((address, "data:", "blob:")) else wrong.append(r.url),
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#canvas canvas")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def answered(page: Page) -> None:
    page.wait_for_function("document.querySelector('#status').innerText.startsWith('Answered in')")
    page.wait_for_selector("#ask:enabled")


def look_closer(page: Page) -> None:
    page.click("#closer .label-wrap")
    page.wait_for_selector("#microscope canvas")


def fits(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_sample_is_answered_before_and_after_asking(open_app: Open) -> None:
    page = open_app()
    assert "554RM" in page.inner_text("#canvas")
    page.click("#ask")
    answered(page)
    assert "Same answer" in page.inner_text("#canvas")
    assert "61 of 1,024" in page.inner_text("#canvas")


def test_two_users_at_once(open_app: Open) -> None:
    one, two = open_app(), open_app()
    one.fill("#question textarea", "What is the title?")
    two.locator("#samples button", has_text=COUNTED).click()
    one.click("#ask")
    answered(two)
    answered(one)
    assert "What is the title?" in one.inner_text("#canvas")
    assert "Garden Index" in one.inner_text("#canvas")
    assert COUNTED in two.inner_text("#canvas")
    assert "of 768" in two.inner_text("#canvas")
    assert two.input_value("#question textarea") == COUNTED


def test_keys_alone_move_the_budget_and_ask(open_app: Open) -> None:
    page = open_app()

    def tab_to(selector: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate(
                "document.activeElement.matches(arguments[0])".replace("arguments[0]", repr(selector))
            ):
                return
        raise AssertionError(f"no way to {selector} with Tab")

    tab_to("#question textarea")
    tab_to("#budget input[type=range]")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.focus("#question textarea")
    page.keyboard.press("Control+a")
    page.keyboard.type("What is the title?")
    page.keyboard.press("Enter")
    answered(page)
    assert "102 of 1,024" in page.inner_text("#canvas")
    tab_to("#closer .label-wrap")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_selector("#microscope canvas")


def test_the_microscope(open_app: Open, browser: Browser, tmp_path: Path) -> None:
    page = open_app()
    look_closer(page)
    page.click("#microscope .ac-stage", position={"x": 40, "y": 60})
    card = re.search(r"Row (\d+), column (\d+)", page.inner_text("#microscope"))
    assert card is not None
    assert int(card[1]) < 8
    assert int(card[2]) < 8

    page.click("#probe-sweep")
    page.wait_for_function("document.querySelector('#measured').innerText === 'Measured.'")
    page.wait_for_selector("#probe-sweep:enabled")
    assert "log-probability per token" in page.inner_text("#microscope")

    page.get_by_role("tab", name="Another question").click()
    page.fill("#other textarea", "What does the gray text say?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#swapped canvas")
    assert float(page.inner_text("#swapped .ac-iou")) < 0.5
    page.wait_for_selector("#swap:enabled")

    page.get_by_role("tab", name="Balance").click()
    page.wait_for_selector("#history svg")

    page.get_by_role("tab", name="Save and open").click()
    with page.expect_download() as html:
        page.click("#page")
    html.value.save_as(tmp_path / "a.html")
    with page.expect_download() as record:
        page.click("#record")
    record.value.save_as(tmp_path / "a.safetensors")
    trace = Trace.load(tmp_path / "a.safetensors")
    assert (trace.answer, list(trace.probes)) == ("554RM", ["sweep"])
    alone = browser.new_page()
    asked: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    alone.goto((tmp_path / "a.html").as_uri())
    alone.wait_for_selector("canvas")
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    alone.close()

    page.locator("#samples button").nth(1).click()  # something else, then what was saved
    answered(page)
    page.set_input_files(
        "#saved input[type=file], input[type=file][accept*=safetensors]", tmp_path / "a.safetensors"
    )
    page.wait_for_function("document.querySelector('#canvas').innerText.includes('554RM')")
    assert page.inner_text("#status") == "Opened."


def test_a_broken_upload_is_a_message(open_app: Open, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnope")
    page = open_app()
    page.set_input_files("#image input[type=file]", tmp_path / "broken.png")
    page.wait_for_selector("[data-testid=toast-body]")
    said = page.inner_text("[data-testid=toast-body]")
    assert "Image 'broken.png' is not an image that can be read" in said
    assert "Traceback" not in page.content()
    assert "554RM" in page.inner_text("#canvas")
    page.click("#ask")  # the image before is still there to be asked about
    answered(page)
    assert "554RM" in page.inner_text("#canvas")


def test_stop(open_app: Open) -> None:
    page = open_app()
    page.fill("#question textarea", "What is the title?")
    page.click("#ask")
    page.click("#stop:enabled")
    page.wait_for_function("document.querySelector('#status').innerText.startsWith('Stopped')")
    assert "554RM" in page.inner_text("#canvas")
    page.wait_for_selector("#ask:enabled")


def test_phone(open_app: Open) -> None:
    page = open_app(viewport=PHONE, is_mobile=True, has_touch=True)
    assert fits(page)
    page.locator("#closer .label-wrap").tap()
    page.wait_for_selector("#microscope canvas")
    assert fits(page)
    for name in ("Another question", "Balance", "Save and open"):
        page.evaluate("scrollTo(0, 0)")
        tab = page.get_by_role("tab", name=name)
        if not tab.is_visible():  # what doesn't fit into the row of tabs is behind its "..."
            page.locator("#closer .overflow-menu > button").tap()
            tab = page.locator("#closer .overflow-dropdown button", has_text=name)
        tab.tap()
        assert fits(page)


def test_dark(open_app: Open) -> None:
    page = open_app(color_scheme="dark")
    dark = "(c => c.match(/[0-9]+/g).slice(0, 3).every(v => v < 60))"
    assert page.evaluate(f"{dark}(getComputedStyle(document.body).backgroundColor)")
    assert not page.evaluate(f"{dark}(getComputedStyle(document.querySelector('#head p')).color)")
