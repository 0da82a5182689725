"""MLX-VLM's own server with wrapped models: of every picture of a request only the needed cells are read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from arr_coc.choose.budget import Budget
from arr_coc.selector import Selector
from arr_coc_mlx.families import Family, find_family
from arr_coc_mlx.wrapped import WrappedModel

Loader = Callable[[str, str | None], tuple[Any, Any, Any]]


def wrapping(load: Loader, selector: Selector, budget: Budget | None, mode: str | None) -> Loader:
    """Return MLX-VLM's function that loads a model for its server, with the model and its processor wrapped.

    A model of a family that isn't served is refused with status 400, whoever asks for it.
    """
    from fastapi import HTTPException

    def load_wrapped(model_path: str, adapter_path: str | None) -> tuple[Any, Any, Any]:
        model, processor, config = load(model_path, adapter_path)
        try:
            wrapped = WrappedModel(model, processor, selector, budget, mode)
        except ValueError as error:
            raise HTTPException(status_code=400, detail=str(error)) from error
        return wrapped, wrapped.processor, config

    return load_wrapped


def check_model(model: str) -> Family:
    """Return a model's family, before a server is started.

    Raises:
        ValueError: its folder can't be read, or the family isn't served.
    """
    from mlx_vlm.utils import get_model_path, load_config

    try:
        config = load_config(get_model_path(model))
    except Exception as error:  # of the Hub, of a disk, of JSON
        line = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the model {model!r} can't be read ({line}): give a folder or a Hub name"
        ) from error
    return find_family(config["model_type"])


def serve(
    model: str,
    selector: Selector,
    budget: Budget | None = None,
    mode: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8080,
    more: Sequence[str] = (),
) -> None:
    """Serve a model until the process is ended.

    Args:
        model: folder or Hub name.
        selector: chooses.
        budget: cells of each image that are kept; None: 273.
        mode: None: "prune".
        host: where to listen.
        port: where to listen.
        more: options of MLX-VLM's server, as on its command line.

    Raises:
        ValueError: a model that can't be read, or of a family that isn't served.
    """
    family = check_model(model)
    from mlx_vlm.server import cli, generation

    # The server has no other place for a model of one's own; this process serves nothing else.
    generation.load_model_resources = wrapping(generation.load_model_resources, selector, budget, mode)
    single = [] if family.batches else ["--max-num-seqs", "1"]
    sys.argv = ["arr-coc-mlx serve", "--model", model, "--host", host, "--port", str(port), *more, *single]
    cli.main()
