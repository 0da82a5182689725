#!/usr/bin/env bash
# After the LoRAs for reading in part were taught again: every row of a result file that they change, measured anew and
# joined to the rows that they don't change, whose questions are the same.
#
# Cost      an hour on two free cores, one process on each.
# Resumable killed, the same line goes on: a measurement that is finished has a file NAME.done in $OUT.
# Then      python runs/long_plot.py, python -m arr_coc report runs/results/sparse.jsonl.gz --out early (docs/early.png),
#           python runs/readme.py, and whatever a document says of these figures in words.
#
# PAGES is a folder of browser-rendered pages (arr-coc world test-pages --split test --pages 12), for compress-browser.
# Run from the repository root, with the package installed:  PAGES=test-pages bash runs/retaught.sh
set -euo pipefail
out=${OUT:-runs/out/retaught}
python=${PYTHON:-python}
arr="$python -m arr_coc"
export OMP_NUM_THREADS=1
mkdir -p "$out"

once() {  # once NAME COMMAND ...: run it, unless it has finished before
    local name=$1; shift
    [ -f "$out/$name.done" ] || { date +"%T $name"; "$@" > "$out/$name.log" 2>&1; touch "$out/$name.done"; }
}

rows() {  # rows NAME METHODS BUDGETS QUESTIONS [ARGUMENT ...]: rows without times, which don't depend on weights
    local name=$1 methods=$2 budgets=$3 questions=$4; shift 4
    once "$name" $arr eval --out "$out/$name" --methods "$methods" --budgets "$budgets" --questions "$questions" --timed 0 "$@"
}

saccades="arr-coc saccade,arr-coc saccade tower16"
first() {
    rows sparse-1 "arr-coc sparse,arr-coc saccade,shuffled question sparse,oracle sparse" 273,64 400 --per-image 8 --part 1/2
    rows compress-1024 "arr-coc sparse,$saccades,arr-coc saccade tower4" 64,256,400 150
    rows resolution "arr-coc sparse" 273,64 200
    once transcription $python runs/transcription.py "$out/transcription.json" --pages 3
    once guide-answers $python runs/guide_answers.py --pages 120 --out "$out/guide-answers.json"
    once long-text $python runs/long_text.py "$out/long-text.json" --pages 12 --values 4
}
second() {
    rows sparse-2 "arr-coc sparse,arr-coc saccade,shuffled question sparse,oracle sparse" 273,64 400 --per-image 8 --part 2/2
    rows saccade "arr-coc saccade,arr-coc sparse" 529,273 96 --size 2048 --per-image 8
    rows saccade-gestalts "$saccades" 529 96 --size 2048 --per-image 8
    rows compress-2048 "arr-coc sparse,$saccades" 256,529 40 --size 2048 --per-image 8
    once follow $python bench/follow.py --pages 50 --times bench/results/follow.json --out "$out/follow.json"
    [ -z "${PAGES:-}" ] || rows compress-browser "arr-coc sparse,$saccades,arr-coc saccade tower4" 256 60 --data "rendered:$PAGES"
}
first & second
wait $!

$python runs/rows.py runs/results/sparse "$out/sparse-1.jsonl" "$out/sparse-2.jsonl" --retaught
for name in saccade saccade-gestalts compress-1024 compress-2048 resolution ${PAGES:+compress-browser}; do
    $python runs/rows.py "runs/results/$name" "$out/$name.jsonl" --retaught
done
for name in long-text transcription guide-answers; do
    sed "s|$out/|runs/results/|g" "$out/$name.json" > "runs/results/$name.json"
done
sed "s|$out/|bench/results/|g" "$out/follow.json" > bench/results/follow.json
