"""README.md and the pages of docs/, typed from top to bottom: every block runs as it is written.

The Hub is a stand-in on 127.0.0.1 with small models under the names of checkpoints. Lines get options behind
them that only make them small. What needs another environment (Docker, vLLM, lmms-eval) is read here and run
by the tests that are named in `ELSEWHERE`.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

import arr_coc
from arr_coc.app import build_app
from arr_coc.files.saved import BUNDLED
from arr_coc_lab.world import draw_page
from clip_models import frame
from command_line import run
from retrievers import colmodernvbert
from stand_in import TOKEN, Hub, serve
from tiny import save_tiny

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = (
    "README.md",
    "skills/arr-coc/SKILL.md",
    *(
        f"docs/{name}.md"
        for name in (
            *"quickstart modes models guide relevance keep-list pixels video app serving scale".split(),
            *"training evaluation".split(),
        )
    ),
)
ADDRESS = "http://127.0.0.1:7860"
SMALLER: dict[str, tuple[str, ...]] = {
    "draw": ("--size", "320x320"),
    "bench": ("--size", "128", "--rounds", "1", "--modes", "stock,sparse@4"),
    "eval --questions": (
        "--size",
        "320",
        "--questions",
        "2",
        "--timed",
        "0",
        "--methods",
        "full,arr-coc,random",
    ),
    "eval": ("--size", "320", "--questions", "2", "--timed", "0", "--budgets", "9"),
    "train distill": ("steps=1", "questions=1", "sizes=128"),
    "train partial": ("steps=1", "questions=1", "sizes=128"),
    "adapt": ("--steps", "1", "--recipes", "distill"),
}
"""What makes a command quick: options behind those of the page, which replace them."""
ELSEWHERE = {
    "OpenAI(": "integrations/vllm/tests/test_server.py",
    "client.chat.completions": "integrations/vllm/tests/test_server.py",
    "choose_corpus(": "tests/lab/integrations/test_corpus_actors.py",
    "BitsAndBytesConfig(" if not find_spec("bitsandbytes") else "-": "tests/seam/test_seam_bases.py",
}
"""What a Python block holds that can't run here, and the file whose tests run it."""


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    text: str


def blocks(name: str) -> list[Block]:
    """The blocks of a page in their order."""
    page = (ROOT / name).read_text(encoding="utf-8")
    return [
        Block(page[: match.start()].count("\n") + 1, match[1], match[2])
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", page, re.S | re.M)
    ]


def commands(block: Block) -> list[str]:
    """The lines of a block that is typed into a terminal, without remarks."""
    if block.language not in ("", "bash") or not re.match(rf"({'|'.join(RUNNERS)}) ", block.text):
        return []
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].strip() for line in lines if not line.startswith("#")]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The Hub, and a current folder with the picture of the README."""
    folder = tmp_path / "here"
    (folder / "docs").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "order.png", folder / "docs")
    monkeypatch.chdir(folder)
    with serve(monkeypatch, tmp_path / "cache") as hub:
        hub.add_folder("Qwen/Qwen3-VL-2B-Instruct", BUNDLED / "model")
        save_tiny("llava", tmp_path / "llava")
        hub.add_folder("llava-hf/llava-1.5-7b-hf", tmp_path / "llava")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            for part in colmodernvbert():
                part.save_pretrained(tmp_path / "retriever")
        hub.add_folder("ModernVBERT/colmodernvbert-merged", tmp_path / "retriever")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


def furnish(name: str) -> None:
    """Write the files that a page of docs/ speaks of and doesn't make itself."""
    draw_page(0, (320, 320), "test").image.save("page.png")
    text = (ROOT / name).read_text(encoding="utf-8")
    if "arr-coc draw" not in text:
        Path("pages").mkdir()
        lines = []
        for seed in range(4):
            page = draw_page(seed, (320, 320), "test")
            page.image.save(f"pages/page-{seed:04}.png")
            lines += [
                {"image": f"page-{seed:04}.png", "question": question.text, "answer": question.answer}
                for question in page.questions[:2]
            ]
        Path("pages/questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        shutil.copytree("pages", "mine")
    if "clip.mp4" in text:
        write_clip(Path("clip.mp4"))
    for path in set(re.findall(r"runs/results/[\w-]+\.jsonl\.gz", text)):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, path)


def write_clip(path: Path) -> None:
    """A video of 24 seconds, two frames a second."""
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=2)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        for number in range(48):
            picture = np.asarray(frame(number // 4, (128, 96)))
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_as_it_is_written(
    name: str, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gradio")
    if name != "README.md":
        furnish(name)
    served: list[Any] = []
    monkeypatch.setattr("arr_coc.app.server.serve_app", lambda build, *_, **__: served.append(build()))
    if "results=[" in (ROOT / name).read_text(encoding="utf-8"):
        run_arr_coc("arr-coc eval --questions 2", capsys, monkeypatch)
    names: dict[str, Any] = {}
    ran: list[str] = []
    for block in blocks(name):
        if ADDRESS in block.text and not commands(block):
            ask_the_app(block)
        elif block.language == "python":
            test = next((file for sign, file in ELSEWHERE.items() if sign in block.text), None)
            if test:
                assert (ROOT / test).is_file()
            else:
                exec(compile(block.text, f"{name}:{block.line}", "exec"), names)  # as a reader would
        for line in commands(block):
            RUNNERS[shlex.split(line)[0]](line, capsys, monkeypatch)
            ran.append(line)
    assert len(served) == sum(line.startswith("arr-coc app") for line in ran)
    if name == "docs/quickstart.md":
        assert Path("relevance.png").is_file()
        assert Path("titles.jsonl").read_text().count("\n") == 4
    if name == "docs/relevance.md":
        assert sum(names["counts"]) == names["answer"].kept == 32
        assert min(names["counts"][:2]) > names["counts"][2]  # the first two show what is asked for
        assert len(names["store"]) == 12
    if name in ("docs/quickstart.md", "docs/guide.md"):
        kept, page, masked = names["kept"], names["page"], Image.open("masked.png")
        box = kept.boxes(page.size).tolist()[0]
        assert masked.crop(box).tobytes() == page.crop(box).tobytes()


def test_every_page_with_blocks_is_run() -> None:
    """But `extending.md`, `any-model.md` and `mlx.md`, which tests of their own follow."""
    for path in [README, *(ROOT / "docs").rglob("*.md")]:
        name = path.relative_to(ROOT).as_posix()
        if name not in (*PAGES, "docs/extending.md", "docs/any-model.md", "docs/mlx.md"):
            assert not [block for block in blocks(name) if block.language == "python" or commands(block)], (
                name
            )


def run_arr_coc(line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of ours, with its redirections."""
    line, _, target = line.partition(" > ")
    line, _, source = line.partition(" < ")
    words = shlex.split(line)[1:]
    small = next((more for start, more in SMALLER.items() if " ".join(words).startswith(start)), ())
    if source:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(source.strip()).read_bytes())))
    code, out, err = run(capsys, *words, *small)
    assert code == 0, f"{line}: {err}"
    if target:
        Path(target.strip()).write_text(out)
    if "--out" in words and words[0] == "ask":
        Image.open(words[words.index("--out") + 1]).verify()


def ask_the_app(block: Block) -> None:
    """A block that talks to the app, which runs meanwhile, at a port that is free."""
    app = build_app()
    _, address, _ = app.launch(server_name="127.0.0.1", prevent_thread_lock=True, quiet=True)
    try:
        text = block.text.replace(ADDRESS, address.rstrip("/"))
        command = [sys.executable, "-c", f"{text}\nprint('done')"] if block.language else ["bash", "-c", text]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        assert "done" in ended.stdout if block.language else '"answer"' in ended.stdout, ended.stderr
    finally:
        app.close(verbose=False)


def check_make(line: str, *_: object) -> None:
    """A target that the Makefile has, or a variable that can be set."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in shlex.split(line)[1:]:
        name, sign, _ = word.partition("=")
        assert re.search(rf"^{name} \?=" if sign else rf"^{word}:", makefile, re.M), line


def check_activation(line: str, *_: object) -> None:
    """The environment that the Makefile makes."""
    folder = line.removeprefix("source ").removesuffix("/bin/activate")
    assert f"VENV ?= {folder}\n" in (ROOT / "Makefile").read_text(encoding="utf-8"), line


def check_install(line: str, *_: object) -> None:
    """Extras that the package has."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for names in re.findall(r"'\.\[(.+?)\]'", line):
        assert set(names.split(",")) <= set(extras), line


def fetch_trace(line: str, *_: object) -> None:
    """A route of a vLLM server (run by `integrations/vllm/tests`); here the sample of the app answers."""
    words = shlex.split(line)
    if "-o" in words:
        shutil.copy(ROOT / "src" / "arr_coc" / "app" / "sample.safetensors", words[words.index("-o") + 1])


def check_clone(line: str, *_: object) -> None:
    """A clone without old weights."""
    assert "--depth 1" in line or "github.com/open-compass" in line


def check_docker(line: str, *_: object) -> None:
    """What `.github/workflows/release.yml` builds and runs."""
    assert (ROOT / "Dockerfile").is_file()
    assert line.split()[1] in ("build", "run")


def check_vllm(line: str, *_: object) -> None:
    """An architecture that the plugin has, and settings as JSON."""
    words = shlex.split(line)
    overrides = json.loads(words[words.index("--hf-overrides") + 1])
    plugin = (ROOT / "integrations" / "vllm" / "src" / "arr_coc_vllm" / "__init__.py").read_text("utf-8")
    assert all(f'"{name}"' in plugin for name in overrides["architectures"])


def check_lmms(line: str, *_: object) -> None:
    """A run that `make test-lmms` makes."""
    assert (ROOT / "tests" / "lab" / "integrations" / "test_lmms.py").is_file()
    check_module(line)


def check_module(line: str, *_: object) -> None:
    """A module of ours behind -m, or lmms-eval."""
    words = shlex.split(line)
    module = words[words.index("-m") + 1]
    assert module == "lmms_eval" or find_spec(module), line


RUNNERS: dict[str, Callable[..., None]] = {
    "arr-coc": run_arr_coc,
    "make": check_make,
    "pip": check_install,
    "python3": check_install,
    "git": check_clone,
    "source": check_activation,
    "docker": check_docker,
    "vllm": check_vllm,
    "lmms/bin/python": check_lmms,
    "python": check_module,
    "curl": fetch_trace,
}


def test_every_link_leads_somewhere() -> None:
    """Of the pages that no site checks, and of README.md into docs/."""
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "lab/README.md"):
        page = (ROOT / name).read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)#]*)(?:#[^)]*)?\)", page):
            assert not target or (ROOT / name).parent.joinpath(target).exists(), f"{name}: {target}"
        for file, anchor in re.findall(r"\]\(([^):]*)#([^)]+)\)", page):
            text = (ROOT / name).parent.joinpath(file).read_text(encoding="utf-8") if file else page
            anchors = {
                re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
                for head in re.findall(r"^#+ (.+)$", text, re.M)
            }
            assert anchor in anchors, f"{name}: #{anchor}"


def test_every_term_is_explained_where_it_first_occurs() -> None:
    for name, terms in (
        ("README.md", ("cell", "budget", "mode", "guide")),
        ("docs/index.md", ("information", "saliency", "coupling", "stem", "guide", "gestalt", "saccades")),
    ):
        page = (ROOT / name).read_text(encoding="utf-8")
        for term in terms:
            assert re.search(rf"\*{term}\*", page), f"{term} is not set off where {name} explains it"


def test_the_readme_is_short_and_begins_with_how_to_run_it() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 140
    first = blocks("README.md")[0]
    assert first.line < 20
    assert [line for line in commands(first) if line.startswith("make")] == [
        "make app TORCH=cpu",
        "make test",
    ]
    assert lines.index("```python") < 40


def test_the_readme_names_every_room() -> None:
    table = README.read_text(encoding="utf-8").partition("## The code")[2]
    rooms = {
        path.name for path in (ROOT / "src" / "arr_coc").iterdir() if not path.name.startswith(("_", "."))
    }
    assert rooms - {"py.typed"} <= set(re.findall(r"`([\w.]+)`", table))


def test_the_readme_names_the_test_command_that_ci_runs() -> None:
    """And says what installing costs before it happens, as `make` does."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    ran = re.findall(r"^make (.+)$", script, re.M)[-1].split()
    named = {target for block in blocks("README.md") for line in commands(block)
             if line.startswith("make ") for target in line.split()[1:]}  # fmt: skip
    assert "test" in named & set(ran)
    readme, makefile = README.read_text(encoding="utf-8"), (ROOT / "Makefile").read_text(encoding="utf-8")
    notice = re.search(r"^NOTICE = @echo '(.+)'$", makefile, re.M)
    assert notice
    for said in ("some six minutes and 6 GB", "1.8", "TORCH=cpu"):
        assert said in readme
        assert said in notice[1]
    for stamp in ("installed", "installed-app", "installed-dev"):
        recipe = re.search(rf"^\$\(VENV\)/{stamp}:.*\n\t(.+)", makefile, re.M)
        assert recipe
        assert recipe[1] == "$(NOTICE)"


def test_its_names_are_those_of_the_package() -> None:
    for name in PAGES:
        page = (ROOT / name).read_text(encoding="utf-8")
        for imported in re.findall(r"^from arr_coc import ([\w, ]+)$", page, re.M):
            assert set(imported.split(", ")) <= set(arr_coc.__all__), name
