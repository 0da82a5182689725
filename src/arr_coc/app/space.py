"""The files of a Space on the Hub that serves one model in the app.

    files = space_files("me/my-allocator")    {"app.py": ..., "README.md": ..., "arr_coc/model.py": ..., ...}
    write_space(Path("my-space"), files)

The Space contains the source of the package that wrote it, so no package index needs this version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path

from huggingface_hub import SpaceCard, SpaceCardData
from packaging.requirements import Requirement

from arr_coc import __version__
from arr_coc.app import require_gradio
from arr_coc.files.atomic import move_files, temporary_folder, write_atomic
from arr_coc.files.device import resolve_dtype
from arr_coc.files.hub import check_hub_name
from arr_coc.files.paths import BUNDLED_NAME, is_local

PYTHON = "3.12"
APP = '''\
"""The Space of {what}; everything it does is in the package."""

from importlib.util import find_spec

if find_spec("spaces") is not None:
    import spaces  # noqa: F401  (ahead of torch: ZeroGPU lends its GPU through it)

import torch

from arr_coc.app import build_app
from arr_coc.app.lending import lends

own = torch.cuda.get_device_name() if torch.cuda.is_available() and not lends() else None
print("a GPU:", "lent by ZeroGPU for each question" if lends() else own or "none that torch can use")

demo = build_app(model_name={model}, device={device}, dtype={dtype})

if __name__ == "__main__":
    demo.launch()
'''
BODY = """
# See what it saw

Ask {what} a question about an image. The answer is read from the few visual tokens that the
question needs, and the page shows which ones, why, and whether the answer from all tokens would have been
another.

It runs on the GPU of the Space where it has one to itself, on one that ZeroGPU lends for each question, and
on the CPU otherwise; its log says which.

Written by `arr-coc space`, version {version}.
"""
PACKAGE = Path(__file__).parents[1]
# Endings of the package's files: what else lies in its folder, such as a backup or a secret, stays here.
ENDINGS = (
    ".css",
    ".jinja",
    ".jpg",
    ".js",
    ".json",
    ".md",
    ".png",
    ".py",
    ".safetensors",
    ".toml",
    ".txt",
    ".typed",
)
OF_GIT = (".git", ".gitattributes", ".gitignore")  # of a Space that was cloned
MAX_NAMES = 4  # files that a message names
HARDWARE = "a10g-small"  # suggested for models of the Hub: 24 GB of GPU memory, bfloat16 in hardware


def space_files(
    model: str = "bundled",
    title: str = "See what it saw",
    *,
    device: str = "auto",
    dtype: str = "auto",
    released: bool = False,
) -> dict[str, str | bytes]:
    """Return the files of a Space, by name.

    Args:
        model: an allocator or base model on the Hub, or "bundled".
        title: of the Space.
        device: as in `resolve_device`, on the Space.
        dtype: of the base model, as in `resolve_dtype`.
        released: install this version from the package index instead of including its source.

    Raises:
        ValueError: a model that isn't on the Hub, an unknown dtype, or Gradio is missing.
    """
    require_gradio()  # its version goes into the card
    resolve_dtype(dtype)
    bundled = model == BUNDLED_NAME
    if not bundled:
        if is_local(model):
            raise ValueError(
                f"a Space can't load {model!r}, which is a folder on this disk: upload it with push_to_hub "
                "first, and give its name there"
            )
        check_hub_name(model)
    what = "the small model that arr-coc brings along" if bundled else model
    front = SpaceCardData(
        title=title,
        emoji="👁️",
        colorFrom="purple",
        colorTo="yellow",
        sdk="gradio",
        sdk_version=version("gradio"),
        python_version=PYTHON,
        app_file="app.py",
        short_description="Which visual tokens an answer was read from",
        license="apache-2.0",
        models=None if bundled else [model],
        tags=["arr-coc", "visual-token-pruning", "vision-language-model"],
        suggested_hardware="cpu-basic" if bundled else HARDWARE,
    )
    arguments = {
        name: json.dumps(text) for name, text in (("model", model), ("device", device), ("dtype", dtype))
    }
    body = BODY.format(what=what, version=__version__)
    needs = [f"arr-coc[app]=={__version__}"] if released else requirements("app")
    return {
        "app.py": APP.format(what=what, **arguments),
        "requirements.txt": "".join(f"{line}\n" for line in needs),
        "README.md": str(SpaceCard(f"---\n{front.to_yaml()}\n---\n{body}")),
        **({} if released else source_files()),
    }


def source_files() -> dict[str, str | bytes]:
    """Return the installed package's files as they are here, local changes included, and the licence, by
    name.

    Hidden files and those of other kinds than a release has (ENDINGS) are left out.
    """
    files: dict[str, str | bytes] = {
        f"{PACKAGE.name}/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes()
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix in ENDINGS and path.is_file() and not _is_hidden(path.relative_to(PACKAGE))
    }
    licence = _installed().read_text("licenses/LICENSE")
    return files | ({"LICENSE": licence} if licence else {})


def requirements(*extras: str) -> list[str]:
    """Return the dependencies of the installed package and some of its extras, as lines of a
    requirements.txt.

    Without the package itself; a ValueError if it isn't installed.
    """
    lines = set()
    for need in map(Requirement, _installed().requires or ()):
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras):
            need.marker = None
            lines.add(str(need))
    return sorted(lines)


def _installed() -> Distribution:
    try:
        return distribution("arr-coc")
    except PackageNotFoundError as error:
        raise ValueError(
            "arr-coc runs from a folder that is not installed, so that what it needs is not known: "
            "pip install -e . there first"
        ) from error


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "__pycache__")) for part in path.parts)


def write_space(folder: Path, files: Mapping[str, str | bytes], force: bool = False) -> None:
    """Write the files of `space_files` into a folder, which is made if it is missing; all or none.

    With `force` files that differ are overwritten, and in the package's folder what is not of it goes.

    Raises:
        ValueError: a file there differs, or is not one of the Space's, and `force` is False; or one can't be
            written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        contents = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
        differ = [name for name, new in contents.items() if _differs(folder / name, new)]
        if differ and not force:
            raise ValueError(
                f"{str(folder)!r} has another {_named(differ)}: choose another folder, or --force to "
                "overwrite"
            )
        here = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if not path.is_dir()]
        others = [path for path in here if path.as_posix() not in contents and path.parts[0] not in OF_GIT]
        strays = [path.as_posix() for path in others if "__pycache__" not in path.parts]
        if strays and not force:
            raise ValueError(
                f"{str(folder)!r} has {_named(strays)}, which would be mixed with the Space's files: choose "
                f"another folder, or --force (what is in {PACKAGE.name}/ then goes, the rest stays)"
            )
        former = [path.as_posix() for path in others if path.parts[0] == PACKAGE.name]
        with temporary_folder(".saving-", folder) as new:
            for name, content in contents.items():
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                write_atomic(content, new / name)
            move_files(new, folder, [*contents, *former])  # also removes modules of other versions
    except OSError as error:
        raise ValueError(
            f"folder {str(folder)!r} can't be written ({error.strerror or error}): choose another"
        ) from error


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")


def _differs(path: Path, content: bytes) -> bool:
    """Return whether a file exists with other content."""
    return path.exists() and path.read_bytes() != content
