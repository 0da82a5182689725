#!/usr/bin/env bash
# The bundled model and its allocator, from nothing: no download, every image is drawn by arr_coc.world.
#
# Cost      about 3 hours on 2 CPU cores (stages 1 and 2 run side by side, one core each), 3 GiB of memory, no GPU needed.
# Expected  see runs/results/bundled.json: exact match on 2,000 held-out questions at 1024 x 1024 px, per family, with
#           all 1024 tokens and with 273, 128, 64 and auto, beside random and even-grid selection.
# Resumable killed at any point, the same command goes on from the last checkpoint (runs/out/bundled/*.safetensors);
#           curves are the .jsonl files beside them.
#
# Run from the repository root, with the package installed:  bash runs/bundled.sh
set -euo pipefail
out=${OUT:-runs/out/bundled}
python=${PYTHON:-python}
mkdir -p "$out"

# 1. Eyes, densely: every visual token says what its cell holds.          2. Mind, on symbolic pages: no picture is drawn.
OMP_NUM_THREADS=1 $python -m arr_coc.training.vision "$out/vision.safetensors" --size 256 --steps 4200 --cells 512 --lr 2e-3 --threads 1 &
eyes=$!
OMP_NUM_THREADS=1 $python -m arr_coc.training.language "$out/language.safetensors" --steps 5000 --batch 6 --lr 2e-3 --threads 1
wait $eyes

# 3. Together, on answers, sizes growing up to the real one.
$python -m arr_coc.training.together "$out/together1.safetensors" --eyes "$out/vision.safetensors" --mind "$out/language.safetensors" \
    --sizes 320,384,512 --cells 640 --steps 1000 --lr 1e-3
$python -m arr_coc.training.together "$out/together2.safetensors" --init "$out/together1.safetensors" \
    --sizes 512,768,1024 --cells 1024 --steps 500 --lr 6e-4 --hint 0.05 --folder "$out/model"

# 4. Relevance: where to look, from evidence boxes; the model is frozen.
$python -m arr_coc.training.relevance "$out/relevance.safetensors" --model "$out/model" --allocator "$out/allocator" --steps 800

# 5. Measure.
$python -m arr_coc.evaluate --model "$out/model" --allocator "$out/allocator" --questions 2000 --out "$out/bundled"
