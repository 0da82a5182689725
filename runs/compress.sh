#!/usr/bin/env bash
# What a picture is worth in few tokens: every gestalt beside shrinking, truncation and cells chosen by the question, on
# drawn pages of 1024 and 2048 px, and what each computes, in the bundled model and in the 2B shape; on pages that a browser
# lays out as well, where PAGES names a folder of them (arr-coc world test-pages --split test).
#
# Cost      two cores: 25 minutes for the answers (PARTS=scores), 30 for the times in the 2B shape (PARTS=work).
# Resumable killed, the same line goes on where it was.
#
# Run from the repository root, with the package installed:  bash runs/compress.sh
set -euo pipefail
out=${OUT:-runs/results}
arr=${ARR:-arr-coc}
python=${PYTHON:-python}
parts=${PARTS:-scores work}
blind="coc resize,coc pool4,coc tower4,coc pool16,coc tower16,averaged patches 4,averaged patches 16"
ours="arr-coc saccade,arr-coc saccade tower4,arr-coc saccade tower16"

if [[ $parts == *scores* ]]; then
    OMP_NUM_THREADS=1 $arr eval --methods "full,downsample,truncation,arr-coc sparse,$blind,$ours" --budgets 64,256,400 \
        --questions 150 --timed 6 --out "$out/compress-1024" > /dev/null &
    # Shrunk pictures of about the time of tower4, and of tower16 at 2048 px.
    OMP_NUM_THREADS=1 $arr eval --methods "full,coc tower4,downsample" --budgets 450,484,529 --questions 150 --timed 6 \
        --out "$out/compress-shrunk" > /dev/null
    OMP_NUM_THREADS=1 $arr eval --size 2048 --methods "full,coc tower16,downsample" --budgets 784,900,1024 --questions 40 \
        --per-image 8 --timed 2 --out "$out/compress-shrunk-2048" > /dev/null
    large="coc resize,coc pool16,coc tower16,averaged patches 16"
    OMP_NUM_THREADS=1 $arr eval --size 2048 --methods "full,downsample,truncation,arr-coc sparse,$large,arr-coc saccade,arr-coc saccade tower16" \
        --budgets 256,529 --questions 40 --per-image 8 --timed 2 --out "$out/compress-2048" > /dev/null
    OMP_NUM_THREADS=1 $arr eval --size 2048 --methods "arr-coc saccade,arr-coc saccade tower16" --budgets 529 --questions 96 \
        --per-image 8 --timed 4 --out "$out/saccade-gestalts" > /dev/null
    wait $!
fi

if [[ -n ${PAGES:-} ]]; then
    OMP_NUM_THREADS=1 $arr eval --data "rendered:$PAGES" --methods "full,downsample,truncation,arr-coc sparse,$blind,$ours" \
        --budgets 256 --questions 60 --timed 0 --out "$out/compress-browser" > /dev/null
fi

if [[ $parts == *work* ]]; then
    ways="stock,compress,compress pool4,compress tower4,compress pool16,compress tower16"
    mkdir -p bench/results/gestalts
    $arr bench --modes "$ways,saccade,saccade tower4,saccade tower16" --rounds 3 --json > bench/results/gestalts/bundled-1024.json
    $arr bench --size 2048 --modes "stock,compress,compress pool16,compress tower16,saccade,saccade tower16" \
        --rounds 1 --json > bench/results/gestalts/bundled-2048.json
    $python bench/prefill.py --dtype float32 --rounds 1 --modes "stock,compress,compress tower4,compress tower16,saccade tower4" \
        --out bench/results/gestalts/random-2b-1024.json
    # All tokens of 2048 px are in bench/results/2b-2048.json: minutes for one of them.
    $python bench/prefill.py --dtype float32 --rounds 1 --size 2048 --modes "compress,compress tower16,saccade,saccade tower16" \
        --out bench/results/gestalts/random-2b-2048.json
fi
