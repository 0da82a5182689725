"""The command line: `arr-coc-mlx serve MODEL --budget 64`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from arr_coc.choose.budget import DEFAULT_BUDGET, parse_budget


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    main = argparse.ArgumentParser(
        "arr-coc-mlx", description="MLX-VLM models that read only what is asked for."
    )
    commands = main.add_subparsers(dest="command", required=True)
    serve = commands.add_parser(
        "serve",
        help="MLX-VLM's own server with a wrapped model",
        description="Start MLX-VLM's own server with a wrapped model. Its other options may follow.",
    )
    serve.add_argument("model", metavar="MODEL", help="Folder or Hub name of a model of MLX-VLM.")
    serve.add_argument(
        "--budget", default=str(DEFAULT_BUDGET), help="Cells kept of each image: 64, 0.25 or auto (273)."
    )
    serve.add_argument("--mode", default="prune", help="prune, sparse or full (prune).")
    serve.add_argument("--allocator", metavar="FOLDER", help="A guide or allocator of your own.")
    serve.add_argument("--relevance", default="auto", help="What says which cells are needed (auto).")
    serve.add_argument("--device", default="cpu", help="Where pictures are looked at: cpu, mps (cpu).")
    serve.add_argument("--host", default="127.0.0.1", help="Where to listen (127.0.0.1).")
    serve.add_argument("--port", type=int, default=8080, help="Where to listen (8080).")
    return main


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; what is wrong with it ends it with one line and status 2."""
    how, more = parser().parse_known_args(arguments)
    try:
        from arr_coc.selector import Selector
        from arr_coc_mlx.serving import check_model, serve
        from arr_coc_mlx.wrapped import find_mode

        budget = parse_budget(how.budget)
        find_mode(how.mode)
        check_model(how.model)
        selector = Selector.from_pretrained(how.allocator, relevance=how.relevance, device=how.device)
        serve(how.model, selector.for_serving(), budget, how.mode, how.host, how.port, more)
    except ValueError as error:
        print(f"arr-coc-mlx: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from error


if __name__ == "__main__":
    main()
