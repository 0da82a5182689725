#!/usr/bin/env bash
# The bundled model goes on to read browser-rendered pages, beside the drawn ones.
#
# Needs     pages of `arr-coc world`: 3,000 of split train in $PAGES, 300 of split test in $TESTS (12 minutes of a core).
# Cost      0.7 s a step on one CPU core alone: 5,000 steps an hour.
# Resumable killed at any point, the same command goes on from the last checkpoint ($out/*.safetensors), which is
#           written every 250 steps; curves are the .jsonl files beside them.
#
# Run from the repository root, with the package installed:  OUT=folder PAGES=folder bash runs/reads.sh
set -euo pipefail
out=${OUT:-runs/out/reads}
pages=${PAGES:-runs/out/pages}
tests=${TESTS:-$pages}
python=${PYTHON:-python}
model=${MODEL:-src/arr_coc/bundled/model/model.safetensors}
export OMP_NUM_THREADS=1
# Yield to whatever else runs here.
if [ -n "${YIELD:-}" ]; then echo "$YIELD" > /proc/self/autogroup; fi
mkdir -p "$out"

# 1. The eyes: every cell says the characters that it shows.
$python -m making.reading "$out/eyes.safetensors" --pages "$pages" --held-out "$tests" --init "$model" \
    --steps "${STEPS1:-30000}" --lr 1.5e-3 --drawn 0.3
