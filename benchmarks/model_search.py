"""A whole search by a model, of this process or of a server: replies valid, tokens, times, and the kernel at the end.

benchmarks/model_search.py --policy local:MODEL.gguf --json figures.json --markdown figures.md
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from warpsmith.agents.llm.records import Call, Message
from warpsmith.agents.llm.replies import ReplyStore
from warpsmith.agents.local.address import find_model, parse
from warpsmith.agents.local.decisions import Decisions
from warpsmith.agents.local.decode import recomputed, write
from warpsmith.agents.local.grammar import Grammar
from warpsmith.agents.local.model import load
from warpsmith.app.display import QuietDisplay
from warpsmith.app.optimize import Finished, OptimizeSettings, optimize_bench
from warpsmith.app.workbench import open_bench
from warpsmith.kernels.slots import ROLES

MOST_BUDGET = 64


def parsed(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--policy", required=True, help="local:PATH with its options, or chat:MODEL@URL")
    parser.add_argument("--problem", default=str(Path(__file__).resolve().parents[1] / "examples" / "softmax.py"))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=LITERAL", help="a constant of the problem")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="where kernels are judged")
    parser.add_argument("--budget", type=int, default=8, help="candidates; more where the roles said too little")
    parser.add_argument("--replies", type=int, default=20, help="replies of roles that are wanted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--checks", type=int, default=3, help="prompts that a model of this process writes once more in float32"
    )
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args(words)


def searched(arguments: argparse.Namespace) -> tuple[Finished, ReplyStore]:
    """The search, gone on with until the roles gave as many replies as are wanted."""
    overrides = dict(pair.split("=", 1) for pair in arguments.set)
    bench = open_bench(
        arguments.problem, device=arguments.device, arch=None, overrides=overrides, inputs=None, mode="eval"
    )  # fmt: skip
    budget, folder = arguments.budget, None
    while True:
        wanted = OptimizeSettings(
            problem=arguments.problem, device=arguments.device, policy=arguments.policy, budget=budget,
            verdicts=2, seed=arguments.seed, out=arguments.out, resume=folder,
        )  # fmt: skip
        finished = optimize_bench(bench, wanted, QuietDisplay())
        kept = ReplyStore(finished.folder)
        if len(by_roles(kept)) >= arguments.replies or budget >= MOST_BUDGET:
            return finished, kept
        budget, folder = budget + 8, finished.folder


def by_roles(kept: ReplyStore) -> list[list[Call]]:
    """The exchanges of each question to a role, without the planner's and the writer's."""
    return [calls for calls in kept.by_question().values() if calls[0].role in ROLES]


def figures(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything that is written."""
    started = time.monotonic()
    finished, store = searched(arguments)
    total = time.monotonic() - started
    calls, roles, best = store.calls(), by_roles(store), finished.result.best
    kept = [Decisions.unpacked(data) for call in calls if (data := store.decisions(call)) is not None]
    latency = sorted(call.latency_s for call in calls)
    tokens = sum(call.usage.completion_tokens for call in calls)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "model": calls[0].model if calls else arguments.policy,
        "judged_on": finished.device,
        "role_replies": len(roles),
        "role_replies_valid": sum(any(call.accepted for call in said) for said in roles),
        "role_replies_valid_at_once": sum(said[0].accepted for said in roles),
        "forms": dict(Counter(said[-1].rung for said in roles)),
        "exchanges_by_role": dict(Counter(call.role for call in calls)),
        "best_status": best.status if best else None,
        "best_us": best.cost_us if best else None,
        "best_is_measured": bool(best and best.time_us),
        "screened": finished.result.screened,
        "total_s": round(total, 1),
        "asking_s": round(sum(latency), 1),
        "reply_s_median": round(statistics.median(latency), 3) if latency else None,
        "reply_s_longest": round(latency[-1], 3) if latency else None,
        "prompt_tokens_longest": max((call.usage.prompt_tokens for call in calls), default=0),
        "completion_tokens": tokens,
        "decisions_a_reply": round(statistics.mean(sum(not f for f in one.forced) for one in kept), 1) if kept else 0,
        "logprob_a_reply": round(statistics.mean(one.total for one in kept), 2) if kept else None,
        "decisions_bytes_a_reply": round(statistics.mean(len(one.packed()) for one in kept)) if kept else 0,
        "dtype": kept[0].dtype if kept else None,
        "cpu_s": round(sum(one.ru_utime + one.ru_stime for one in used), 1),
        "peak_mb": round(used[0].ru_maxrss / 1024),
        "load_average": [round(one, 1) for one in os.getloadavg()],
        "cores": os.cpu_count(),
        **checked(arguments, kept[: arguments.checks]),
        "versions": versions(),
    }


def checked(arguments: argparse.Namespace, kept: list[Decisions]) -> dict[str, Any]:
    """Prompts of the search written once more in float32, against one forward pass over the whole reply."""
    if not kept:
        return {}
    import torch

    path, settings = parse(arguments.policy.removeprefix("local:"))
    started = time.monotonic()
    model = load(find_model(path), type(settings)(device=settings.device, dtype="float32"))
    loading = time.monotonic() - started
    schema = {
        "type": "object",
        "properties": {
            "why": {"type": "string"}, "threads": {"enum": [32, 64, 128, 256, 512]}, "unroll": {"enum": [1, 4]},
        },
    }  # fmt: skip
    grammar = Grammar(model.vocabulary, schema, (), text=settings.why, lines=0)
    prompts = [list(one.prompt_ids) for one in kept] + [model.prompt([Message(role="user", content="Choose.")])]
    worst = 0.0
    for seed, prompt in enumerate(prompts):
        made = write(model, prompt, grammar, seed=seed, temperature=1.0, room=grammar.most()).decisions
        again = recomputed(model, made)
        worst = max(worst, *(abs(a - b) for a, b in zip(again, made.logprobs, strict=True)))
    on_gpu = model.device.startswith("cuda")
    return {
        "model_device": torch.cuda.get_device_name(model.device) if on_gpu else "cpu",
        "model_gpu_mb": round(torch.cuda.max_memory_allocated(model.device) / 2**20) if on_gpu else None,
        "load_s_float32": round(loading, 1),
        "logprob_difference_float32": worst,
    }


def versions() -> dict[str, str]:
    """Of what decides the figures."""
    from importlib.metadata import version

    names = ("torch", "transformers", "tokenizers", "gguf", "accelerate", "numpy")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def command(arguments: argparse.Namespace) -> str:
    """What decided the figures, without the folders of this machine."""
    policy = arguments.policy if "://" in arguments.policy else re.sub(r":.*/(?=[^/]+$)", ":", arguments.policy)
    given = f"--policy {policy} --device {arguments.device} --budget {arguments.budget} --seed {arguments.seed}"
    return f"benchmarks/model_search.py {given}"


def markdown(found: dict[str, Any], called: str) -> str:
    """The figures as a table."""
    lines = ["# A search by a model", "", f"`{called}`", "", "| figure | value |", "|---|---|"]
    for name, value in found.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        lines.append(f"| {name.replace('_', ' ')} | {f'{shown:.2g}' if name.startswith('logprob_diff') else shown} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the figures; 1 where a reply of a role was not valid, or the kernel is not verified."""
    arguments = parsed(sys.argv[1:])
    found = figures(arguments)
    page = markdown(found, command(arguments))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(page)
    print(page)
    enough = found["role_replies"] >= arguments.replies and found["role_replies_valid"] == found["role_replies"]
    return 0 if enough and found["best_status"] == "ok" else 1


if __name__ == "__main__":
    sys.exit(main())
