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
teach relevance relevance steps=600
teach answers answers init="$out/relevance" steps=150
teach allocator hard init="$out/answers" steps=250

# 2. The strongest rival: a learned scorer that never sees the question, same pages, losses and number of steps.
teach query-blind query-blind stage=hard estimator=gumbel steps=1000

# 3. The oldest hypothesis: on boxes, selection IoU more than doubles within 1000 steps.
$python runs/hypothesis.py "$out/relevance" runs/results/hypothesis.json

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
rows=""
for folder in "$out"/ablation/*/; do rows="$rows --allocator $(basename "$folder")=$folder"; done
$arr eval $rows --allocator stage-1="$out/relevance" --allocator stages-1-2="$out/answers" \
    --allocator stages-1-2-3="$out/allocator" --methods full,arr-coc,oracle,random \
    --budgets 128,64,auto --questions 600 --timed 0 --out runs/results/ablation

# 5. Ours, nulls, rivals and the oracle, side by side.
$arr eval --allocator "$out/allocator" --query-blind "$out/query-blind/query_blind.safetensors" \
    --budgets 273,128,64,auto --questions 2000 --timed 60 --out runs/results/study
