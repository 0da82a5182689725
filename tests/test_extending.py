"""docs/extending.md, followed to the letter: its files are written, its lines are run.

Every block that begins with `# my_....py` is written to a folder of its own, every other Python block is
executed there, and every `arr-coc` line is run as it stands, with options behind it that only make it small.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

import arr_coc
from arr_coc import ARRCOCModel
from arr_coc.choose.boxes import box_cells
from arr_coc.choose.channels import CHANNEL_GROUPS
from arr_coc.cli import commands, register_command
from arr_coc.families import FAMILIES, GenericAdapter, Qwen3VLAdapter, register_family
from arr_coc.files.plugins import plugins
from arr_coc.modes import MODES, PRUNE, register_mode
from arr_coc.relevance import names as sources
from arr_coc.relevance import sums
from arr_coc.seam import FamilyAdapter
from arr_coc.trace.observe import observe
from arr_coc_lab.evaluate.ways import rivals_on_stock
from arr_coc_lab.rivals import METHODS
from arr_coc_lab.world import draw_page
from arr_coc_lab.world.browser import types
from arr_coc_lab.world.browser.chromium import NAMES
from arr_coc_lab.world.browser.page import write_page
from command_line import run, run_json
from house import LAB, WHEEL, tree
from near import near
from tiny import picture, some_cells, tiny

pytestmark = pytest.mark.slow

Capture = pytest.CaptureFixture[str]
REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "extending.md"
ROOT = Path(arr_coc.__file__).parents[1]
PLACES = (WHEEL, LAB, REPOSITORY)
"""Folders below which the files that the page names lie."""


class Section(NamedTuple):
    """What a section of the page has the reader do."""

    files: dict[str, str]
    python: list[str]
    lines: list[list[str]]


@cache
def sections() -> dict[str, Section]:
    """The sections of the page by title."""
    made = {}
    for text in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]:
        section = Section({}, [], [])
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.M | re.S):
            name = re.match(r"# (\w+)\.py\n", block)
            if language != "python":
                words = [shlex.split(line) for line in block.splitlines()]
                assert all(line[0] == "arr-coc" for line in words)
                section.lines.extend(line[1:] for line in words)
            elif name:
                section.files[name[1]] = block
            else:
                section.python.append(block)
        made[text.partition("\n")[0]] = section
    return made


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with page.png; what is registered and imported in the test is gone after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    draw_page(0, (320, 320), "test").image.save("page.png")
    tables: list[dict[str, Any]] = [
        CHANNEL_GROUPS,
        METHODS,
        FAMILIES,
        MODES,
        types._TYPES,
        sources._registered,
    ]
    before, typed = [dict(table) for table in tables], list(commands.registered_commands)
    yield tmp_path
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)
    commands.registered_commands[:] = typed
    for name in [name for section in sections().values() for name in section.files]:
        sys.modules.pop(name, None)


def write(title: str) -> Section:
    """Write the one file of a section to the current folder."""
    section = sections()[title]
    ((name, text),) = section.files.items()
    Path(f"{name}.py").write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    return section


def without_import(line: list[str]) -> list[str]:
    assert line[0] == "--import"
    return line[2:]


def test_the_page_has_a_file_and_a_line_for_each() -> None:
    titles = ("texture channel", "rival", "family", "mode", "source of relevance", "command")
    assert list(sections())[: len(titles)] == [f"A {title}" for title in titles]
    for title in list(sections())[: len(titles)]:
        section = sections()[title]
        ((name, text),) = section.files.items()
        assert len(re.findall(r"^register\w*\(", text, flags=re.M)) == 1
        assert section.lines
        assert all(line[:2] == ["--import", name] or f"imports={name}" in line for line in section.lines)


# ---- names on the page -----------------------------------------------------------------------------------


def prose() -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)


def five_changes() -> str:
    """The text of the section on changes of arr-coc itself."""
    return prose().partition("## Five changes, and the files they touch\n")[2]


def file_of(path: str) -> Path:
    """A file or folder that the page names."""
    return next(place / path for place in PLACES if (place / path).exists())


def definitions(path: Path) -> set[str]:
    """The names that a file defines, and those in its classes as `Class.name`."""
    names = set()

    def add(body: list[ast.stmt], prefix: str = "") -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                add(node.body, f"{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names.update(prefix + target.id for target in targets if isinstance(target, ast.Name))

    add(tree(path).body)
    return names


def test_files_that_are_named_exist() -> None:
    spans = re.findall(r"`(?:python )?([\w./]+/[\w./]*\w)`(?! \(new\))", prose())
    assert len(set(spans)) > 20
    lacking = [
        span for span in spans if span != "rivals/yours.py" and not any((p / span).exists() for p in PLACES)
    ]
    assert not lacking
    for name in ("document.js", "icon_names.txt"):
        assert f"`{name}`" in prose()
        assert list(LAB.rglob(name))


def test_modules_that_are_named_exist() -> None:
    rooms = "|".join(sorted(path.name for path in WHEEL.iterdir() if (path / "__init__.py").is_file()))
    names = re.findall(rf"`((?:{rooms})\.\w+(?:\.\w+)*)`", prose())
    assert len(names) > 5
    for name in names:
        module, _, last = f"arr_coc.{name}".rpartition(".")
        assert hasattr(importlib.import_module(module), last) or importlib.import_module(f"arr_coc.{name}")


def test_the_five_changes_name_their_files() -> None:
    rows = re.findall(r"^\| (an? .*?|how .*?) \| (.*?) \| (\d) \|$", five_changes(), flags=re.M)
    assert [int(count) for *_, count in rows] == [4, 2, 2, 1, 3]
    for change, files, count in rows:
        named = re.findall(r"`([\w/]+\.py)`( \(new\))?", files)
        assert len({path for path, _ in named}) == int(count)
        for path, new in named:
            assert any((place / path).is_file() for place in PLACES) != bool(new), path
        (text,) = re.findall(
            rf"^\*\*{re.escape(change)}\.\*\*(.*?)\n$", five_changes() + "\n", re.M | re.S | re.I
        )
        assert all(f"`{path}`" in text for path, _ in named), change


def test_the_five_changes_name_what_is_there() -> None:
    places = re.findall(r"`([\w/]+\.py)`\s\(((?:`[\w.]+`(?:,\s)?)+)\)", five_changes())
    assert len(places) > 15
    for path, listed in places:
        names = set(re.findall(r"`([\w.]+)`", listed))
        assert names <= definitions(file_of(path)), (path, names)


def test_every_room_is_on_the_page_of_the_architecture() -> None:
    rows = re.findall(
        r"^\| (`.*?`) \| ", (PAGE.parent / "architecture.md").read_text(encoding="utf-8"), flags=re.M
    )
    named = set(re.findall(r"`([\w.]+)/?`", " ".join(rows)))
    for package in (WHEEL, LAB):
        parts = {path.name for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
        assert parts - named <= {"__init__.py", "__main__.py", "__pycache__", "extras.py"}, package


# ---- a texture channel ------------------------------------------------------------------------------------


def test_channel_in_python() -> None:
    section, made = write("A texture channel"), tiny("qwen3_vl")
    names: dict[str, Any] = {"base": made.model, "processor": made.processor}
    for block in section.python:
        exec(block, names)
    image = picture(1, (64, 48))  # 6x8 cells
    image.paste((128, 128, 128), (0, 0, 64, 48))
    image.paste((230, 128, 26), (40, 16, 48, 24))
    session = names["model"].session(image)
    answer = session.ask("What is it?", budget=5, max_new_tokens=2)
    assert (answer.kept, answer.fallback) == (5, False)
    assert answer.allocation.perspectival.argmax() == 2 * 8 + 5  # the warm cell stands out
    trace = observe(session, "What is it?", budget=5, max_new_tokens=2)
    assert trace.channels[-1] == "warmth.0"
    warmth = trace.texture[-1]
    assert warmth.argmax() == 2 * 8 + 5
    assert warmth.max() == pytest.approx(0.8, abs=0.02)


def test_channel_on_the_command_line(capsys: Capture) -> None:
    train, ask = write("A texture channel").lines
    small = (
        "steps=1",
        "sizes=128",
        "questions=1",
    )
    code, out, err = run(capsys, *train, *small, "--json")
    assert code == 0, err
    assert json.loads(out)["folder"] == "my-allocator"
    config = json.loads(Path("my-allocator/arr_coc_config.json").read_text())
    assert "warmth" in json.dumps(config)
    del CHANNEL_GROUPS["warmth"], sys.modules["my_channel"]  # as in another process
    code, out, err = run(capsys, *without_import(ask), "--strict", "--json")
    assert (code, out) == (2, "")
    assert "warmth" in err
    answer = run_json(capsys, *ask, "--strict")
    assert (answer["kept"], answer["fallback"]) == (64, False)


# ---- a rival ----------------------------------------------------------------------------------------------


def test_rival(capsys: Capture) -> None:
    line, bench = write("A rival").lines
    code, out, err = run(capsys, *without_import(line), "--json")
    assert (code, out) == (2, "")
    assert "method 'longest' is unknown" in err
    small = ("--questions", "3", "--size", "320", "--timed", "0")
    code, out, err = run(capsys, *line, *small)
    assert code == 0, err
    rows = [row.split(" | ")[0].strip("| *") for row in out.splitlines() if row.startswith("|")]
    assert rows[-3:] == ["full", "arr-coc@64", "longest@64"]  # in the order of kinds
    summary = json.loads(Path("arr-coc-eval.json").read_text())
    assert summary["methods"]["longest@64"]["tokens"] == 64
    assert summary["header"]["kinds"]["longest"] == "null"
    assert Path("arr-coc-eval.png").is_file()
    record = json.loads(Path("arr-coc-eval.jsonl").read_text().splitlines()[1])
    assert record["kept"]["longest@64"] != record["kept"]["arr-coc@64"]
    assert "longest" in rivals_on_stock()
    facts = run_json(capsys, *bench, "--size", "320", "--rounds", "1")
    assert [(row["mode"], row["tokens"]) for row in facts["rows"]][1:] == [
        ("prune@64", 64),
        ("longest@64", 64),
    ]


# ---- a family ---------------------------------------------------------------------------------------------


def videollama() -> tuple[Any, Any]:
    """A tiny random VideoLLaMA 3 and its processor; a cell is 4 px."""
    built = tiny("video_llama_3")
    return built.model, built.processor


def test_family_in_python() -> None:
    model, processor = videollama()
    assert type(ARRCOCModel.wrap(model, processor).adapter) is GenericAdapter
    write("A family")
    importlib.import_module("my_family")
    wrapped = ARRCOCModel.wrap(model, processor, strict=True)
    assert type(wrapped.adapter).__name__ == "VideoLlama3Adapter"
    image = picture(1, (32, 24))  # 6x8 cells
    inputs = wrapped.session(image).inputs("What is it?")
    stock = model(**inputs).logits
    assert torch.equal(wrapped(**inputs, budget=1.0).logits, stock)
    assert torch.equal(wrapped(**inputs, mode="full").logits, stock)

    keep = some_cells(48, 9)
    compacted = wrapped.adapter.compact(inputs, wrapped.adapter.features(inputs), [keep])
    dropped, columns = model(**compacted.kwargs).logits, compacted.columns[0]
    ((row, cells),) = wrapped.adapter.columns(inputs["input_ids"], [48])
    mask = inputs["attention_mask"].clone()
    mask[row, cells] = 0
    mask[row, cells[keep]] = 1
    positions = torch.arange(mask.shape[1])[None]
    masked = model(**inputs | {"attention_mask": mask, "position_ids": positions}).logits[:, columns]
    assert near(dropped, masked)
    assert (dropped - stock[:, columns]).abs().max() > 0.1  # and the others did matter

    (pixels,) = wrapped.adapter.images(inputs)
    assert pixels.shape == (3, 24, 32)
    expected = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1) / 255
    assert torch.allclose(pixels, expected, atol=0.01)


def test_family_in_every_mode() -> None:
    write("A family")
    importlib.import_module("my_family")
    model, processor = videollama()
    session = ARRCOCModel.wrap(model, processor, strict=True).session(picture(1, (64, 48)))
    for mode, definition in MODES.items():
        answer = session.ask("What is it?", mode=mode, budget=9, max_new_tokens=2)
        ran = definition.instead if definition.before_encoder and mode != "compress" else mode
        assert (answer.mode, answer.fallback) == (ran, False)
        assert ("ran as" in (answer.note or "")) == (ran != mode)


def test_family_on_the_command_line(capsys: Capture) -> None:
    (line,) = write("A family").lines
    place = Path(line[line.index("--model") + 1])  # a folder goes before a name of the Hub
    model, processor = videollama()
    model.save_pretrained(place)
    processor.save_pretrained(place)
    code, out, err = run(capsys, *line, "--strict", "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert (answer["kept"], answer["total"], answer["mode"]) == (64, 144, "prune")
    info = run_json(capsys, *line[:2], "info", "--model", str(place))
    assert "video_llama_3" in {family["model_type"] for family in info["families"]}

    names = "full,arr-coc,arr-coc sparse,divprune,visionzip,fastv,downsample,coc pool4"
    small = ("--methods", names, "--budgets", "9", "--questions", "2", "--size", "96", "--timed", "0")
    code, out, err = run(capsys, *line[:2], "eval", "--model", str(place), *small, "--json")
    assert code == 0, err
    summary = json.loads(out)
    assert set(summary["methods"]) == {"full", "arr-coc@9", "coc pool4", "divprune@9"}
    notes = summary["header"]["notes"]
    assert set(notes) == {"arr-coc sparse", "visionzip", "fastv", "downsample"}
    assert all("video_llama_3" in note for note in notes.values())


def test_family_that_lies_as_another() -> None:
    (sentence,) = re.findall(
        r"`(register_family\(Qwen3VLAdapter, [^`]*\))`", PAGE.read_text(encoding="utf-8")
    )
    exec(sentence, {"register_family": register_family, "Qwen3VLAdapter": Qwen3VLAdapter})
    assert FAMILIES["my_vl"].adapter is Qwen3VLAdapter
    model = tiny("qwen3_vl_moe").model
    wrapped = ARRCOCModel.wrap(model, tiny("qwen3_vl_moe").processor, strict=True)
    session = wrapped.session(picture(1, (64, 48)))
    inputs = session.inputs("What is it?")
    assert torch.equal(wrapped(**inputs, budget=1.0).logits, model(**inputs).logits)
    assert session.ask("What is it?", mode="sparse", budget=9, max_new_tokens=2).mode == "sparse"


def test_what_is_no_family_is_refused() -> None:
    class Half(FamilyAdapter):
        pass

    class Other(Qwen3VLAdapter):
        pass

    with pytest.raises(ValueError, match="Half says nothing of cell_layout, patches"):
        register_family(Half, "half")
    with pytest.raises(ValueError, match="'qwen3_vl' is served by Qwen3VLAdapter already"):
        register_family(Other, "qwen3_vl")
    with pytest.raises(ValueError, match=r"Other is registered for \(\): name at least one model type"):
        register_family(Other)
    with pytest.raises(ValueError, match="Other has no 'clip': see the attributes of FamilyAdapter"):
        register_family(Other, "other", clip=True)
    register_family(Qwen3VLAdapter, "qwen3_vl")  # again changes nothing
    assert FAMILIES["qwen3_vl"].title == "Qwen3-VL"
    assert not {"half", "other"} & FAMILIES.keys()


# ---- a mode -----------------------------------------------------------------------------------------------


def nearest_the_middle(keep: list[int], h: int, w: int) -> bool:
    """Whether no cell outside is nearer than one of those kept."""
    y, x = torch.linspace(-1, 1, h)[:, None], torch.linspace(-1, 1, w)
    far = (y**2 + x**2).flatten()
    outside = torch.ones(h * w, dtype=torch.bool)
    outside[keep] = False
    return bool(far[keep].max() <= far[outside].min() + 1e-6)


def test_mode_in_python() -> None:
    write("A mode")
    importlib.import_module("my_mode")
    made = tiny("qwen3_vl")
    model = ARRCOCModel.wrap(made.model, made.processor, mode="centre", strict=True)
    session = model.session(picture(1, (64, 48)))
    answer = session.ask("What is it?", budget=9, max_new_tokens=2)
    assert (answer.mode, answer.kept, answer.read) == ("centre", 9, 9)
    assert nearest_the_middle(answer.allocation.keep.tolist(), 6, 8)
    assert answer.allocation.reason_text(0).endswith("<= K 9")
    assert 1 <= session.ask("What is it?", budget="auto", max_new_tokens=2).kept <= 48
    inputs = session.inputs("What is it?")
    out = model.generate(**inputs, budget=9, max_new_tokens=2, do_sample=False, return_allocation=True)
    assert (out.mode, out.allocations[0].kept) == ("centre", 9)
    assert torch.equal(out.allocations[0].keep, answer.allocation.keep)
    with pytest.raises(ValueError, match="mode 'centre' is registered already"):
        register_mode(dataclasses.replace(PRUNE, name="centre"))
    with pytest.raises(ValueError, match="mode name ' ' is empty or padded"):
        register_mode(dataclasses.replace(PRUNE, name=" "))


def test_mode_on_the_command_line(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, look = write("A mode").lines
    code, out, err = run(capsys, *without_import(ask), "--json")
    assert (code, out) == (2, "")
    assert "'--mode': 'centre' is unknown" in err
    answer = run_json(capsys, *ask)
    assert (answer["mode"], answer["kept"], answer["note"]) == ("centre", 64, None)
    record = run_json(capsys, *look)
    assert nearest_the_middle(record["keep"], *record["grid"][1:])
    monkeypatch.setenv("COLUMNS", "600")
    code, out, _ = run(capsys, *ask[:2], "ask", "--help")
    assert code == 0
    assert "centre: the middle" in out
    assert "centre: the middle." in out


# ---- a source of relevance --------------------------------------------------------------------------------


STAMP = (200, 120, 264, 184)
"""In px of a page of 320 x 320: four cells."""


def stamped() -> None:
    """A red stamp on page.png."""
    page = Image.open("page.png").convert("RGB")
    page.paste((250, 5, 5), STAMP)
    page.save("page.png")


def test_the_source_is_short() -> None:
    (text,) = sections()["A source of relevance"].files.values()
    assert len([line for line in text.splitlines() if line.strip()]) <= 30


def test_source_in_python() -> None:
    section = write("A source of relevance")
    stamped()
    names: dict[str, Any] = {}
    for block in section.python:
        exec(block, names)  # checks the laws, too
    decision = names["Selector"](relevance="my-source").decide(
        "page.png", "Where is the red stamp?", 4, (10, 10)
    )
    cells = box_cells(STAMP, (10, 10), (320, 320)).flatten()
    assert bool(cells[decision.allocations[0].keep].all())
    with pytest.raises(ValueError, match="relevance 'my-source' is taken"):
        sums.register_relevance("my-source", names["my_source"].ColourSource)


def test_source_on_the_command_line(capsys: Capture) -> None:
    look, ask = write("A source of relevance").lines
    stamped()
    code, out, err = run(capsys, *without_import(look))
    assert (code, out) == (2, "")
    assert "relevance 'my-source' is unknown; use one of " in err
    cells = box_cells(STAMP, (10, 10), (320, 320)).flatten()
    facts = run_json(capsys, *look, "--budget", "4")
    assert facts["coupling"]["confidence"] == pytest.approx(0.9)
    assert len(facts["keep"]) == 4
    assert bool(cells[torch.tensor(facts["keep"])].all())
    answer = run_json(capsys, *ask, "--strict")
    assert (answer["kept"], answer["fallback"]) == (64, False)


def test_source_as_an_entry_point(folder: Path, capsys: Capture) -> None:
    section = write("A source of relevance")
    path = Path("my_source.py")
    text = re.sub(r"^register_relevance.*\n", "", path.read_text(), flags=re.M)
    path.write_text(text + "def open_source(argument):\n    return ColourSource()\n")
    (group,) = re.findall(r"group `(arr_coc\.\w+)`", prose())
    (line,) = re.findall(r"`(my-source = \"[\w.:]+\")`", prose())
    info = folder / "my_source-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-source\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{line.replace(chr(34), '')}\n")
    stamped()
    plugins.cache_clear()
    try:
        code, _, err = run(capsys, *without_import(section.lines[0]))
    finally:
        plugins.cache_clear()
    assert code == 0, err


# ---- a command --------------------------------------------------------------------------------------------


def test_command(capsys: Capture) -> None:
    (line,) = write("A command").lines
    code, out, err = run(capsys, *without_import(line))
    assert (code, out) == (2, "")
    assert "No such command 'point'" in err
    place = run_json(capsys, *line)
    best = ARRCOCModel.from_pretrained().look("page.png", "What is the total?", budget=1)
    assert [place["row"], place["column"]] == best.positions[0, 1:].tolist()
    code, out, err = run(capsys, *line)
    assert (code, err) == (0, "")
    assert out.split() == ["row", str(place["row"]), "column", str(place["column"])]
    code, out, _ = run(capsys, *line[:2], "--help")
    assert code == 0
    assert "Say where the cell is that matters most to a question." in out
    assert run(capsys, *line[:3], "--help")[0] == 0


@pytest.mark.parametrize("name", ["ask", "", "-x", "a b"])
def test_command_names_that_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"command (name )?{name!r} is "):
        register_command(name, lambda: None)


def test_help_needs_no_torch() -> None:
    """Also with a command of one's own in it."""
    write("A command")
    code = (
        "import sys\nfrom arr_coc.cli import main\nmain(['--import', 'my_command', '--help'])\n"
        "heavy = {'torch', 'transformers', 'numpy'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert "point" in done.stdout


# ---- a page type ------------------------------------------------------------------------------------------


def test_page_type() -> None:
    write("A page type")
    importlib.import_module("my_page")
    html, sheet, name = write_page(3, "train", "luggage-tag")
    assert (html, name) == (write_page(3, "train", "luggage-tag")[0], "luggage-tag")
    assert {"title", "value"} <= {inquiry.kind for inquiry in sheet.inquiries}
    assert all(inquiry.pieces for inquiry in sheet.inquiries)


@pytest.mark.skipif(not any(map(shutil.which, NAMES)), reason="no browser")
def test_page_type_on_the_command_line(capsys: Capture) -> None:
    (line,) = write("A page type").lines
    result = run_json(capsys, *line, "--processes", "1")
    assert (result["rendered"], result["failed"]) == (4, 0)
    assert Path(result["picture"]).is_file()


def python(code: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{code}"]
    return subprocess.run(line, capture_output=True, text=True, check=False)


# ---- without a model --------------------------------------------------------------------------------------


def test_choosing_without_a_model() -> None:
    (block,) = sections()["Choosing without a vision-language model"].python
    model = ARRCOCModel.from_pretrained(relevance="guide")
    look = model.look("page.png", "What is the total?", budget=64, mode="sparse")
    done = python(
        "from arr_coc.relevance import sums\nsums.ocr_installed = lambda: False\n"
        f"{block}\nprint(allocation.keep.tolist())\n"
        "heavy = {'transformers', 'peft'} & set(sys.modules)\nassert not heavy, heavy"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == look.keep.tolist()
