"""Rows of further methods in a result file: the same questions, answered by methods that were measured later.

    python runs/rows.py runs/results/study runs/out/study/rivals-1.jsonl runs/out/study/rivals-2.jsonl ...
    python runs/rows.py runs/results/study ... --rename "prumerge+=prumerge+:joined"

The first is NAME of NAME.jsonl.gz and NAME.json, which are written anew; the others are files of `arr-coc eval`, whole runs or
parts. Laws: question, answers and page of every line are those of the line it joins, and the base model's weights are the same;
every question gets every new row, else nothing is written; a row that was there is replaced, with its times, which were another's.
Lines of questions that NAME does not have are left out, so that a file of more questions serves one of fewer. No model runs.

--retaught: the new rows are of parts that were taught again and have the shapes they had, such as compressors. Rows without
times keep those that were there, which don't depend on weights; NAME's weights are those of today.

Files of before the twins have another print of the same base model, for its LoRAs were inside it. --witness FILE shows that it is
the same: a result with today's print whose answers, by every method that it shares with NAME and to every question of NAME, are NAME's.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from arr_coc_lab.results.files import Record, read_results, write_results
from arr_coc_lab.results.kinds import split_method
from arr_coc_lab.world.summary import summarise

BY_METHOD = ("said", "score", "kept", "tokens", "recall", "hit", "swap", "ms", "peak_mb")
"""What a line has of each method."""
TIMES = ("ms", "peak_mb")
"""What of it is of a shape rather than of weights."""
SAME = ("image", "question", "answers", "family", "total")
NOTED = ("command", "methods", "budgets", "versions", "weights", "machine")


def renamed(record: Record, names: dict[str, str]) -> Record:
    """The line with other names for some of its methods."""

    def new(label: str) -> str:
        name, budget = split_method(label)
        return names.get(name, name) + (f"@{budget}" if budget else "")

    changed = {
        field: {new(label): value for label, value in record[field].items()}
        for field in BY_METHOD
        if field in record
    }
    return record | changed


def joined(record: Record, other: Record, where: str, retaught: bool = False) -> Record:
    """The line with the rows of another one about the same question; where they are `retaught`, times that it lacks stay.

    Raises:
        ValueError: it is about another.
    """
    for field in SAME:
        if record.get(field) != other.get(field):
            raise ValueError(
                f"{where}: question {record['id']} has another {field}: measure on the same pages"
            )
    result = dict(record)
    for field in BY_METHOD:
        stays = retaught and field in TIMES
        own = {
            label: value
            for label, value in record.get(field, {}).items()
            if stays or label not in other["score"]
        }
        own |= other.get(field, {})
        if own:
            result[field] = own
        else:
            result.pop(field, None)
    return result


def of_the_same_model(
    header: dict[str, Any], records: list[Record], witness: tuple[dict[str, Any], list[Record]]
) -> dict[str, Any]:
    """The header with the witness's print of the base model, when all shared answers are the same; the old print is kept.

    Raises:
        ValueError: a question that the witness lacks, no method in both, or another answer.
    """
    theirs = {record["id"]: record["said"] for record in witness[1]}
    shared = {label for record in records for label in record["said"]}
    shared &= {label for said in theirs.values() for label in said}
    if not shared or any(record["id"] not in theirs for record in records):
        raise ValueError("the witness has not all of the questions, or no method in common: give another")
    for record in records:
        for label in sorted(shared & record["said"].keys()):
            if record["said"][label] != theirs[record["id"]].get(label):
                raise ValueError(
                    f"question {record['id']}: the witness has another answer of {label}: another model"
                )
    before = header["weights"]["base"]
    return header | {
        "weights": header["weights"] | {"base": witness[0]["weights"]["base"]},
        "print before": {"base": before, "same answers": len(records), "methods": sorted(shared)},
    }


def with_rows(
    header: dict[str, Any],
    records: list[Record],
    added: list[tuple[str, dict[str, Any], list[Record]]],
    retaught: bool = False,
) -> tuple[dict[str, Any], list[Record]]:
    """Header and lines of a result with the rows of others: (where, header, lines) each.

    Raises:
        ValueError: other weights of the base model, another question under the same id, or a question without rows.
    """
    header = header | {"joined": list(header.get("joined", []))}
    places = {record["id"]: i for i, record in enumerate(records)}
    records = list(records)
    labels: dict[str, int] = {}
    for where, own, lines in added:
        if own["weights"]["base"] != header["weights"]["base"]:
            raise ValueError(
                f"{where} was measured with other weights of the base model: {own['weights']['base']}"
            )
        for line in lines:
            if (place := places.get(line["id"])) is not None:
                records[place] = joined(records[place], line, where, retaught)
                for label in line["score"]:
                    labels[label] = labels.get(label, 0) + 1
        header["methods"] = list(dict.fromkeys([*header["methods"], *own["methods"]]))
        header["kinds"] = header.get("kinds", {}) | own["kinds"]
        if retaught:
            header["weights"] = header["weights"] | own["weights"]
        header["joined"].append({name: own.get(name) for name in NOTED})
    for label, count in labels.items():
        if count != len(records):
            raise ValueError(
                f"{label} has {count} of {len(records)} questions: run its measurement to its end first"
            )
    return header, records


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", type=Path, help="of NAME.jsonl.gz")
    parser.add_argument("rows", nargs="*", type=Path)
    parser.add_argument("--witness", type=Path, help="a result of the same model with today's print of it")
    parser.add_argument(
        "--rename", action="append", default=[], metavar="OLD=NEW", help="methods of NAME, before"
    )
    parser.add_argument(
        "--retaught", action="store_true", help="the rows are of parts that were taught again"
    )
    args = parser.parse_args()
    file = args.name.with_name(args.name.name + ".jsonl.gz")
    names = dict(change.split("=") for change in args.rename)
    try:
        header, records = read_results(file)
        if taken := set(names.values()) & set(header["methods"]):
            raise ValueError(f"{file} has {taken.pop()!r} already: it was renamed before")
        if args.witness:
            header = of_the_same_model(header, records, read_results(args.witness))
        header["methods"] = [names.get(name, name) for name in header["methods"]]
        header["kinds"] = {names.get(name, name): kind for name, kind in header.get("kinds", {}).items()}
        records = [renamed(record, names) for record in records]
        others = [(str(path), *read_results(path)) for path in args.rows]
        header, records = with_rows(header, records, others, args.retaught)
    except ValueError as error:
        parser.error(str(error))
    write_results(file, header, records)
    text = json.dumps(summarise(header, records), indent=1) + "\n"
    args.name.with_name(args.name.name + ".json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
