"""Calibrates coverage for sources of relevance on labelled real pictures on which nothing learned.

    python runs/coverage.py PICTURES             guide; some five minutes of one core
    python runs/coverage.py PICTURES --sources guide,ocr,guide+ocr
    python runs/coverage.py PICTURES --folder FOLDER        whether pictures of another making keep the promise


PICTURES is a folder that `arr_coc_lab.pictures.fetch` filled. Fitted on the calibration split; written are the
rows of these sources in src/arr_coc/bundled/coverage.json, other rows stay, and what was measured in
runs/results/coverage.json. To be run whenever a source's weights or the balance's are replaced. Pictures of
another making (--folder) say how well the promise is kept.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from arr_coc.files.atomic import write_atomic
from arr_coc.relevance.coverage import TABLE
from arr_coc_lab.evaluate.coverage import compare, fit, open_source, questions_of, report
from arr_coc_lab.evaluate.sources import in_folder, labelled, remembered

RESULTS = Path(__file__).parent / "results" / "coverage.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--sources", default="guide", help="names, with commas")
    parser.add_argument(
        "--folder",
        type=Path,
        help="pictures of others with questions.jsonl: the bundled rows are measured on them",
    )
    parser.add_argument("--dry", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tables = [
        json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {} for path in (TABLE, RESULTS)
    ]
    for name in arguments.sources.split(","):
        source, reader = open_source(name)
        if arguments.folder:
            read = remembered(Path(".ocr"))
            samples = [
                replace(one, lines=tuple(read(np.asarray(one.image())))) if "ocr" in name else one
                for one in in_folder(arguments.folder)
            ]
            measured = report(tables[0][source.name], list(questions_of(source, samples, reader)))
            print(json.dumps({name: measured}, indent=1), flush=True)
            tables[1][source.name]["of another making"] = measured
            if not arguments.dry:
                write_atomic((json.dumps(tables[1], indent=1) + "\n").encode(), RESULTS)
            continue
        own = list(questions_of(source, labelled("calibration", arguments.pictures), reader))
        row = {"version": source.version, **fit(own)}
        measured = {
            "version": source.version,
            "cells at 0.9 by family and bins of confidence": compare(own),
            "calibration": report(row, own),
        }
        print(json.dumps({name: {"row": row, **measured}}, indent=1), flush=True)
        for table, value in zip(tables, (row, measured), strict=True):
            table[source.name] = value
        if not arguments.dry:  # after each source: one that can't be opened costs no other
            for path, table in zip((TABLE, RESULTS), tables, strict=True):
                write_atomic((json.dumps(table, indent=1) + "\n").encode(), path)


if __name__ == "__main__":
    main()
