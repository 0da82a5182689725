"""Chooses for a corpus of pages on many processes or machines, by actors of Ray Data.

    choose_corpus(CorpusJob("pages", "chosen", budget=64), actors=4)    CorpusTotals; called again, it goes on
    python -m arr_coc_lab.integrations.corpus_actors pages chosen --budget 64 --actors 4

Ray says which actor does which row group and starts actors anew; `corpus` reads, chooses and writes.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from arr_coc.choose.budget import DEFAULT_BUDGET, parse_budget
from arr_coc.files.atomic import one_line
from arr_coc_lab.extras import install_line
from arr_coc_lab.integrations.corpus import (
    CorpusJob,
    CorpusUnit,
    choose_unit,
    is_done,
    list_units,
    remove_parts,
)

BLOCKS = 16  # of row groups for each actor: few enough to be cheap, so many that actors end together


class CorpusTotals(NamedTuple):
    """Row groups that were done before and by this run, and its rows; what `failed` is left undone."""

    before: int
    done: int
    rows: int
    errors: int  # rows whose page or question is bad
    failed: tuple[str, ...]  # file, row group and reason

    @property
    def text(self) -> str:
        """In a line."""
        failed = f"; {len(self.failed)} row groups failed, such as {self.failed[0]}" if self.failed else ""
        return (
            f"{self.before} row groups were done before, {self.done} now: {self.rows:,} rows, "
            f"{self.errors:,} of them with an error{failed}"
        )


class CorpusActor:
    """An actor of Ray Data that chooses for row groups, with one `Selector` for all of them."""

    def __init__(self, job: CorpusJob) -> None:
        self.job, self.selector = job, job.open_selector()
        self.settings = job.settings(self.selector)

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Choose for a batch of row groups (`CorpusUnit`s by column) and return what came of each."""
        columns = [batch[name].tolist() for name in CorpusUnit._fields]
        errors, failures = [], []
        for unit in map(CorpusUnit._make, zip(*columns, strict=True)):
            try:
                # A block is given out again if its actor was ended, with what that one has done.
                done = is_done(self.job, self.settings, unit)
                errors.append(0 if done else choose_unit(self.job, self.selector, unit))
                failures.append("")
            except Exception as error:  # costs this row group alone; the totals say it
                errors.append(0)
                failures.append(one_line(error))
        return {**batch, "errors": np.array(errors), "failure": np.array(failures, dtype=object)}


def choose_corpus(job: CorpusJob, actors: int = 1, num_gpus: float = 0.0) -> CorpusTotals:
    """Choose for all row groups that aren't done, by some actors of one CPU each, and return what was done.

    Ray is the one that runs (`ray.init`, or a cluster's); without one it starts one here. One run at a time
    may write to a folder of results.

    Args:
        job: What is chosen from which pages.
        actors: How many processes choose; each needs some 1 GB of memory, and starts with loading torch.
        num_gpus: Of each actor, for a job on "cuda"; several actors may share one.

    Raises:
        ValueError: no Ray, a bad job, pages that can't be listed, or results by other settings.
    """
    if importlib.util.find_spec("ray") is None:
        raise ValueError(f"actors need Ray, which is not installed: {install_line('scale')}")
    if actors < 1:
        raise ValueError(f"{actors} actors choose nothing: give 1 or more")
    import ray.data

    settings = job.settings(job.open_selector())
    units = list_units(job)
    left = [unit for unit in units if not is_done(job, settings, unit)]
    remove_parts(job)
    if not left:
        return CorpusTotals(len(units), 0, 0, 0, ())
    tasks = ray.data.from_items(
        [unit._asdict() for unit in left], override_num_blocks=min(len(left), BLOCKS * actors)
    )
    chosen = tasks.map_batches(
        CorpusActor,
        fn_constructor_args=(job,),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=actors),
        num_cpus=1,
        num_gpus=num_gpus,
    )
    failed, rows, errors = [], 0, 0
    for report in chosen.iter_rows():
        if report["failure"]:
            failed.append(f"{report['file']}, row group {report['group']}: {report['failure']}")
        else:
            rows, errors = rows + int(report["rows"]), errors + int(report["errors"])
    return CorpusTotals(len(units) - len(left), len(left) - len(failed), rows, errors, tuple(sorted(failed)))


def command(
    source: Annotated[str, typer.Argument(metavar="PAGES", help="A folder of parquet files.")],
    out: Annotated[str, typer.Argument(metavar="RESULTS", help="A folder, reached by every machine.")],
    budget: Annotated[str, typer.Option(metavar="273|0.25|auto", help="Cells.")] = str(DEFAULT_BUDGET),
    actors: Annotated[int, typer.Option(min=1, help="Processes that choose.")] = 1,
    allocator: Annotated[str | None, typer.Option(help="Folder of a trained one.")] = None,
    relevance: Annotated[str, typer.Option(help="What decides.")] = "auto",
    device: Annotated[str, typer.Option(help="Such as cuda.")] = "cpu",
    num_gpus: Annotated[float, typer.Option(min=0, help="Of each actor.")] = 0.0,
    together: Annotated[int, typer.Option(min=1, help="Rows at once, for GPUs.")] = 1,
) -> None:
    """Choose the cells and evidence boxes of a corpus of pages."""
    try:
        job = CorpusJob(source, out, parse_budget(budget), allocator, relevance, device, together=together)
        totals = choose_corpus(job, actors, num_gpus)
    except ValueError as error:
        print(f"arr-coc: {one_line(error)}", file=sys.stderr)
        raise typer.Exit(2) from error
    print(totals.text)
    raise typer.Exit(1 if totals.failed else 0)


if __name__ == "__main__":
    typer.run(command)
