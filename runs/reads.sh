#!/usr/bin/env bash
# The bundled model goes on to read browser-rendered pages, beside the drawn ones.
#
# Needs     pages of `arr-coc world`: 3,000 of split train in $PAGES, some hundreds of split test in $TESTS (12 minutes
#           of a core).
# Cost      eyes 0.6 s, language model 0.7 s a step, one CPU core each; $STEPS1 and $STEPS2 say how far. To let it
#           yield to whatever else runs on a machine: echo 5 > /proc/self/autogroup in the shell that starts it.
# Resumable killed at any point, the same command goes on from the last checkpoint ($out/*.safetensors), which is
#           written every few minutes; curves are the .jsonl files beside them. Other numbers of steps make another
#           schedule: the learning rate falls to nothing at the last.
#
# Run from the repository root, with the package installed:  OUT=folder PAGES=folder TESTS=folder bash runs/reads.sh
set -euo pipefail
out=${OUT:-runs/out/reads}
pages=${PAGES:-runs/out/pages}
python=${PYTHON:-python}
model=${MODEL:-src/arr_coc/bundled/model/model.safetensors}
export OMP_NUM_THREADS=1
mkdir -p "$out"

# 1. Eyes: every cell says the characters that it shows.   2. Mind: answers spelled from what perfect eyes would say.
$python -m making.reading "$out/eyes.safetensors" --pages "$pages" --held-out "${TESTS:-$pages}" --init "$model" \
    --steps "${STEPS1:-24000}" --lr 1.5e-3 --drawn 0.3 &
eyes=$!
$python -m making.answers "$out/mind.safetensors" --pages "$pages" --init "$model" \
    --steps "${STEPS2:-14000}" --lr 2e-3 --drawn 0.25
wait $eyes

# 3. Together, on answers about rendered and drawn pages; then the model is measured.
$python -m making.rendered "$out/together.safetensors" --base "$model" --eyes "$out/eyes.safetensors" \
    --mind "$out/mind.safetensors" --pages "$pages" --steps "${STEPS3:-5000}" --lr 6e-4 --drawn 0.4 --folder "$out/model"
$python runs/reading.py "$out/model" "$out/reading.json" --pages "${TESTS:-$pages}" > "$out/answers.jsonl"
