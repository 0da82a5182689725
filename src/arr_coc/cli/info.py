"""The command `arr-coc info`: the model, where and in what it runs, versions, supported families."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from arr_coc import __version__
from arr_coc.cli import inputs, options, terminal


def info(
    model: options.Model = options.DEFAULT_MODEL,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    families: Annotated[
        bool, typer.Option("--families", help="List the model families that are supported, too.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the size, device and dtype of a model, and the installed versions."""
    with terminal.quiet_stdout(as_json):
        loaded = inputs.load_model(model, device, dtype, as_json)
    import platform
    from importlib import metadata

    from arr_coc.families import known_families

    served = known_families()
    versions = {"arr-coc": __version__, "python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in ("torch", "transformers", "kornia")}
    facts: dict[str, Any] = {
        "model": model,
        "model_type": loaded.config.model_type,
        "parameters": sum(p.numel() for p in loaded.base.parameters()),
        "allocator_parameters": sum(p.numel() for p in loaded.layer.parameters()),
        "allocator_trained": bool(loaded.layer.trained),
        "stem_parameters": 0 if loaded.stem is None else sum(p.numel() for p in loaded.stem.parameters()),
        "compressors": list(loaded.compressors),
        "about": getattr(loaded, "about", None),
        "device": str(loaded.device),
        "dtype": str(loaded.base.dtype).removeprefix("torch."),
        "seam": True,  # a model without it does not load
        "versions": versions,
        "families": [
            {
                "model_type": kind,
                "family": one.title,
                "sparse": one.encodes == "cells",
                "tiles": one.encodes == "tiles",
                "crops": one.encodes == "crops",
                "clips": one.clips,
                "served": kind not in one.lacking,
                "note": one.remark,
            }
            for one in served
            for kind in one.model_types
        ],
    }
    if as_json:
        terminal.print_json(facts)
        return
    trained = "trained" if facts["allocator_trained"] else "untrained: the guide chooses"
    stem = f"{facts['stem_parameters']:,} parameters" if facts["stem_parameters"] else "none"
    rows = [("model", f"{model} ({facts['model_type']})")]
    rows += [("can", facts["about"])] if facts["about"] else []
    rows += [
        ("device", f"{facts['device']}, {facts['dtype']}"),
        ("parameters", f"{facts['parameters']:,}"),
        ("allocator", f"{facts['allocator_parameters']:,} parameters, {trained}"),
        ("stem", stem),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        (
            "families",
            f"{len(served)} are supported" + ("" if families else ": --families lists them"),
        ),
    ]
    terminal.print_rows(rows)
    if families:
        print()
        width = 2 + max(len(one.title) for one in served)
        terminal.print_rows(
            [(one.title, f"{', '.join(one.model_types)}: {one.summary}") for one in served], width
        )
