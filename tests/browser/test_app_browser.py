"""The app as a person meets it: one server, a real browser."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from access import assert_accessible, assert_usable_by_keys
from PIL import Image

from launching import PACKAGES

pytest.importorskip("gradio", reason="the app is an extra: pip install 'arr-coc[app]'")


from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from arr_coc.app.handlers import FAILED, NEW_PICTURE, NO_PICTURE, OF_CLIPS, PACKING
from arr_coc.app.samples import SAMPLE, THUMBNAIL, picture_samples
from arr_coc.guide.guide import BUNDLED_GUIDE, GUIDE_FILE
from arr_coc.trace.trace import Trace
from arr_coc.video import write_clip
from arr_coc_lab.results.files import write_results
from clip_models import frame

pytestmark = pytest.mark.slow

SAMPLED = json.loads(SAMPLE.read_text(encoding="utf-8"))["question"]
COUNTED = picture_samples()[-1].question
SERVE = (  # without the OCR that `make app` installs: it reads each picture for seconds
    "import sys; sys.modules['rapidocr'] = None;"
    "from arr_coc.app import launch;"
    "launch(port={port}, results={results!r}, ready=lambda address: print(address, flush=True))"
)
CASE = {
    "id": "0", "image": "test:0", "family": "value", "question": "Where is it?", "answers": ["here"],
    "total": 16, "grid": [1, 4, 4], "said": {"full": "here", "arr-coc@4": "there"},
    "score": {"full": 1.0, "arr-coc@4": 0.0},
}  # fmt: skip
PHONE = {"width": 390, "height": 844}
PATIENCE = 90_000
"""Milliseconds: a machine may be busy with other tests, and none of these is about time."""
Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def address(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the app with the bundled model; ended by a SIGTERM, it leaves nothing behind."""
    files = tmp_path_factory.mktemp("served")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": PACKAGES, "TMPDIR": str(files), "OMP_NUM_THREADS": "1"
    }  # fmt: skip
    results = tmp_path_factory.mktemp("results") / "run.jsonl"
    write_results(results, {"data": "world", "size": 128, "split": "test"}, [CASE])
    command = [sys.executable, "-c", SERVE.format(port=port, results=str(results))]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=files)
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=PATIENCE / 1000) == 0
    assert list(files.glob("arr-coc-*")) == []


@pytest.fixture
def open_app(browser: Browser, address: str) -> Iterator[Open]:
    """Opens the app, each time as another user; the page asks nobody but its server, and has no errors."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def opened(**settings: Any) -> Page:
        settings = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | settings
        contexts.append(browser.new_context(**settings))
        contexts[-1].set_default_timeout(PATIENCE)
        page = contexts[-1].new_page()
        page.on(
            "request",
            lambda r: None if r.url.startswith((address, "data:", "blob:")) else wrong.append(r.url),
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#sight canvas")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


STATUS = "(document.querySelector('#status')?.innerText ?? '')"


def answered(page: Page) -> None:
    page.wait_for_function(f"{STATUS}.startsWith('Answered in')")
    page.wait_for_selector("#ask:enabled")


def show_answer(page: Page) -> None:
    page.get_by_role("tab", name="The answer").click()
    page.wait_for_selector("#canvas canvas")


def open_sample(page: Page) -> None:
    """Choose the sample that the bundled model can read, whose answer is saved."""
    page.locator("#samples button", has_text=SAMPLED).first.click()
    page.wait_for_selector("#canvas canvas")


def ask_anew(page: Page) -> str:
    """Press Ask, and wait until it can be pressed again; what was said at the end."""
    page.evaluate(
        """() => {
          window.pressed = false;
          const ask = document.querySelector("#ask");
          new MutationObserver(() => { window.pressed ||= ask.disabled; }).observe(ask, {attributes: true});
        }"""
    )
    page.click("#ask")
    page.wait_for_function("window.pressed")
    page.wait_for_selector("#ask:enabled")
    return page.inner_text("#status")


def look_closer(page: Page) -> None:
    page.click("#closer .label-wrap")
    page.wait_for_selector("#microscope canvas")


def fits(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_sample_is_answered_before_and_after_asking(open_app: Open) -> None:
    page = open_app()
    open_sample(page)
    assert "554RM" in page.inner_text("#canvas")
    page.click("#ask")
    answered(page)
    assert "Same answer" in page.inner_text("#canvas")
    assert "64 of 1,024" in page.inner_text("#canvas")


@pytest.mark.skipif(not (BUNDLED_GUIDE / GUIDE_FILE).is_file(), reason="the package has no guide")
def test_it_shows_where_it_would_look_while_one_types(open_app: Open) -> None:
    page = open_app()
    said = page.inner_text("#sight")
    assert "64 of 1,000 cells kept" in said
    assert "The cells were chosen by what the question asks for." in said
    assert page.locator("#sight .ac-evidence.ac-best").count() == 1  # the row, in place of each cell
    assert page.locator("#sight .ac-outline").count() == 0
    page.fill("#question textarea", "What is the voucher?")
    page.wait_for_function("document.querySelector('#sight').innerText.includes('voucher')")
    assert "64 of 1,000 cells kept" in page.inner_text("#sight")
    page.fill("#budget input[type=number]", "123")
    page.press("#budget input[type=number]", "Tab")
    page.wait_for_function("document.querySelector('#sight').innerText.includes('123 of 1,000 cells')")
    page.check("#auto input")
    page.wait_for_function("!document.querySelector('#sight').innerText.includes('123 of 1,000 cells')")
    page.hover("#sight .ac-spot")
    assert "likeness" in (page.locator("#sight .ac-spot").first.get_attribute("aria-label") or "")


def test_a_moved_budget_marks_the_answer_as_of_another(open_app: Open) -> None:
    page = open_app()
    open_sample(page)
    for value, said in (("273", "another budget"), ("64", "")):
        page.fill("#budget input[type=number]", value)
        page.press("#budget input[type=number]", "Tab")
        page.wait_for_function(
            f"(t => {said!r} ? t.includes({said!r}) : !t)(document.querySelector('#stale').innerText.trim())"
        )


@pytest.mark.skipif(not (BUNDLED_GUIDE / GUIDE_FILE).is_file(), reason="the package has no guide")
def test_a_picture_to_choose_is_looked_at_asked_about_and_cleared(open_app: Open) -> None:
    page, scenes = open_app(), picture_samples()
    scene = next(scene for scene in scenes if "settings" in str(scene.image))
    page.locator("#samples button", has_text=scene.question).click()
    page.wait_for_function("document.querySelector('#sight').innerText.includes('of 768 cells')")
    assert page.input_value("#question textarea") == scene.question
    page.wait_for_function("document.querySelector('#image img').naturalWidth === 768")
    page.click("#ask")
    answered(page)
    assert page.is_visible("#canvas .ac-warning")  # the bundled model can't read it, and says so first
    assert "what a larger model would be given" in page.inner_text("#canvas")
    assert not page.locator("#canvas .ac-answer, #canvas .ac-differ").first.is_visible()
    page.click("#canvas summary")
    assert page.locator("#canvas .ac-answer").first.is_visible()
    page.get_by_role("tab", name="For any API").click()
    page.wait_for_selector("#sent img")
    page.click("#image button[aria-label='Remove Image']")
    page.get_by_role("tab", name="Where it looks").click()
    page.wait_for_selector("#sight canvas", state="detached")
    assert page.inner_text("#looking-status") == NO_PICTURE


def upload_picture(page: Page, path: Path) -> None:
    page.set_input_files("#image input[type=file]", path)
    page.wait_for_function("document.querySelector('#sight').innerText.includes('of 500 cells')")


def paste_picture(page: Page, path: Path) -> None:
    """By the button of the clipboard, which holds the picture."""
    data = base64.b64encode(path.read_bytes()).decode()
    page.evaluate(
        """(data) => {
          const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
          const blob = new Blob([bytes], {type: "image/png"});
          const entry = {types: ["image/png"], getType: async () => blob};
          Object.defineProperty(navigator, "clipboard", {value: {read: async () => [entry]}});
        }""",
        data,
    )
    page.click("#image button[aria-label*='clipboard' i]")
    page.wait_for_function("document.querySelector('#sight').innerText.includes('of 500 cells')")


def drop(page: Page, path: Path, kind: str) -> None:
    """Drop a file on the box for pictures."""
    page.wait_for_selector("#clip input[type=file]", state="attached")
    page.evaluate(
        """([data, name, type]) => {
          const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
          const files = new DataTransfer();
          files.items.add(new File([bytes], name, {type}));
          const event = new DragEvent("drop", {bubbles: true, cancelable: true, dataTransfer: files});
          document.querySelector("#image img, #image button").dispatchEvent(event);
        }""",
        [base64.b64encode(path.read_bytes()).decode(), path.name, kind],
    )


def drop_pdf(page: Page, path: Path) -> None:
    pytest.importorskip("pypdfium2", reason="PDFs are an extra: pip install 'arr-coc[pdf]'")
    Image.open(path).save(path.with_suffix(".pdf"), resolution=144)
    drop(page, path.with_suffix(".pdf"), "application/pdf")
    page.wait_for_function("document.querySelector('#sight').innerText.includes('of 500 cells')")


def choose_first(page: Page, path: Path) -> None:
    open_sample(page)


def choose_drawn(page: Page, path: Path) -> None:
    page.locator("#samples button", has_text=COUNTED).click()
    page.wait_for_function("document.querySelector('#sight').innerText.includes('of 768')")


def stop_first(page: Page, path: Path) -> None:
    page.click("#ask")
    page.click("#stop")
    page.wait_for_selector("#ask:enabled")


def be_refused_first(page: Page, path: Path) -> None:
    page.fill("#question textarea", " ")
    assert ask_anew(page).startswith("Not answered")


def fail_first(page: Page, path: Path) -> None:
    """An error before the handler: a value that Gradio itself does not take."""
    spoil = "**/gradio_api/queue/join**"

    def spoiled(route: Route) -> None:
        body = json.loads(route.request.post_data or "{}")
        if len(body.get("data", [])) == 8:
            body["data"][1] = {"__type__": "update", "url": "x"}
        route.continue_(post_data=json.dumps(body))

    page.route(spoil, spoiled)
    assert ask_anew(page) == FAILED
    page.unroute(spoil)


def refresh(page: Page, path: Path) -> None:
    page.reload()
    page.wait_for_selector("#sight canvas")


WAYS = (
    choose_first, choose_drawn, upload_picture, paste_picture, drop_pdf, stop_first,
    be_refused_first, fail_first, refresh,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_ask_answers_however_the_picture_and_the_question_came(
    open_app: Open, tmp_path: Path, way: Callable[[Page, Path], None]
) -> None:
    """Asked twice, the second time something else; each time Ask can be pressed again."""
    Image.new("RGB", (800, 640), "white").save(tmp_path / "white.png")
    page = open_app()
    way(page, tmp_path / "white.png")
    for question in ("What is the title?", "What is the vendor?"):
        page.fill("#question textarea", question)
        assert ask_anew(page).startswith("Answered in")
        assert question in page.inner_text("#canvas")
    assert way is fail_first or page.locator("[data-testid=toast-body]").count() == 0


WATCH = """() => {
  const [line, sight] = ["#looking-status .status", "#sight"].map((place) => document.querySelector(place));
  const strength = () => [sight, ...sight.querySelectorAll(".pending")]
    .reduce((all, part) => all * getComputedStyle(part).opacity, 1);
  window.seen = [];
  window.watching = setInterval(() => seen.push([line.textContent, strength(), sight.innerText]), 5);
}"""
"""Notes all the time what the pane says, how strong its view is and what that shows."""


@pytest.mark.skipif(not (BUNDLED_GUIDE / GUIDE_FILE).is_file(), reason="the package has no guide")
def test_what_was_found_in_a_picture_fades_when_another_comes(open_app: Open, tmp_path: Path) -> None:
    page = open_app()
    page.wait_for_selector("#sight canvas")
    Image.new("RGB", (800, 640), "white").save(tmp_path / "white.png")
    page.evaluate(WATCH)
    page.set_input_files("#image input[type=file]", tmp_path / "white.png")
    page.wait_for_function("document.querySelector('#sight').innerText.includes('of 500 cells')")
    page.locator("#samples button.gallery-item", has_text="seller").click()
    page.wait_for_function("!document.querySelector('#sight').innerText.includes('of 500 cells')")
    page.wait_for_function("document.querySelector('#looking-status .status').textContent === ''")
    seen = page.evaluate("clearInterval(watching), seen")
    assert {line for line, *_ in seen} == {"", NEW_PICTURE}
    assert all(strength < 0.5 for line, strength, _ in seen if line)
    said = next(n for n, (line, *_) in enumerate(seen) if line)
    fresh = next(n for n, (*_, shown) in enumerate(seen) if "of 500 cells" in shown)
    # The line goes a moment before the new view is drawn: both come with one answer, shown in turn.
    strong = sum(strength >= 0.5 for _, strength, _ in seen[said:fresh])
    assert strong < 0.25 * (fresh - said)
    quiet = next(n for n, (line, *_) in enumerate(seen[fresh:], fresh) if not line)
    assert any(line for line, *_ in seen[quiet:])  # of the scene, too

    page.evaluate(WATCH)
    page.locator("#question textarea").press_sequentially(" by now", delay=40)
    page.wait_for_timeout(300)
    typed = page.evaluate("clearInterval(watching), seen")
    assert {(line, strength) for line, strength, _ in typed} == {("", 1)}


@pytest.mark.parametrize("width", [360, 1280])
def test_what_the_place_for_a_clip_says_is_wholly_in_sight(open_app: Open, width: int) -> None:
    pytest.importorskip("av", reason="clips are an extra: pip install 'arr-coc[video]'")
    page = open_app(viewport={"width": width, "height": 900})
    page.wait_for_selector("#clip button .wrap")
    label, first, last, end = page.evaluate(
        """() => {
          const [box, label, wrap] = ["", " label", " button .wrap"].map((part) =>
            document.querySelector("#clip" + part));
          const text = document.createRange();
          text.selectNodeContents(wrap);
          const [inner, sides] = [text, box].map((part) => part.getBoundingClientRect());
          return [label.getBoundingClientRect().bottom, inner.top, inner.bottom, sides.bottom];
        }"""
    )
    assert label <= first
    assert last <= end


def test_two_users_at_once(open_app: Open) -> None:
    one, two = open_app(), open_app()
    open_sample(one)
    one.fill("#question textarea", "What is the title?")
    two.locator("#samples button", has_text=COUNTED).click()
    one.click("#ask")
    two.click("#ask")
    answered(two)
    answered(one)
    assert "What is the title?" in one.inner_text("#canvas")
    assert "Garden Index" in one.inner_text("#canvas")
    assert COUNTED in two.inner_text("#canvas")
    assert "of 768" in two.inner_text("#canvas")
    assert two.input_value("#question textarea") == COUNTED


def tab_to(page: Page, selector: str, text: str = "", key: str = "Tab") -> None:
    """Press Tab (or another key) until what has the focus is so, and has a text."""
    for _ in range(60):
        page.keyboard.press(key)
        if page.evaluate(
            "([so, text]) => (it => it.matches(so) && it.innerText.includes(text))(document.activeElement)",
            [selector, text],
        ):
            return
    raise AssertionError(f"no way to {selector} with {key}")


def test_keys_alone_move_the_budget_and_ask(open_app: Open) -> None:
    page = open_app()
    tab_to(page, "#question textarea")
    tab_to(page, "#budget input[type=range]")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('#sight').innerText.includes('68 of 1,000')")
    page.focus("#question textarea")
    page.keyboard.press("Control+a")
    page.keyboard.type("What is the title?")
    page.keyboard.press("Enter")
    answered(page)
    assert "68 of 1,000" in page.inner_text("#canvas")
    tab_to(page, "#closer .label-wrap")
    page.keyboard.press("Enter")
    page.wait_for_selector("#microscope canvas")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_tab_alone_reaches_all_that_a_mouse_can_use(open_app: Open, scheme: str, width: int) -> None:
    page = open_app(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.locator("#samples button img").nth(len(picture_samples())).wait_for()
    page.wait_for_selector("#magnify input")
    assert_usable_by_keys(page)


HEAR = """() => {
  const part = "[aria-live=polite]";
  window.heard = [];
  new MutationObserver((changes) => changes.forEach(({ target }) => {
    const line = (target.closest ? target : target.parentElement)?.closest(part);
    if (line?.checkVisibility() && line.textContent) heard.push(line.textContent);
  })).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""
"""Notes what a screen reader is told to say."""


@pytest.mark.parametrize("width", [390, 1280])
def test_a_picture_is_chosen_and_asked_about_with_keys_alone(
    open_app: Open, tmp_path: Path, width: int
) -> None:
    page = open_app(viewport={"width": width, "height": 844})
    tab_to(page, "#samples button", COUNTED)
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('#sight').innerText.includes('of 768 cells')")
    assert page.input_value("#question textarea") == COUNTED
    tab_to(page, "#ask", key="Shift+Tab")
    page.evaluate(HEAR)
    page.keyboard.press("Space")
    answered(page)
    said = page.evaluate("heard")
    assert [line for line in said if line.startswith("From 64 tokens: ")]
    assert [line for line in said if line.startswith("Answered in ")]
    page.wait_for_function("document.activeElement.id === 'ask'")  # it was off during the work
    tab_to(page, "#canvas .ac-stage")
    tab_to(page, "#results [role=tab]", "Where it looks", key="Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#sight canvas")
    tab_to(page, "#image button[aria-label='Remove Image']", key="Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#sight canvas", state="detached")
    page.wait_for_selector("#image input[type=file]", state="attached")
    Image.new("RGB", (800, 640), "white").save(tmp_path / "white.png")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
    chooser.value.set_files(tmp_path / "white.png")
    page.wait_for_function("document.querySelector('#sight').innerText.includes('of 500 cells')")


def choose_from(page: Page, place: str, text: str) -> None:
    """Choose an entry of a list by its beginning."""
    page.click(f"{place} input")
    page.locator(f"{place} [role=option]", has_text=text).click()


def test_kept_cells_are_magnified_where_the_form_says_so(open_app: Open) -> None:
    page = open_app()
    open_sample(page)
    assert page.input_value("#magnify input") == "off"
    choose_from(page, "#magnify", "2 times")
    page.wait_for_function("document.querySelector('#stale').innerText.includes('magnification')")
    page.click("#ask")
    answered(page)
    assert "Magnified: 16 cells kept, read 2.0× finer than shown here, in 64 tokens" in page.inner_text(
        "#canvas"
    )
    assert page.input_value("#magnify input") == "2 times"
    choose_from(page, "#mode", "prune:")
    page.click("#ask")
    page.wait_for_function(
        "document.querySelector('#canvas').innerText.includes('had no effect in mode prune')"
    )
    page.wait_for_selector("#ask:enabled")


def test_the_microscope(open_app: Open, browser: Browser, tmp_path: Path) -> None:
    page = open_app()
    open_sample(page)
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
    page.click("#ask")
    answered(page)
    page.set_input_files(
        "#saved input[type=file], input[type=file][accept*=safetensors]", tmp_path / "a.safetensors"
    )
    page.wait_for_function("document.querySelector('#canvas').innerText.includes('554RM')")
    assert page.inner_text("#status") == "Opened."


def problem(page: Page, field: str) -> str:
    """What is said to be wrong with a field, right below it and on the screen."""
    line = page.locator(f"#{field}-problem .problem:not(:empty)")
    line.wait_for()
    below, above = line.bounding_box(), page.locator(f"#{field}").bounding_box()
    assert below is not None
    assert above is not None
    assert 0 <= below["y"] - above["y"] - above["height"] < 40
    assert 0 <= below["y"] <= page.evaluate("innerHeight") - below["height"]
    return line.inner_text()


def test_what_is_wrong_is_said_beside_its_field(open_app: Open, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnope")
    page = open_app()
    open_sample(page)
    page.set_input_files("#image input[type=file]", tmp_path / "broken.png")
    assert "Image 'broken.png' cannot be opened" in problem(page, "image")
    page.fill("#question textarea", "  ")
    page.click("#ask")
    assert "The question is empty" in problem(page, "question")
    page.wait_for_selector("#ask:enabled")
    assert page.evaluate("document.activeElement.matches('#question textarea')")
    assert page.get_attribute("#question textarea", "aria-invalid") == "true"
    described = page.get_attribute("#question textarea", "aria-describedby")
    assert "The question is empty" in page.inner_text(f"#{described}")
    assert page.locator("[data-testid=toast-body]").count() == 0
    assert "Traceback" not in page.content()
    assert "554RM" in page.inner_text("#canvas")
    page.fill("#question textarea", "What is the title?")
    page.click("#ask")  # about the image before, which is still there
    answered(page)
    assert "Garden Index" in page.inner_text("#canvas")
    assert page.locator(".problem:visible").count() == 0
    assert page.get_attribute("#question textarea", "aria-invalid") == "false"


def test_an_upload_fades_the_answer_until_the_next(open_app: Open) -> None:
    page = open_app()
    open_sample(page)
    opacity = "getComputedStyle(document.querySelector('#canvas')).opacity"
    assert page.evaluate(opacity) == "1"
    page.set_input_files("#image input[type=file]", SAMPLE.with_suffix(".png"))
    page.wait_for_selector("#results button[aria-selected=true]:has-text('Where it looks')")
    show_answer(page)
    page.wait_for_selector("#stale .status:not(:empty)")
    assert "another image" in page.inner_text("#stale")
    assert float(page.evaluate(opacity)) < 0.6
    page.evaluate(
        "() => { const line = document.querySelector('#status'); window.lines = [];"
        " new MutationObserver(() => lines.push(line.innerText.trim()))"
        ".observe(line, {subtree: true, childList: true, characterData: true}); }"
    )
    page.click("#ask")
    answered(page)
    assert page.evaluate(opacity) == "1"
    assert not page.is_visible("#stale")
    lines = page.evaluate("window.lines")  # each side says what it is while it streams
    kept = [n for n, line in enumerate(lines) if line.startswith("From 64 tokens: ")]
    full = [n for n, line in enumerate(lines) if line.startswith("From all tokens: ")]
    assert kept
    assert full
    assert max(kept) < min(full)


def test_the_page_says_what_it_offers(open_app: Open) -> None:
    page = open_app()
    thumbnails = page.locator("#samples button img")
    thumbnails.nth(3).wait_for()  # the answer that the app opens with may stand before them
    page.wait_for_function("[...document.querySelectorAll('#samples button img')].every(i => i.complete)")
    sizes = thumbnails.evaluate_all("all => all.map(i => [i.naturalWidth, i.alt])")
    assert sizes == [[THUMBNAIL[0], ""]] * (1 + len(picture_samples()))
    assert page.get_by_role("button", name=COUNTED).is_visible()
    line = "document.querySelector('#model').innerText"
    page.wait_for_function(f"{line}.startsWith('Model: bundled,') && !{line}.includes('loading')")


def test_the_form_outlives_a_refresh(open_app: Open) -> None:
    page = open_app()
    page.fill("#question textarea", "What is the title?")
    page.fill("#budget input[type=number]", "120")
    page.press("#budget input[type=number]", "Tab")
    page.click("#compare input")
    choose_from(page, "#magnify", "auto")
    page.click("#ask")
    answered(page)
    again = page.context.new_page()  # the same browser: what a refresh opens, too
    again.goto(page.url)
    again.wait_for_selector("#sight canvas")
    again.wait_for_function("document.querySelector('#question textarea').value === 'What is the title?'")
    again.wait_for_function("document.querySelector('#budget input[type=number]').value === '120'")
    assert not again.is_checked("#compare input")
    assert again.input_value("#magnify input").startswith("auto")


def test_one_worst_case(open_app: Open) -> None:
    page = open_app()
    open_sample(page)
    look_closer(page)
    assert page.locator("#microscope .ac-verdict").count() == 0  # it stands above already
    assert page.is_checked("#microscope input[value=balanced]")
    page.get_by_role("tab", name="Worst cases").click()
    page.wait_for_selector("#worst button img")
    assert page.inner_text("#worst-title").startswith("The answer of run.jsonl where most was lost")
    assert page.locator("#worst button").count() == 1  # nothing to leaf through
    box = page.locator("#worst button").bounding_box()
    assert box is not None
    assert box["width"] < 400
    page.click("#worst button")
    page.wait_for_function(f"{STATUS}.includes('Ask again')")
    assert page.input_value("#question textarea") == "Where is it?"
    assert "another image" in page.inner_text("#stale")
    page.wait_for_function("document.querySelector('#form').getBoundingClientRect().top >= 0")


def test_stop(open_app: Open) -> None:
    page = open_app()
    open_sample(page)
    page.fill("#question textarea", "What is the title?")
    # Clicked by the page itself as soon as it can be: an answer may be there before a hand is.
    page.evaluate(
        "const stop = document.querySelector('#stop');"
        "new MutationObserver(() => stop.disabled || stop.click()).observe(stop, {attributes: true})"
    )
    page.click("#ask")
    page.wait_for_function(f"{STATUS}.startsWith('Stopped')")
    assert "554RM" in page.inner_text("#canvas")
    page.wait_for_selector("#ask:enabled")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("av", reason="clips are an extra: pip install 'arr-coc[video]'")
    path = tmp_path_factory.mktemp("clips") / "disc.mp4"
    write_clip([frame(2 * i, (256, 192)) for i in range(6)], path, 2.0)
    return path


def test_a_clip_is_dropped_in_asked_about_and_made_room_for(
    open_app: Open, video: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    page = open_app(viewport={"width": 380, "height": 844}, color_scheme="dark")
    open_sample(page)
    assert "at most 5 minutes, 64 MB" in page.inner_text("#clip")
    drop(page, video, "video/mp4")  # the live view says in a line where clips go
    page.wait_for_selector("#clip-preview img")
    expect(page.locator("#looking-status")).to_have_text(OF_CLIPS, timeout=PATIENCE)
    page.locator("#clip button[aria-label*='emove' i], #clip button[aria-label*='lear' i]").first.click()
    page.wait_for_selector("#clip-preview img", state="detached")
    show_answer(page)
    page.set_input_files("#clip input[type=file]", tmp_path / "broken.mp4")
    assert "Clip 'broken.mp4' is no video that can be read" in problem(page, "clip")
    page.set_input_files("#clip input[type=file]", video)
    page.wait_for_selector("#clip-preview img")
    assert "256 x 192 px, 6 frames of 3.0 s" in page.inner_text("#clip-preview")
    assert not page.is_visible("#image")
    assert not page.is_visible("#clip-problem .problem")
    assert "another image or clip" in page.inner_text("#stale")
    page.fill("#question textarea", "What colour is the disc?")
    page.uncheck("#compare input")
    page.click("#ask")
    answered(page)
    page.wait_for_selector("#canvas .ac-film-frame")
    assert page.locator("#canvas .ac-film-frame").count() == 3
    page.focus("#canvas input[aria-label='frame of the clip']")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    title = "document.querySelector('#canvas .ac-frame-title').innerText"
    page.wait_for_function(f"{title}.startsWith('1.0 to 1.5 s')")
    assert fits(page)
    look_closer(page)
    page.click("#probe-contenders")
    page.wait_for_function("document.querySelector('#measured').innerText.includes('about a clip')")
    page.wait_for_selector("#probe-contenders:enabled")
    assert page.evaluate(f"{title}.startsWith('1.0 to 1.5 s')")
    open_sample(page)
    page.wait_for_function("document.querySelector('#canvas').innerText.includes('554RM')")
    page.wait_for_selector("#clip-preview img", state="detached")
    assert page.locator("#image img").is_visible()
    assert page.locator("#canvas .ac-film-frame").count() == 0


def test_phone(open_app: Open) -> None:
    page = open_app(viewport=PHONE, is_mobile=True, has_touch=True)
    assert fits(page)
    top = "document.querySelector('#results').getBoundingClientRect().top"
    end = "document.querySelector('#form').getBoundingClientRect().bottom"
    assert 0 <= page.evaluate(f"{top} - {end}") < 30  # right below the question, above what can be chosen
    assert page.evaluate(f"document.querySelector('#samples').getBoundingClientRect().top - {top}") > 300
    page.locator("#samples button.gallery-item", has_text="seller").tap()
    page.wait_for_function(f"Math.abs({top}) < 50")
    page.evaluate("scrollTo(0, 0)")
    page.locator("#ask").tap()
    answered(page)
    page.wait_for_function(f"Math.abs({top}) < 50")
    page.fill("#question textarea", " ")
    page.locator("#ask").tap()
    assert "The question is empty" in problem(page, "question")  # not left out of sight
    page.wait_for_selector("#ask:enabled")
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


WATCH_PACKING = """() => {
  const [sent, file] = ["#sent", "#pack-file"].map((place) => document.querySelector(place));
  window.line = () => document.querySelector("#pack-line .status").textContent;
  window.seen = [];
  window.watching = setInterval(() => seen.push([
    line(), Number(getComputedStyle(sent).opacity), getComputedStyle(file).visibility === "visible",
  ]), 5);
}"""
"""Notes all the time what the card says, how strong its pictures are and whether the file can be had."""


@pytest.mark.skipif(not (BUNDLED_GUIDE / GUIDE_FILE).is_file(), reason="the package has no guide")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_everybody_can_use_every_tab(open_app: Open, scheme: str, width: int) -> None:
    """In a narrow and a wide window, light and dark; the third tab makes its pictures as one opens it."""
    page = open_app(viewport={"width": width, "height": 844}, color_scheme=scheme)
    assert_accessible(page)
    page.get_by_role("tab", name="For any API").click()
    page.wait_for_selector("#sent img")
    page.wait_for_selector("#pack-costs table")
    assert page.inner_text("#pack-line").startswith("Any model can be sent")
    assert_accessible(page)
    page.evaluate(WATCH_PACKING)
    page.fill("#question textarea", "What is the order number and what does each item cost?")
    page.wait_for_function("seen.some(([line]) => line.startsWith('Making')) && seen.at(-1)[2]")
    seen = page.evaluate("clearInterval(watching), seen")
    assert any(line == PACKING and not there for line, _, there in seen), seen
    assert any(opacity < 0.5 and not there for _, opacity, there in seen), seen
    open_sample(page)
    assert page.locator("#sent img, #pack-costs table").count() == 0
    assert_accessible(page)


def test_dark(open_app: Open) -> None:
    page = open_app(color_scheme="dark")
    dark = "(c => c.match(/[0-9]+/g).slice(0, 3).every(v => v < 60))"
    assert page.evaluate(f"{dark}(getComputedStyle(document.body).backgroundColor)")
    assert not page.evaluate(f"{dark}(getComputedStyle(document.querySelector('#head p')).color)")
