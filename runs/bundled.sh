#!/usr/bin/env bash
# The bundled base model, from nothing: no download, every image is drawn by arr_coc_lab.world. Its allocator is made and
# measured by runs/study.sh.
#
# Cost      2 CPU cores, 3 GiB of memory, no GPU: 65 minutes for the eyes (stage 1) with the language model (stage 2)
#           beside it, one core each; 20 minutes more for the eyes on large pages; an hour for stage 3. bf16 autocast: on cores without AVX512-BF16 about a third more.
# Expected  what runs/results/study.json says of "full", on 2,000 held-out questions at 1024 x 1024 px. The bundled weights came from these stages in two runs, and not every
#           step of them had today's settings (sheets, places and clues were found on the way: docs/log/2026-11-21.md), so a run
#           from nothing follows the same curves (runs/results/curves), not the same numbers.
# Resumable killed at any point, the same command goes on from the last checkpoint ($out/*.safetensors); curves are the
#           .jsonl files beside them. INIT=src/arr_coc/bundled/model/model.safetensors goes on from what is bundled
#           (START=6000, say, to begin that far down the schedules).
#
# Run from the repository root, with the package installed:  bash runs/bundled.sh
# Keep OUT outside of the tree if anything cleans it while this runs.
set -euo pipefail
out=${OUT:-runs/out/bundled}
python=${PYTHON:-python}
from=${INIT:+--init $INIT --start ${START:-0}}
mkdir -p "$out"

# 1. Eyes, densely: every visual token says what its cell holds.   2. Mind, on symbolic pages: no picture is drawn.
eyes="$python -m making.vision $out/vision.safetensors --cells 512 --steps ${STEPS1:-10800} --lr 2e-3"
OMP_NUM_THREADS=1 $eyes $from --sizes 256,256,256,256,384,512 --sheets 0.65 --until "${UNTIL1:-9200}" --threads 1 &
small=$!
OMP_NUM_THREADS=1 $python -m making.language "$out/language.safetensors" $from \
    --batch 8 --steps "${STEPS2:-6000}" --lr 2.5e-3 --threads 1
wait $small
$eyes --sizes 256,512,768,1024 --sheets 0.4 --threads 2

# 3. Together, on answers, up to the real size.
$python -m making.together "$out/together.safetensors" \
    --eyes "$out/vision.safetensors" --mind "$out/language.safetensors" \
    --sizes 256,512,768,1024,1024 --sheets 0.3 --cells 512 --steps "${STEPS3:-3300}" --lr 6e-4 --dense 0.1 \
    --folder "$out/model"

# 4. Copy $out/model to src/arr_coc/bundled/model; then `bash runs/study.sh` makes its allocator and measures both,
#    and `python runs/sample.py` chooses the sample.

# 5. It goes on to browser-rendered pages with `bash runs/reads.sh`, from the same weights.
