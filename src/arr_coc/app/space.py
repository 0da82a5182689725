"""The files of a Space on the Hub that shows one model in the app.

    space_files("me/my-allocator") -> {"app.py": ..., "requirements.txt": ..., "README.md": ..., wheel: ...}
    write_space(Path("my-space"), files)

Laws: the app is `arr_coc.app`, so app.py is a few lines; the folder carries the package that wrote it as a
wheel, or, where that is released, pins its version; a model that only this disk has is refused, since a Space
could not load it; a file that differs is never overwritten unasked; nothing is uploaded.

A Space installs requirements.txt before its other files are there. So that file names what the package needs,
and app.py unpacks the wheel, which holds Python alone, when it starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from arr_coc import __version__
from arr_coc.files.atomic import move_files, temporary_folder, write_atomic

PYTHON = "3.12"
APP = '''\
"""The Space of {what}; everything it does is in the package."""
{unpack}
import torch

from arr_coc.app import build_app

print("a GPU:", torch.cuda.get_device_name() if torch.cuda.is_available() else "none that torch can use")

demo = build_app(model_name={model}, device={device}, dtype={dtype})

if __name__ == "__main__":
    demo.launch()
'''
UNPACK = """
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

# No package index has this version, so that the Space brings it along; what it needs is in requirements.txt.
PACKAGES = TemporaryDirectory(prefix="arr-coc-")
zipfile.ZipFile(Path(__file__).with_name("{wheel}")).extractall(PACKAGES.name)
sys.path.insert(0, PACKAGES.name)
"""
BODY = """
# See what it saw

Ask {what} a question about an image. The answer is read from the few visual tokens that the
question needs, and the page shows which ones, why, and whether the answer from all tokens would have been
another.

It runs on the GPU of the Space where it has one to itself, and on the CPU otherwise; its log says which.
ZeroGPU, which lends one for a single call, is not supported.

Written by `arr-coc space`, version {version}.
"""
HARDWARE = "a10g-small"
"""What is suggested for a model of the Hub: 24 GB of GPU memory, and bfloat16 in hardware."""


def space_files(
    model: str = "bundled",
    title: str = "See what it saw",
    *,
    device: str = "auto",
    dtype: str = "auto",
    released: bool = False,
) -> dict[str, str | bytes]:
    """The files of a Space, by name.

    Args:
        model: what is shown: an allocator or a base model on the Hub, or "bundled".
        title: of the Space.
        device: where the model runs there, as `device.resolve_device` takes it.
        dtype: of its base model, as `device.resolve_dtype` takes it.
        released: install this version from the package index, which must have it; else the folder carries it.

    Raises:
        ValueError: a model that is not on the Hub, an unknown dtype, or Gradio is missing.
    """
    from huggingface_hub import SpaceCard, SpaceCardData

    from arr_coc.app import require_gradio
    from arr_coc.app.wheel import own_wheel, requirements
    from arr_coc.files.device import resolve_dtype
    from arr_coc.files.hub import check_name
    from arr_coc.files.paths import BUNDLED_NAME, is_local

    require_gradio()  # its version is written down
    resolve_dtype(dtype)
    bundled = model == BUNDLED_NAME
    if not bundled:
        if is_local(model):
            raise ValueError(
                f"a Space can't load {model!r}, which is a folder on this disk: upload it with push_to_hub "
                "first, and give its name there"
            )
        check_name(model)
    what = "the small model that arr-coc brings along" if bundled else model
    front = SpaceCardData(
        title=title,
        emoji="👁️",
        colorFrom="purple",
        colorTo="yellow",
        sdk="gradio",
        sdk_version=metadata.version("gradio"),
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
    needs, unpack, carried = [f"arr-coc[app]=={__version__}"], "", {}
    if not released:
        wheel, content = own_wheel()
        needs, unpack, carried = requirements("app"), UNPACK.format(wheel=wheel), {wheel: content}
    return {
        "app.py": APP.format(what=what, unpack=unpack, **arguments),
        "requirements.txt": "".join(f"{line}\n" for line in needs),
        "README.md": str(SpaceCard(f"---\n{front.to_yaml()}\n---\n{body}")),
        **carried,
    }


def write_space(folder: Path, files: Mapping[str, str | bytes], force: bool = False) -> None:
    """Write a Space's files; the folder is made if it is missing.

    Args:
        folder: where.
        files: of `space_files`.
        force: overwrite files that differ.

    Raises:
        ValueError: a file differs, or can't be written; then none has been.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        contents = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
        paths = {folder / name: content for name, content in contents.items()}
        differ = [path.name for path, new in paths.items() if path.exists() and path.read_bytes() != new]
        if differ and not force:
            raise ValueError(
                f"{str(folder)!r} has another {', '.join(differ)}: choose another folder, or --force to "
                "overwrite"
            )
        with temporary_folder(".saving-", folder) as new:
            for name, content in contents.items():
                write_atomic(content, new / name)
            move_files(new, folder, list(contents))
    except OSError as error:
        raise ValueError(
            f"folder {str(folder)!r} can't be written ({error.strerror or error}): choose another"
        ) from error
