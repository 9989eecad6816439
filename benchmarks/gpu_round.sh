#!/usr/bin/env bash
# What needs a GPU, part by part, each with a time limit and a log of its own: the tests marked gpu and the figures of docs/results.
# usage: benchmarks/gpu_round.sh OUT [PART ...]      PYTHON=... KERNELBENCH=.kernelbench MODEL=model.gguf SPACES=DIR WORK=DIR
# parts: tests redteam hostile small_card products null verdicts numerics model suite spaces learn learn_live throughput agents_live
# spaces: slot spaces of 16 problems of level 1, half a minute each; goes on where OUT holds some already.
# suite: nine minutes of the whole benchmark a call; it goes on where OUT holds a suite run already.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:?usage: benchmarks/gpu_round.sh OUT [PART ...]}"); shift
python=${PYTHON:-.venv/bin/python}
problems=${KERNELBENCH:-.kernelbench}/level1
mkdir -p "$out"

part() { # NAME SECONDS COMMAND...
    local name=$1 limit=$2 began=$SECONDS; shift 2
    timeout --signal=INT --kill-after=20 "$limit" "$@" > "$out/$name.log" 2>&1
    echo "$name: exit $? after $((SECONDS - began)) s; $(tail -n 1 "$out/$name.log" | cut -c1-200)" | tee -a "$out/round.txt"
}

learnt() { # what of a study is small: lines, curves, and the last adapter of each seed
    tar -C "$work" -czf "$out/learn.tar.gz" --exclude=state.pt --exclude='policy' --exclude=tensorboard --exclude=ready.jsonl.gz .
    for folder in "$work"/seed-*; do
        adapter=$(ls -d "$folder"/policy/v* 2> /dev/null | tail -n 1)
        [ -n "$adapter" ] && cp "$adapter/adapter_model.safetensors" "$out/adapter-${folder##*-}.safetensors"
    done
}

for name in "${@:-tests redteam hostile small_card}"; do
    for one in $name; do
        case $one in
            tests) part tests 540 "$python" -m pytest -q -m gpu tests/gpu --deselect tests/gpu/test_redteam_gpu.py ;;
            redteam) part redteam 450 "$python" -m pytest -q -s -m gpu tests/gpu/test_redteam_gpu.py ;;
            hostile) part hostile 300 "$python" benchmarks/hostile_batch.py "$out/hostile_batch.md" --gpu ;;
            small_card) # a card of 24 GB: inputs of up to 6.4 GB, full verdicts, and what judging them takes
                part small_card 200 env WARPSMITH_GPU_MEMORY_GB=24 "$python" -m warpsmith bench "$problems/.." --level 1 \
                    --ids 1,24,33,40,82,95 --budget 4 --verdicts 2 --seats 1 --out "$out/small_card"
                "$python" benchmarks/peak_memory.py "$out/small_card" --limit 24 | tee "$out/peak_memory_h200.md" ;;
            products) part products 120 "$python" benchmarks/batched_matmul.py --device gpu --out "$out/batched_matmul.md" ;;
            null) part null 120 "$python" benchmarks/null_tests.py --times 20 ;;
            verdicts) part verdicts 240 "$python" benchmarks/verdict_rate.py --each 24 "$problems/19_ReLU.py" ;;
            numerics) part numerics 240 "$python" benchmarks/numerics.py --device cuda --out "$out/numerics.md" ;;
            suite)
                begun=$(ls -d "$out"/suites/*-bench-* 2> /dev/null | tail -n 1)
                if [ -n "$begun" ]; then again=("$problems/.." --resume "$begun"); else again=("$problems/.." --level 1,2,3 --out "$out/suites"); fi
                part suite 590 "$python" -m warpsmith bench "${again[@]}" --minutes 9 --baselines "$out/baselines"
                "$python" benchmarks/suite_table.py "$(ls -d "$out"/suites/*-bench-* | tail -n 1)" > "$out/suite.md" ;;
            spaces)
                files=(); for id in 1 23 26 36 38 40 41 42 44 47 51 82 89 92 94 98; do files+=("$problems/${id}_"*.py); done
                part spaces 590 "$python" benchmarks/record_space.py "${files[@]}" --to "$out/spaces" --most 300 --seconds 30 ;;
            learn) # SmolLM2 on recorded spaces (SPACES), three seeds side by side; WORK keeps trainings, OUT gets what is small
                work=${WORK:-$out/learn_work}
                study=("$python" benchmarks/learn_study.py)
                same=(--spaces "${SPACES:-$out/spaces}" --problems "$problems" --model "${MODEL:?}" --to "$work")
                part learn 560 "${study[@]}" train "${same[@]}" --seconds "${SECONDS_A_SEED:-360}" --call 470
                learnt ;;
            learn_live)
                work=${WORK:-$out/learn_work}
                part learn_live 100 "$python" benchmarks/learn_study.py live --spaces "${SPACES:-$out/spaces}" \
                    --problems "$problems" --model "${MODEL:?}" --to "$work" --seconds 60 --device gpu
                learnt ;;
            agents_live) # goes on where OUT holds some already
                work=${WORK:-$out}/agents_live
                part agents_live 140 "$python" benchmarks/agents_live.py "$problems"/{38,82}_*.py --to "$work" --seconds 110 \
                    --out "$out/agents_live.md"
                cp "$work/searches.jsonl" "$out/agents_live.jsonl" ;;
            throughput) # beside TRL's trainer, on one GPU (its Trainer spreads over all it sees): trl, datasets, dill, multiprocess
                wide=(--model "${MODEL:?}" --groups 8 --group-size 16 --prompt 415 --slots 6 --rank 8 --repeat 5)
                part throughput 150 env CUDA_VISIBLE_DEVICES=0 "$python" benchmarks/train_throughput.py "${wide[@]}" --micro-batch 128 \
                    --json "$out/throughput.json"
                part throughput_bf16 150 env CUDA_VISIBLE_DEVICES=0 "$python" benchmarks/train_throughput.py "${wide[@]}" --micro-batch 128 \
                    --dtype bfloat16 --autocast --json "$out/throughput_bf16.json" ;;
            model) part model 400 "$python" benchmarks/model_search.py --policy "local:${MODEL:?}" --device auto \
                --out "$out/runs" --json "$out/model.json" --markdown "$out/model.md" ;;
            *) echo "no part called $one" >&2; exit 2 ;;
        esac
    done
done
