#!/usr/bin/env bash
# What needs a GPU, part by part, each with a time limit and a log of its own: the tests marked gpu and the figures of docs/results.
# usage: benchmarks/gpu_round.sh OUT [PART ...]      PYTHON=... KERNELBENCH=.kernelbench MODEL=model.gguf
#        of learn: SPACES=DIR WORK=DIR RESUME=DIR SECONDS_A_SEED=360
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

learnt() { # what goes on from a study elsewhere, each file below 16 MiB: lines and curves, adapters, a checkpoint a seed
    [ -d "$work" ] || return 0
    tar -C "$work" -czf "$out/learn.tar.gz.new" --exclude=state.pt --exclude=policy --exclude=tensorboard --exclude='*/.*' . \
        && mv "$out/learn.tar.gz.new" "$out/learn.tar.gz"
    adapters=()
    for folder in "$work"/seed-*; do
        last=$(ls -d "$folder"/policy/v* 2> /dev/null | tail -n 1)
        [ -n "$last" ] && adapters+=("${last#"$work"/}")
        state=$(ls "$folder"/checkpoints/*/state.pt 2> /dev/null | tail -n 1)
        [ -n "$state" ] && cp "$state" "$out/state-${folder##*-}.pt.new" && mv "$out/state-${folder##*-}.pt.new" "$out/state-${folder##*-}.pt"
    done
    [ ${#adapters[@]} -gt 0 ] && tar -C "$work" -cf "$out/adapters.tar" "${adapters[@]}"
    return 0
}

learnt_before() { # takes over what `learnt` left in RESUME
    [ -n "${RESUME:-}" ] && [ ! -d "$work" ] || return 0
    mkdir -p "$work"
    tar -C "$work" -xzf "$RESUME/learn.tar.gz"
    [ -f "$RESUME/adapters.tar" ] && tar -C "$work" -xf "$RESUME/adapters.tar"
    for state in "$RESUME"/state-*.pt; do
        seed=${state##*state-}; folder=$(ls -d "$work/seed-${seed%.pt}"/checkpoints/[0-9]* 2> /dev/null | tail -n 1)
        [ -n "$folder" ] && cp "$state" "$folder/state.pt"
    done
    return 0
}

for name in "${@:-tests redteam hostile small_card}"; do
    for one in $name; do
        case $one in
            tests) part tests 540 "$python" -m pytest -q -m gpu tests/gpu --deselect tests/gpu/test_redteam_gpu.py ;;
            redteam) part redteam 450 "$python" -m pytest -q -s -m gpu tests/gpu/test_redteam_gpu.py ;;
            hostile) part hostile 300 "$python" benchmarks/hostile_batch.py "$out/hostile_batch.md" --gpu ;;
            small_card) # a card of 24 GB: the largest that eager runs there (23 GB), one whose rows are dependent, and what judging takes
                part small_card 200 env WARPSMITH_GPU_MEMORY_GB=24 "$python" -m warpsmith bench "$problems/.." --level 1 \
                    --ids 24,33,45,76,82 --budget 4 --verdicts 2 --seats 1 --workers 1 --minutes 3 --out "$out/small_card"
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
            learn) # SmolLM2 on recorded spaces (SPACES), three seeds side by side; goes on from WORK, or from an OUT of before (RESUME)
                work=${WORK:-$out/learn_work}
                learnt_before
                # Whoever is cut off has what there was until then.
                while sleep 20; do learnt; done 2> /dev/null & keeps=$!
                study=("$python" benchmarks/learn_study.py)
                same=(--spaces "${SPACES:-$out/spaces}" --problems "$problems" --model "${MODEL:?}" --to "$work")
                part learn 560 "${study[@]}" train "${same[@]}" --seconds "${SECONDS_A_SEED:-360}" --call 470
                kill $keeps; wait $keeps 2> /dev/null
                learnt ;;
            learn_live)
                work=${WORK:-$out/learn_work}
                learnt_before
                part learn_live 150 "$python" benchmarks/learn_study.py live --spaces "${SPACES:-$out/spaces}" \
                    --problems "$problems" --model "${MODEL:?}" --to "$work" --seconds 90 --together 3 --device gpu
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
