#!/usr/bin/env bash
# Where to look, learned and measured against every rival: all tables and plots of the pages, from the bundled base
# model and nothing else. Its weights are not touched; every page is drawn.
#
# Cost      2 CPU cores, 3 GiB, no GPU: about an hour and a half of training (one run after the other), three quarters of
#           an hour of measuring.
# Expected  runs/results/study.json (2,000 held-out questions at 1024 x 1024 px), ablation.json, hypothesis.json: what
#           the pages show. The same seeds give the same weights on the same machine and versions.
# Resumable killed at any point, the same command goes on: training from its last checkpoint, measuring from its last
#           page. Finished parts are left alone.
#
# Run from the repository root, with the extra `train` installed:  bash runs/study.sh
set -euo pipefail
out=${OUT:-runs/out/study}
python=${PYTHON:-python}
arr="$python -m arr_coc"
mkdir -p "$out"

teach() {  # teach NAME RECIPE [KEY=VALUE ...]: one allocator, unless it is there
    local name=$1; shift
    [ -f "$out/$name/curve.png" ] || $arr train "$@" --out "$out/$name"
}

ablate() {  # ablate NAME RECIPE [KEY=VALUE ...]: the layer with one part left out, as an ordinary allocator
    $python runs/ablation.py "$@" --out "$out/ablation/$1"
}

measure() {  # measure NAME [ARGUMENT ...]: two processes share the pages, each with one thread; then one result
    local name=$1; shift
    for part in 1 2; do
        OMP_NUM_THREADS=1 $arr eval "$@" --part $part/2 --out "$out/$name-$part" > /dev/null &
    done
    wait
    $arr report "$out/$name-1.jsonl" "$out/$name-2.jsonl" --out "runs/results/$name"
    gzip -9nf "runs/results/$name.jsonl"
}

# 1. Ours: boxes, then answers, then hard cases.
teach relevance relevance steps=800
teach answers answers init="$out/relevance" steps=100
teach allocator hard init="$out/answers" steps=100

# 2. The strongest rival: a learned scorer that never sees the question; same stages, pages and losses, and a hundred steps
#    more. It was published with a soft top-k found by bisection, without noise, a curriculum to hard masks, and biases.
#    What was used here is a hard top-k of scores with Gumbel noise, whose derivative is that soft top-k's, and no
#    curriculum; the bundled scorer, which the tables show, was learned before queries and keys had biases.
teach blind-relevance query-blind steps=800
teach blind-answers query-blind stage=answers estimator=gumbel relevance=0 lr=3e-4 steps=100 init="$out/blind-relevance"
teach query-blind query-blind stage=hard estimator=gumbel lr=3e-4 steps=200 init="$out/blind-answers"

# 3. The oldest hypothesis: on boxes, selection IoU more than doubles within 1000 steps.
$python runs/from_boxes_alone.py "$out/relevance" runs/results/hypothesis.json

$python runs/adversarial.py "$out/allocator" runs/results/adversarial.json

# 4. Ablations: stage 1 alone, 200 steps on small pages each; what each part is worth.
short="steps=200 sizes=512,512,768 questions=12"
teach ablation/all relevance $short
ablate no-information relevance $short
ablate no-perspectival relevance $short
ablate no-participatory relevance $short
ablate fixed-mixture relevance $short
ablate balancer-without-image relevance $short
ablate texture-alone relevance $short
teach ablation/linear relevance $short layer.preset=linear
#    Estimators: from an untrained layer, taught by answers alone. (scores-only has no way for an answer to teach, and the
#    recipe refuses it here: what it leaves is the untrained layer.)
for estimator in straight-through gumbel reinforce; do
    teach "ablation/answers-$estimator" answers $short init=none lr=3e-3 estimator=$estimator
done
$python - "$out/ablation/untrained" << 'END'
import sys
from pathlib import Path
from arr_coc.store.checkpoint import save_layer
from arr_coc.choose.layer import ARRCOCConfig, ARRCOCLayer
base = {"base_model": "bundled", "base_model_type": "qwen3_vl", "base_dim": 192}
save_layer(ARRCOCLayer(ARRCOCConfig(dim=192)), Path(sys.argv[1]), base)
END
#    Self-distillation: 200 images with questions and no labels; what the model itself used is what teaches.
[ -f "$out/pages/questions.jsonl" ] || $arr draw --count 200 --size 768x768 --split train --seed 5000 --out "$out/pages"
teach ablation/distilled distill data="folder:$out/pages" model=bundled precision=float32 questions=6 lr=3e-3 steps=120
rows="--allocator stage-1=$out/relevance --allocator stages-1-2=$out/answers --allocator stages-1-2-3=$out/allocator"
methods="full,oracle,random,arr-coc:stage-1,arr-coc:stages-1-2,arr-coc:stages-1-2-3"
for folder in "$out"/ablation/*/; do
    name=$(basename "$folder")
    rows="$rows --allocator $name=${folder%/}" methods="$methods,arr-coc:$name"
done
measure ablation $rows --methods "$methods" --budgets 64,auto --questions 400 --per-image 8 --timed 0
#    Forty texture channels against thirteen.
teach full40 relevance $short layer.channels=full40
measure channels --allocator "13=$out/ablation/all" --allocator "40=$out/full40" --methods "full,oracle,arr-coc:13,arr-coc:40" \
    --budgets 64,273 --questions 200 --per-image 8 --timed 0
#    The bundled allocator taught on by answers that are read in one mode or the other.
for mode in bundled prune saccade; do
    allocator=$out/through-$mode
    [ "$mode" = bundled ] && allocator=src/arr_coc/bundled/allocator ||
        teach "through-$mode" answers mode=$mode steps=100 sizes=1024 questions=6 relevance=0 compress=0 budgets=64,273
    measure "through-$mode" --allocator "$allocator" --methods "arr-coc saccade,arr-coc" --budgets 64 --questions 160 --per-image 8 --timed 0
done

# 5. Ours, nulls, rivals and the oracle, side by side: all of them choose after the encoder.
rivals="fastv,fastv:3,visionzip,divprune,cdpruner+,cdpruner-,prumerge+,prumerge+:joined,scope,mmtok,idpruner,visionselector"
measure study --methods "full,arr-coc,random,even grid,downsample,shuffled question,oracle,blind oracle,$rivals" \
    --allocator "$out/allocator" --query-blind "$out/query-blind/query_blind.safetensors" \
    --budgets 273,128,64,auto --questions 2000 --per-image 8 --timed 6
cp runs/results/study.png docs/pareto.png
$python runs/evidence.py runs/results/evidence.json

# 6. Before the encoder: a stem that sees cells in pixels, LoRAs for reading what is encoded in part, learned compressors.
#    They were taught with the bundled allocator and are measured with it: copy what $out/early holds (stem.safetensors,
#    tower4 and tower16 with their folders, partial/, coarse/) to src/arr_coc/bundled/allocator. About 25 + 45 + 40 minutes on one core.
mkdir -p "$out/early"
[ -f "$out/early/stem.safetensors" ] ||
    $python -m making.stem "$out/stem.safetensors" --steps 3300 --sheets 0.35 --folder "$out/early"
#    The LoRAs: the tower's by its own lesson, then both together, twice, in two processes, as one with two images a step; then
#    both together from there in two runs side by side, and the mean of where these two began and where they ended; so once
#    more on large pages, and a third time with many short steps, in which the whole tower teaches pages of 1,024 px and
#    smaller alone. Four hours of two cores (docs/log/2026-11-25.md).
pair() {  # pair NAME RECIPE [KEY=VALUE ...]: teach, in two processes of a thread each
    OMP_NUM_THREADS=1 arr="$python -m torch.distributed.run --nproc-per-node 2 -m arr_coc" teach "$@"
}
wide='sizes=[1024,1024,1536,2048]' less='sizes=[1024,1024,1024,1536,2048]'
pair eyes partial init="$out/allocator" answer=0 steps=320 warmup=30
pair both coarse init="$out/eyes" together=true hint=0.2 steps=300 warmup=30 "$wide"
pair eyes-2 partial init="$out/both" answer=0 steps=700 warmup=30 lr=1e-3 seed=1
pair both-2 coarse init="$out/eyes-2" together=true hint=0.2 steps=200 warmup=15 lr=8e-4 seed=2 'budgets=[64,160,273]' "$less"
side_by_side() {  # side_by_side NAME START STEPS SEED SEED [KEY=VALUE ...]: two runs from START, and the mean of all three
    local name=$1 start=$2 steps=$3 first=$4 second=$5 seed; shift 5
    for seed in "$first" "$second"; do
        OMP_NUM_THREADS=1 teach "$name-$seed" coarse init="$start" together=true hint=0.2 steps="$steps" seed="$seed" "$@" &
    done
    wait
    [ -d "$out/$name" ] || { cp -r "$start" "$out/$name" && rm -f "$out/$name"/curve.*; }  # a mean has no curve
    $python runs/mean_lora.py "$start" "$out/$name-$first" "$out/$name-$second" --out "$out/$name"
}
side_by_side mean "$out/both-2" 230 3 4 warmup=15 lr=8e-4 'budgets=[64,160,273]' "$less"
side_by_side mean-2 "$out/mean" 64 5 6 warmup=8 lr=6e-4 'budgets=[64,160,273]' 'sizes=[1024,2048,2048]'
side_by_side mean-3 "$out/mean-2" 900 11 12 warmup=30 lr=1e-3 questions=6 echo_pixels=1100000 'budgets=[64,64,96,160,273]' \
    'sizes=[768,1024,1024,1536,2048,2048]'
cp -r "$out/mean-3/partial" "$out/mean-3/coarse" "$out/early"
#    Compressors inside the tower, each by itself: features, then answers twice. (The bundled ones had conv4 and conv16, which
#    are gone, for the features' teachers; now averages of the whole tower's tokens teach.)
for factor in 4 16; do
    one="compressors=[\"tower$factor\"]" pages="sizes=[512,768,1024,1024]"
    teach "features$factor" tower answer=0 steps=1500 lr=2e-3 'sizes=[384,512,512,768]' "$one"
    teach "answers$factor" tower init="$out/features$factor" echo=0 steps=1200 "$pages" "$one"
    teach "tower$factor" tower init="$out/answers$factor" echo=0 steps=$((factor == 4 ? 500 : 600)) lr=1e-3 "$pages" "$one"
    cp -r "$out/tower$factor/tower$factor" "$out/tower$factor/tower$factor.safetensors" "$out/early"
done
#    tower16 goes on at up to 2048 px, which it is for: 4,096 tokens as 256.
large='sizes=[1024,1536,2048,2048]' one='compressors=["tower16"]'
teach large tower init="$out/tower16" echo=0 steps=500 lr=8e-4 precision=mixed "$large" "$one"
teach larger tower init="$out/large" echo=0 steps=700 lr=8e-4 precision=mixed seed=3 "$large" "$one"
cp -r "$out/larger/tower16" "$out/larger/tower16.safetensors" "$out/early"
coc="coc resize,coc pool4,coc pool16"
early="arr-coc sparse,arr-coc saccade,shuffled question sparse,oracle sparse,$coc"
measure sparse --methods "full,arr-coc,random,downsample,oracle,blind oracle,$early,fastv,fastv:1,fastv:3,fastv:4,visionzip,prumerge+,scope,idpruner" \
    --budgets 273,64 --questions 400 --per-image 8 --timed 4
cp runs/results/sparse.png docs/early.png
measure saccade --size 2048 \
    --methods "full,arr-coc saccade,arr-coc sparse,arr-coc,coc resize,downsample,fastv,idpruner" \
    --budgets 529,273 --questions 96 --per-image 8 --timed 2
$python runs/times.py runs/results/times.json
$python runs/training_free.py runs/results/training-free.json
$python runs/long_text.py runs/results/long-text.json && $python runs/long_plot.py
$python runs/transcription.py runs/results/transcription.json
$python runs/arrangement.py runs/results/arrangement.json --size 1024 --questions 40

mkdir -p runs/results/curves/study
for folder in "$out"/*/ "$out"/ablation/*/; do
    [ ! -f "$folder/curve.jsonl" ] || cp "$folder/curve.jsonl" "runs/results/curves/study/$(basename "$folder").jsonl"
done
$python runs/readme.py

# To ship it: copy $out/allocator's two arr_coc files to src/arr_coc/bundled/allocator and query_blind.safetensors to
# lab/src/arr_coc_lab, then python -m making.familiarity (a stem of another run sees pages otherwise; its --unseen adds rows) and
# python runs/sample.py value.
