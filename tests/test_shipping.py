"""What is released: metadata, archives, workflow, images, documentation and notebook fit the package.

What needs tools of the extra `ship` (linting the workflow and the Dockerfiles) is skipped without them; the
release workflow has them. Images are built where a Docker daemon answers: `-m slow`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from huggingface_hub import DatasetCard, ModelCard
from packaging.requirements import Requirement
from packaging.version import Version

import arr_coc
from arr_coc.files.saved import BUNDLED
from arr_coc.guide.guide import load_guide
from arr_coc_lab.pictures.labels import manifest

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"
DOCKERFILES = [ROOT / "Dockerfile", ROOT / "integrations" / "vllm" / "Dockerfile"]
PLUGINS = (ROOT / "lab", *sorted(one.parent for one in (ROOT / "integrations").glob("*/pyproject.toml")))
PROJECTS = [ROOT / "pyproject.toml", *(folder / "pyproject.toml" for folder in PLUGINS)]
INSTALLED = ROOT / "bench" / "results" / "install.json"
BASE_MB = 250  # room for python:3.12-slim, which was never unpacked here
TOOLS = Path(sys.executable).parent
CARDS = sorted(path for part in ("src", "lab/src") for path in (ROOT / part).rglob("README.md"))


def project(path: Path = ROOT / "pyproject.toml") -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))["project"]


def tool(name: str, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A tool of this environment, run in the root; the test is skipped where it isn't installed."""
    path = TOOLS / name
    if not path.is_file():
        pytest.skip(f"{name} is not installed: pip install -e '.[dev,ship]'")
    command = [str(path), *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | environment, check=False
    )


class TestVersions:
    @pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
    def test_all_distributions_have_one(self, path: Path) -> None:
        assert project(path)["version"] == arr_coc.__version__

    def test_it_is_cited(self) -> None:
        citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
        assert citation["version"] == arr_coc.__version__
        assert citation["license"] == project()["license"]
        assert citation["cff-version"] == "1.2.0"
        assert citation["authors"]

    def test_it_heads_the_changelog(self) -> None:
        """From the first release on; until then the page has no versions."""
        versions = re.findall(r"^## \[(.+?)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
        assert not versions or versions[0][0] == arr_coc.__version__
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for _, date in versions)
        assert [Version(v) for v, _ in versions] == sorted((Version(v) for v, _ in versions), reverse=True)


class TestPlugins:
    """The lab and each distribution of `integrations/` can be built and installed beside the package."""

    @pytest.mark.parametrize("path", PROJECTS[1:], ids=lambda path: path.parent.name)
    def test_it_needs_this_package_and_plugs_in(self, path: Path) -> None:
        facts = project(path)
        needs = {need.name: need for need in map(Requirement, facts["dependencies"])}
        assert arr_coc.__version__ in needs["arr-coc"].specifier
        package = facts["name"].replace("-", "_")
        assert (path.parent / "src" / package / "__init__.py").is_file()
        assert facts["license"] == project()["license"]
        assert (path.parent / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
        groups = [*facts.get("entry-points", {}).values(), facts.get("scripts", {})]
        values = [value for group in groups for value in group.values()]
        assert values
        for value in values:
            module = value.partition(":")[0].replace(".", "/")
            places = [path.parent / "src" / f"{module}{end}" for end in (".py", "/__init__.py")]
            assert any(place.is_file() for place in places), value


def test_the_source_archive_can_be_built_from() -> None:
    """It has what the wheel is made of, what its tests read first, and nothing heavy beside."""
    builders = pytest.importorskip("hatchling.builders.sdist")
    builder = builders.SdistBuilder(str(ROOT))
    files = {file.distribution_path for file in builder.recurse_included_files()}
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "mkdocs.yml"):
        assert name in files, name
    assert {"src/arr_coc/__init__.py", "docs/quickstart.ipynb", "tests/test_shipping.py"} <= files
    assert not [name for name in files if name.startswith(("runs/", "bench/", "dist/", "site/", ".venv"))]


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    """Those of the release workflow."""
    return yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.parent.name)
def test_a_card_is_read_by_the_hub_and_says_what_is_needed(path: Path) -> None:
    """Its figures are compared with the result files in `tests/test_readme.py`."""
    name = path.parent.name
    card = (DatasetCard if name == "pictures" else ModelCard)(path.read_text(encoding="utf-8"))
    assert card.data.license == "apache-2.0"
    for part in ("null", "Limits", "Licence", "anguage"):
        assert part in card.text, part
    if name == "pictures":
        languages = {row["language"] for row in manifest()} - {"none", "multi"}
        assert set(card.data.language) == languages
    if name == "guide":
        parameters = sum(each.numel() for each in load_guide().parameters())
        assert f"{parameters / 1e6:.1f} million" in card.text


class TestAgents:
    """What finds and uses the tools for agents; `tests/test_mcp.py` types what server.json has typed."""

    def test_the_registrys_entry_fits_its_schema_and_the_package(self) -> None:
        """Fields, lengths and patterns of the schema that it names, which isn't at hand."""
        entry = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
        assert set(entry) == {"$schema", "name", "title", "description", "version", "packages"}
        assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
        assert f"mcp-name: {entry['name']} " in (ROOT / "README.md").read_text(encoding="utf-8")
        assert len(entry["title"]) <= 100 >= len(entry["description"])
        (package,) = entry["packages"]
        assert entry["version"] == package["version"] == arr_coc.__version__
        assert (package["registryType"], package["identifier"]) == ("pypi", project()["name"])
        assert package["transport"] == {"type": "stdio"}
        (extra,) = re.findall(r"\[(.+)\]", package["runtimeArguments"][0]["value"])
        assert extra in project()["optional-dependencies"]
        for one in package["runtimeArguments"] + package["packageArguments"]:
            assert one["type"] in ("positional", "named")
            assert "name" in one if one["type"] == "named" else {"value", "valueHint"} & set(one)

    def test_the_skill_has_a_name_and_says_when_it_is_wanted(self) -> None:
        """`tests/test_readme_blocks.py` runs its commands."""
        (path,) = (ROOT / "skills").glob("*/SKILL.md")
        _, facts, text = path.read_text(encoding="utf-8").split("---\n", 2)
        skill = yaml.safe_load(facts)
        assert (skill["name"], skill["license"]) == (path.parent.name, project()["license"])
        assert 0 < len(skill["description"]) <= 1024
        assert len(text.splitlines()) < 500


class TestWorkflow:
    def test_its_steps_name_what_is_there(self, jobs: dict[str, Any]) -> None:
        text = "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        targets = re.findall(r"\bmake ([\w-]+)", text)
        assert "dist" in targets
        for target in targets:
            assert re.search(rf"^{target}:", makefile, re.M), target
        scripts = set(re.findall(r"(?<!\S)(\.ci/[\w-]+)", text))
        assert scripts == {".ci/run", ".ci/from-wheel"}
        for script in scripts:
            assert os.access(ROOT / script, os.X_OK), script

    def test_what_is_uploaded_was_tested(self, jobs: dict[str, Any]) -> None:
        publish = jobs["publish"]
        assert {"test", "build", "install", "images"} <= set(publish["needs"])
        assert "github.ref_type == 'tag'" in publish["if"]

    def test_nobodys_password_is_used(self, jobs: dict[str, Any]) -> None:
        text = WORKFLOW.read_text(encoding="utf-8")
        assert not re.search(r"secrets\.|password|api[-_]token", text.partition("\nname:")[2])
        assert jobs["publish"]["permissions"] == {"id-token": "write"}
        assert jobs["publish"]["environment"] == "release"
        writers = {
            name for name, job in jobs.items() if "write" in str(job.get("permissions", {}).get("id-token"))
        }
        assert writers == {"publish", "pages"}

    def test_the_pages_are_built_as_here(self, jobs: dict[str, Any]) -> None:
        steps = " ".join(step.get("run", "") for step in jobs["pages"]["steps"])
        for line in project()["optional-dependencies"]["docs"]:
            assert f'"{line}"' in steps, line

    def test_linted(self) -> None:
        done = tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", WORKFLOW)
        assert done.returncode == 0, done.stdout
        done = tool("zizmor", "--offline", "--quiet", WORKFLOW.parent)
        assert done.returncode == 0, done.stdout


def test_the_citation_is_valid() -> None:
    done = tool("check-jsonschema", "--builtin-schema", "vendor.citation-file-format", "CITATION.cff")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
class TestImages:
    def test_what_it_copies_is_sent(self, path: Path) -> None:
        """Every source of a COPY is in the repository, and .dockerignore lets it through."""
        sent = [
            line.removeprefix("!")
            for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
            if line.startswith("!")
        ]
        sources = [
            source
            for arguments in re.findall(r"^COPY (?!--from)(.+)$", path.read_text(encoding="utf-8"), re.M)
            for source in arguments.split()[:-1]
        ]
        assert {"pyproject.toml", "src"} <= set(sources)
        for source in sources:
            assert (ROOT / source).exists(), source
            parts = Path(source).parts
            rules = [Path(rule).parts[: len(parts)] for rule in sent]
            assert any(all(map(fnmatch, parts, rule)) for rule in rules if len(rule) == len(parts)), source

    def test_it_ends_as_nobody_in_particular(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines()
        (user,) = [line.split()[1] for line in lines if line.startswith("USER ")]
        assert user.isdecimal()
        assert int(user) > 0
        last = max(number for number, line in enumerate(lines) if line.startswith("FROM "))
        assert any(line.startswith("USER ") for line in lines[last:])
        assert "ARG TORCH=cpu" in lines

    def test_its_entry_point_is_json(self, path: Path) -> None:
        (command,) = re.findall(r"^ENTRYPOINT (.+)$", path.read_text(encoding="utf-8"), re.M)
        words = json.loads(command)
        if "--hf-overrides" in words:
            overrides = json.loads(words[words.index("--hf-overrides") + 1])
            assert overrides == {"architectures": ["ARRCOCQwen3VL"]}
        else:
            assert words == list(project()["scripts"])

    def test_linted(self, path: Path) -> None:
        done = tool("hadolint", path)
        assert done.returncode == 0, done.stdout

    @pytest.mark.slow
    def test_it_builds(self, path: Path) -> None:
        docker = shutil.which("docker")
        if not docker or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
            pytest.skip("no Docker daemon answers")
        tag = f"arr-coc-test-{path.parent.name.lower()}"
        subprocess.run([docker, "build", "--tag", tag, "--file", path, ROOT], check=True)
        if path.parent == ROOT:
            ask = [docker, "run", "--rm", "--network", "none", tag, "ask", "--json", "--budget", "64"]
            done = subprocess.run(ask, capture_output=True, text=True, check=True)
            truth = json.loads((BUNDLED / "sample.json").read_text(encoding="utf-8"))
            assert json.loads(done.stdout)["answer"] == truth["answer"]


def install_steps(path: Path, environment: Path, torch: str = "cpu") -> list[list[str]]:
    """What a Dockerfile installs, line by line, as words for another place than the image's."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    steps = [step for line in re.findall(r"^RUN (.+)$", text, re.M) for step in line.split("&&")]
    for name, value in {**dict(re.findall(r"^ARG (\w+)=(.+)$", text, re.M)), "TORCH": torch}.items():
        steps = [step.replace(f"${name}", value) for step in steps]
    words = [shlex.split(step.replace("/opt/arr-coc", str(environment))) for step in steps]
    return [step for step in words if step[0] in ("uv", "pip")]


class TestTheAppsImage:
    """What can be known of it where no Docker runs: what it installs, and how large that gets."""

    def test_it_installs_what_its_commands_need(self, tmp_path: Path) -> None:
        *_, last = install_steps(DOCKERFILES[0], tmp_path)
        extras = last[-1].removeprefix(".[").removesuffix("]").split(",")
        assert {"app", "proxy"} <= set(extras) <= set(project()["optional-dependencies"])
        assert last[last.index("--torch-backend") + 1] == "cpu"
        measured = json.loads(INSTALLED.read_text(encoding="utf-8"))["cpu, image"]
        assert measured["steps"][-1]["pip install"] == last[-1]

    def test_it_is_small(self) -> None:
        """As measured in an environment of its own (`bench/install.py`), with room for the base image."""
        measured = json.loads(INSTALLED.read_text(encoding="utf-8"))["cpu, image"]
        assert measured["for GPUs"] == []
        assert measured["megabytes"] + BASE_MB < 2500
        assert set(measured["ran"].values()) == {0}

    @pytest.mark.slow
    def test_its_steps_run_and_its_commands_answer(self, tmp_path: Path) -> None:
        """In an empty environment; no image is made. PyTorch's CPU build may lie in PIP_FIND_LINKS."""
        uv = TOOLS / "uv"
        if not uv.is_file():
            pytest.skip("uv is not installed: pip install -e '.[dev,ship]'")
        _, make, install = install_steps(DOCKERFILES[0], tmp_path / "env")
        subprocess.run([uv, *make[1:]], check=True)
        here = sorted(Path(os.environ.get("PIP_FIND_LINKS", "/none")).glob("torch-*+cpu-*.whl"))
        if here:
            place = install.index("--torch-backend")
            install[place : place + 2] = [str(here[-1])]
        planned = subprocess.run(
            [uv, *install[1:], "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if planned.returncode:
            pytest.skip(f"PyTorch's CPU build can't be had here: {planned.stderr[-200:]}")
        names = re.findall(r"^ \+ ([\w.-]+)", planned.stderr, re.M)
        assert "torch" in names
        assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton"))]
        subprocess.run([uv, *install[1:]], cwd=ROOT, check=True)
        if here:  # the index's torchvision has no operators for a CPU build of torch; its own index has
            (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
            schemas = ROOT / "integrations" / "vllm" / "tests" / "torchvision_schemas.py"
            shutil.copy(schemas, packages)
            (packages / "torchvision_schemas.pth").write_text("import torchvision_schemas\n")
        files = [path for path in (tmp_path / "env").rglob("*") if path.is_file() and not path.is_symlink()]
        assert sum(path.stat().st_size for path in files) / 1e6 + BASE_MB < 2500
        truth = json.loads((BUNDLED / "sample.json").read_text(encoding="utf-8"))
        command = [str(tmp_path / "env" / "bin" / "arr-coc")]
        bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
            "HF_HUB_OFFLINE": "1"
        }
        for words, key, value in (
            (["look", "--json"], "grid", [1, 32, 32]),
            (["ask", "--json", "--budget", "64"], "answer", truth["answer"]),
        ):
            done = subprocess.run(
                command + words, cwd=tmp_path, env=bare, capture_output=True, text=True, check=True
            )
            assert json.loads(done.stdout)[key] == value
        for words, path in ((["app"], "/"), (["proxy"], "/arr_coc/metrics")):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            server = subprocess.Popen([*command, *words, "--port", str(port)], cwd=tmp_path, env=bare)
            try:
                assert page_of(server, f"http://127.0.0.1:{port}{path}")
            finally:
                server.terminate()
                server.wait(60)


def page_of(server: subprocess.Popen[bytes], address: str) -> bytes:
    """What a server that is starting answers, as soon as it does."""
    for _ in range(600):
        try:
            return urlopen(address, timeout=30).read()
        except OSError:
            assert server.poll() is None, "the server has ended"
            time.sleep(0.5)
    raise TimeoutError(address)


@pytest.mark.slow
def test_a_fresh_repository_has_one_commit_and_holds(tmp_path: Path) -> None:
    if not (TOOLS / "cyclonedx-py").is_file() or not (ROOT / ".git").exists():
        pytest.skip("this is no checkout, or the extra ship is not installed")
    who = {
        f"GIT_{role}_{what}": "me@example.org"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    environment = os.environ | who | {"PATH": f"{TOOLS}:{os.environ['PATH']}"}
    words = [ROOT / ".ci" / "fresh", tmp_path / "new"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"arr_coc-{arr_coc.__version__}-py3-none-any.whl$", done.stdout)
    log = ["git", "-C", tmp_path / "new", "rev-list", "--count", "HEAD"]
    assert subprocess.run(log, capture_output=True, text=True, check=True).stdout == "1\n"
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "name a folder that isn't" in again.stdout


class TestNotebook:
    def test_it_is_committed_without_results(self) -> None:
        for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                assert cell["outputs"] == []
                assert cell["execution_count"] is None

    @pytest.mark.slow
    def test_it_runs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From top to bottom in a kernel, offline, as `make notebook` does."""
        pytest.importorskip("ipykernel")
        nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        ran = nbformat.read(NOTEBOOK, as_version=4)
        nbclient.NotebookClient(ran, timeout=600, kernel_name="python3").execute()
        text = "".join(
            output["text"] for cell in ran.cells for output in cell.get("outputs", ()) if "text" in output
        )
        assert "(from 50 of 400 tokens)" in text


class TestDocumentation:
    @pytest.mark.slow
    def test_it_builds_strictly(self, tmp_path: Path) -> None:
        done = tool("mkdocs", "build", "--strict", "--site-dir", tmp_path, NO_MKDOCS_2_WARNING="1")
        assert done.returncode == 0, done.stderr
        pages = {path.parent.name for path in tmp_path.rglob("index.html")}
        assert {
            "quickstart",
            "modes",
            "training",
            "extending",
            "api",
            "log",
            "2026-11-21",
            "results",
        } <= pages
        api = (tmp_path / "api" / "models" / "index.html").read_text(encoding="utf-8")
        assert 'id="arr_coc.ARRCOCModel.ask"' in api
        assert "(/quickstart/index.md)" in (tmp_path / "llms.txt").read_text(encoding="utf-8")
        assert "ARRCOCModel(" in (tmp_path / "api" / "models" / "index.md").read_text(encoding="utf-8")
        clicked = (tmp_path / "try" / "index.html").read_text(encoding="utf-8")
        assert 'src="../try.js"' in clicked
        assert '"name": "order"' in clicked
        assert (tmp_path / "pictures" / "order.png").is_file()
        start = (tmp_path / "quickstart" / "index.html").read_text(encoding="utf-8")
        assert 'id="two-lines-on-a-loaded-model"' in start
        assert not re.search(r'(src|href)="https?://(?!127\.0\.0\.1)[^"]+\.(js|css|woff2?)"', start)

    def test_every_public_name_is_in_the_reference(self) -> None:
        pages = (ROOT / "docs" / "api").glob("*.md")
        reference = re.findall(r"^::: ([\w.]+)$", "\n".join(page.read_text("utf-8") for page in pages), re.M)
        names = {line.rpartition(".")[2] for line in reference}
        plain = {"MODES", "DEFAULT_BUDGET", "__version__"}
        assert set(arr_coc.__all__) - plain <= names

    def test_no_page_includes_another(self) -> None:
        """Each says what it says itself, and links to what is beside it in docs/ or on another site."""
        for path in (ROOT / "docs").rglob("*.md"):
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"^<!-- (readme|file)", text, re.M), path
            assert "README.md" not in re.sub(r"`[^`]*`", "", text), path
