"""The browser that draws pages: it reaches no network and no file outside of the folder it was given."""

# ruff: noqa: E501  (lines of HTML)

from __future__ import annotations

import io
import os
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from arr_coc_lab.world.browser import Chromium
from arr_coc_lab.world.browser import chromium as module
from arr_coc_lab.world.browser.chromium import Gate, inside
from arr_coc_lab.world.browser.documents import DocumentLook, window_of

LOOK = DocumentLook(500, 400, 1.0, "")
RED, BLUE = (255, 0, 0), (0, 0, 255)
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="60" height="60"><rect width="60" height="60" fill="{}"/></svg>'
WAYS = """
<link rel="stylesheet" href="URL/link"><style>@import "URL/import";
@font-face { font-family: other; src: url(URL/font) } p { font-family: other }
div { background: url(URL/background); list-style-image: url(URL/list); cursor: url(URL/cursor), auto;
border-image: url(URL/border) 1 } div::after { content: url(URL/content); mask-image: url(URL/mask) }</style>
<link rel="icon" href="URL/icon"><link rel="manifest" href="URL/manifest"><link rel="preload" as="image" href="URL/preload">
<link rel="prefetch" href="URL/prefetch"><link rel="modulepreload" href="URL/modulepreload">
<link rel="preconnect" href="URL"><link rel="preconnect" href="NAMED" crossorigin>
<link rel="dns-prefetch" href="NAMED"><link rel="prerender" href="URL/prerender">
<img src="URL/img"><img src="//ADDRESS/bare"><img srcset="URL/srcset 1x, URL/srcset2 2x"><picture><source srcset="URL/source"><img></picture>
<iframe src="URL/iframe"></iframe><iframe srcdoc="<img src='URL/srcdoc'><iframe src='URL/nested'></iframe>"></iframe>
<object data="URL/object"></object><embed src="URL/embed"><script src="URL/script"></script>
<video src="URL/video" poster="URL/poster" preload="auto"><track src="URL/track" default></video>
<audio src="URL/audio" preload="auto"></audio><input type="image" src="URL/input">
<svg><image href="URL/image" width="9" height="9"/><use href="URL/use#a"/><filter id="f"><feImage href="URL/feimage"/>
</filter><rect width="9" height="9" filter="url(#f)" fill="url(URL/fill#a)"/></svg>
<table background="URL/table"><tr><td>cell</table><body background="URL/body"><p>printed</p><div>block</div>
<form id="form" action="URL/form" target="sink"></form><iframe name="sink"></iframe><a id="ping" ping="URL/ping" href="#x">a</a>
"""
"""Ways that a page fetches something by elements and style sheets alone."""
SCRIPTS = """<script>
const late = [
  () => fetch("URL/fetch", {mode: "no-cors"}), () => navigator.sendBeacon("URL/beacon"),
  () => { const x = new XMLHttpRequest(); x.open("GET", "URL/xhr"); x.send() },
  () => new WebSocket("URL/socket".replace("http", "ws")), () => new EventSource("URL/events"),
  () => document.getElementById("form").submit(), () => document.getElementById("ping").click(),
  () => window.open("URL/open"), () => navigator.serviceWorker.register("URL/service.js"),
  () => new Worker("URL/worker.js"), () => new WebTransport("https://ADDRESS/transport"), () => import("URL/module.js"),
  () => { const p = new RTCPeerConnection({iceServers: [{urls: "stun:UDP"}]});
          p.createDataChannel("x"); p.createOffer().then(o => p.setLocalDescription(o)) },
  () => new Worker(URL.createObjectURL(new Blob(["fetch('URL/blob', {mode: 'no-cors'})"]))),
];
for (const way of late) { try { Promise.resolve(way()).catch(() => 0) } catch (error) {} }
</script>"""
"""Ways that need a script."""


class Counted:
    """Servers on this machine that note what reaches them: every connection, and every packet."""

    def __init__(self) -> None:
        self.hits: list[str] = []
        self.tcp, self.udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for each in (self.tcp, self.udp):
            each.bind(("127.0.0.1", 0))
        self.tcp.listen(100)
        self.address, self.packets = (f"127.0.0.1:{each.getsockname()[1]}" for each in (self.tcp, self.udp))
        for work in (self._accept, self._receive):
            threading.Thread(target=work, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self.tcp.accept()
            connection.settimeout(0.5)
            try:
                request = connection.recv(4000).decode(errors="replace").partition("\r\n")[0]
                self.hits.append(request or "a connection")  # opened ahead of a request, and closed
                connection.sendall(b"HTTP/1.1 404 no\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            except OSError:
                self.hits.append("a connection")
            connection.close()

    def _receive(self) -> None:
        while True:
            self.udp.recvfrom(4000)
            self.hits.append("a packet")

    def written(self, html: str) -> str:
        """HTML with the servers' addresses."""
        url = f"http://{self.address}"
        named = url.replace("127.0.0.1", "localhost")
        html = html.replace("URL/", f"{url}/").replace('"URL"', f'"{url}"').replace("NAMED", named)
        return html.replace("ADDRESS", self.address).replace("UDP", self.packets)


@pytest.fixture
def counted() -> Iterator[Counted]:
    """Servers that count."""
    server = Counted()
    yield server
    server.tcp.close()
    server.udp.close()


def paths(hits: list[str]) -> set[str]:
    return {hit.split()[1] if "/" in hit else hit for hit in hits}


@pytest.mark.slow
@pytest.mark.parametrize("lock", ["gate", "flags", "both"])
def test_no_page_reaches_a_server(counted, tmp_path, monkeypatch, lock):
    """Each lock by itself ends what it can see; both together leave nothing."""
    if lock == "gate":
        monkeypatch.setattr(module, "CLOSED", ())
    if lock == "flags":
        monkeypatch.setattr(Gate, "__call__", lambda self, route: route.continue_())
    page = tmp_path / "page.html"
    # The gate alone keeps a page from being left; the flags only let it lead nowhere.
    refresh = "" if lock == "flags" else '<meta http-equiv="refresh" content="0;url=URL/refresh">'
    page.write_text(counted.written(WAYS if lock == "flags" else refresh + WAYS))
    with Chromium() as chromium:
        chromium.page().set_content(counted.written(WAYS + SCRIPTS))
        chromium.page().wait_for_timeout(700)
        window = window_of(chromium, 1.0)
        window.open(page, LOOK, tmp_path)
        window.page.wait_for_timeout(700)
        if lock == "both":
            assert window.page.url == page.as_uri()  # and a page that asks to be left is not left
            assert "printed" in {word.text for word in window.scroll(random.Random(0), LOOK).words}
    unseen = {"/socket", "/prefetch", "a packet", "a connection", "/ping", "/beacon"}  # pass no route
    assert paths(counted.hits) <= (unseen if lock == "gate" else set())


@pytest.mark.slow
def test_the_server_would_see_them(counted, tmp_path, monkeypatch):
    """Without both locks the same pages reach it in dozens of ways: the test above can fail."""
    monkeypatch.setattr(module, "CLOSED", ())
    monkeypatch.setattr(Gate, "__call__", lambda self, route: route.continue_())
    (tmp_path / "page.html").write_text(counted.written(WAYS))
    with Chromium() as chromium:
        chromium.page().set_content(counted.written(WAYS + SCRIPTS))
        chromium.page().wait_for_timeout(1500)
        window = window_of(chromium, 1.0)
        window.open(tmp_path / "page.html", LOOK, tmp_path)
    assert len(paths(counted.hits)) > 35
    assert {"/socket", "/img", "/import", "/iframe", "/fetch", "a packet"} <= paths(counted.hits)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of pages, and one beside it that is none of theirs."""
    own, other = tmp_path / "own", tmp_path / "other"
    for place, colour in ((own, "#00f"), (other, "#f00")):
        (place / "deep").mkdir(parents=True)
        (place / "a.svg").write_text(SVG.format(colour))
        (place / "a.html").write_text(f"<body style='background:{colour}'>text of {place.name}")
    (own / "link.svg").symlink_to(other / "a.svg")
    (own / "link.html").symlink_to(other / "a.html")
    (own / "outside").symlink_to(other)
    (own / "inner.svg").symlink_to(own / "a.svg")
    return own, other


def colours(window) -> set[tuple[int, ...]]:
    picture = Image.open(io.BytesIO(window.png())).convert("RGB")
    return {colour for _, colour in picture.getcolors(1 << 24)}


OUTSIDE = (
    "/etc/passwd", "file:///etc/passwd", "file://localhost/etc/passwd", "file:///etc/", "OTHER/a.svg", "OTHER/",
    "../other/a.svg", "../other/a.html", "%2e%2e/other/a.svg", "..%2fother/a.svg", "deep/../../other/a.svg",
    "link.svg", "link.html", "outside/a.svg", "outside/", "./", "../", "view-source:file:///etc/passwd",
)  # fmt: skip


@pytest.mark.slow
def test_nothing_outside_of_the_folder_is_drawn(chromium, folders):
    own, other = folders
    tags = "<p>printed</p><img src='inner.svg'><style>* { width: 40px; height: 40px }</style>"
    for name in OUTSIDE:
        url = name.replace("OTHER", other.as_uri())
        tags += (
            f'<iframe src="{url}"></iframe><object data="{url}"></object><embed src="{url}"><img src="{url}">'
        )
        tags += (
            f'<i style="background:url({url})">x</i><svg><image href="{url}" width="40" height="40"/></svg>'
        )
    (own / "page.html").write_text(tags)
    window = window_of(chromium, 1.0)
    window.open(own / "page.html", DocumentLook(1000, 900, 1.0, ""), own)
    assert RED not in colours(window)
    assert BLUE in colours(window)  # of its own folder
    frames = window.page.frames[1:]
    assert len(frames) > len(OUTSIDE)
    assert {frame.url for frame in frames} <= {"", "about:blank"}  # listings, too, whatever they look like


def test_a_page_outside_of_the_folder_is_not_opened(chromium, folders):
    own, other = folders
    for path in (other / "a.html", own / "link.html", own / "outside" / "a.html"):
        with pytest.raises(chromium.error):
            window_of(chromium, 1.0).open(path, LOOK, own)


@pytest.mark.slow
def test_a_page_stays_where_it_was_opened(chromium, folders):
    own, _ = folders
    (own / "page.html").write_text('<meta http-equiv="refresh" content="0;url=a.html"><p>printed</p>')
    window = window_of(chromium, 1.0)
    window.open(own / "page.html", LOOK, own)
    window.page.wait_for_timeout(60)
    assert {word.text for word in window.scroll(random.Random(0), LOOK).words} == {"printed"}


def test_what_is_inside_of_a_folder(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    odd = own / "a b%2F#ü.svg"
    odd.write_text("")
    os.mkfifo(own / "pipe")
    (own / "loop").symlink_to(own / "loop")
    plain = own / "a.svg"
    plain.write_text("")
    assert inside(plain.as_uri(), own)
    assert inside(f"{plain.as_uri()}?query#part", own)
    assert inside(odd.as_uri(), own)
    (tmp_path / "entry").symlink_to(own)
    assert inside(plain.as_uri(), tmp_path / "entry")
    for name in ("pipe", "loop", "missing", "", "%00", "a%2fb"):
        assert not inside(f"{own.as_uri()}/{name}", own)
    for url in (
        "http://a/b",
        "file://host/a",
        "ftp://a",
        "chrome://version",
        "file:",
        "",
        "data:,",
        "file://[",
    ):
        assert not inside(url, own)
