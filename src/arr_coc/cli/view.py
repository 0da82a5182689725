"""The command `arr-coc view`: saved traces as one page that opens anywhere, without a model or a network."""

from __future__ import annotations

from typing import Annotated

import typer

from arr_coc.cli import inputs, options, terminal
from arr_coc.files.atomic import write_whole
from arr_coc.files.paths import input_file


def command(
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help="Files that ask --trace wrote.")],
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE.html", help="Where to write the page.")
    ] = "arr-coc-view.html",
    as_json: options.AsJson = False,
) -> None:
    """Make one self-contained HTML page of saved traces: what was kept, why, and what came of it.

    Everything can be looked at there that the app shows of an answer: layers, cells, words, the budget.
    """
    target = inputs.output_path("--out", out, (".html",))
    with terminal.starting(as_json):
        from arr_coc.trace.trace import Trace
        from arr_coc.trace.viewer import page

        views = [Trace.load(input_file(trace)).view() for trace in traces]
    write_whole(page(views).encode(), target)
    size = target.stat().st_size
    if as_json:
        terminal.print_json({"page": str(target), "traces": len(views), "bytes": size})
    else:
        terminal.print_rows([("page", f"{target} ({size / 2**20:.1f} MiB, {len(views)} trace(s))")])
