#!/usr/bin/env bash
# Where to look, learned and measured against every rival: all tables and plots of the README, from the bundled base
# model and nothing else. Its weights are not touched; every page is drawn.
#
# Cost      COST
# Expected  runs/results/study.json (2,000 held-out questions at 1024 x 1024 px), ablation.json, hypothesis.json: what
#           the README shows. The same seeds give the same weights on the same machine and versions.
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

# 1. Ours: boxes, then answers, then hard cases.
teach relevance relevance steps=800
teach answers answers init="$out/relevance" steps=100
teach allocator hard init="$out/answers" steps=200

# 2. The strongest rival: a learned scorer that never sees the question; same stages, pages, losses and steps, and the
#    estimator it was published with.
teach blind-relevance query-blind steps=800
teach blind-answers query-blind stage=answers estimator=gumbel relevance=0 lr=3e-4 steps=100 init="$out/blind-relevance"
teach query-blind query-blind stage=hard estimator=gumbel lr=3e-4 steps=200 init="$out/blind-answers"

# 3. The oldest hypothesis: on boxes, selection IoU more than doubles within 1000 steps.
$python runs/hypothesis.py "$out/relevance" runs/results/hypothesis.json

$python runs/adversarial.py "$out/allocator" runs/results/adversarial.json

# 4. Ablations: stage 1 alone, 300 steps on small pages each; what each part is worth.
short="steps=300 sizes=512,512,768 questions=12"
teach ablation/all relevance $short
teach ablation/no-information relevance $short layer.scorers=perspectival,participatory
teach ablation/no-perspectival relevance $short layer.scorers=information,participatory
teach ablation/no-participatory relevance $short layer.scorers=information,perspectival
teach ablation/fixed-mixture relevance $short layer.balancer=fixed
teach ablation/balancer-without-image relevance $short layer.balancer=blind
teach ablation/texture-alone relevance $short layer.tokens=false
teach ablation/linear relevance $short layer.preset=linear
#    Estimators: from an untrained layer, taught by answers alone.
for estimator in straight-through gumbel reinforce scores-only; do
    teach "ablation/answers-$estimator" answers $short init=none lr=3e-3 estimator=$estimator
done
#    Self-distillation: 200 images with questions and no labels; what the model itself used is what teaches.
[ -f "$out/pages/questions.jsonl" ] || $arr draw --count 200 --size 768x768 --split train --seed 5000 --out "$out/pages"
teach ablation/distilled distill data="folder:$out/pages" model=bundled precision=float32 questions=6 lr=3e-3 steps=200
rows=""
for folder in "$out"/ablation/*/; do rows="$rows --allocator $(basename "$folder")=$folder"; done
$arr eval $rows --allocator stage-1="$out/relevance" --allocator stages-1-2="$out/answers" \
    --allocator stages-1-2-3="$out/allocator" --methods full,arr-coc,oracle,random \
    --budgets 64,auto --questions 500 --timed 0 --out runs/results/ablation

# 5. Ours, nulls, rivals and the oracle, side by side.
$arr eval --allocator "$out/allocator" --query-blind "$out/query-blind/query_blind.safetensors" \
    --budgets 273,128,64,auto --questions 2000 --timed 60 --out runs/results/study
$python runs/readme.py
