"""Exports: a ModelNew that keeps constructor and state of the original and depends on nothing of ours."""

import ast
import subprocess
import sys

import judge_problems as problems
import pytest
import torch

from warpsmith.kernels.capture import capture
from warpsmith.kernels.device import model_for
from warpsmith.kernels.errors import UserError
from warpsmith.kernels.families.registry import COMPOSER
from warpsmith.kernels.family import spec_for
from warpsmith.kernels.partition.compose import compose
from warpsmith.kernels.problem import load_problem
from warpsmith.kernels.records import Buffer, Candidate, KernelStep, LaunchPlan, Outcome, Quantiles, RunManifest
from warpsmith.tools.export import export, model_new, pinned
from warpsmith.tools.runs.store import RunStore

SOURCE = 'extern "C" __global__ void k(const float* x, float* out) {}\n'


def plan(*args, **more):
    step = KernelStep(kernel="k", grid=(1, 1, 1), block=(32, 1, 1), args=args, **more)
    return LaunchPlan(steps=(step,), buffers={"tmp0": Buffer(dtype="float32", shape=(4,), init="zero")})


def loaded_text(text):
    namespace: dict = {"__name__": "exported"}
    exec(compile(text, "model_new.py", "exec"), namespace)
    return namespace


def test_model_new_keeps_the_module_and_imports_nothing_of_ours(tmp_path):
    problem = problems.problem(tmp_path, problems.LAYER_NORM)
    made = Candidate(source=SOURCE, plan=plan("in0", "param:norm.weight", "param:norm.bias", "out0", "tmp0"))
    text = model_new(problem, made, arch="sm_90")
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert imported == {"torch", "numpy", "cupy", "base64", "ctypes", "operator"}
    exported = loaded_text(text)
    model = exported["ModelNew"](*exported["get_init_inputs"]())
    original = exported["Model"](*exported["get_init_inputs"]())
    assert list(model.state_dict()) == list(original.state_dict()) == ["norm.weight", "norm.bias"]
    model.load_state_dict(original.state_dict())
    with pytest.raises(ValueError, match=r"verified for float32 of shape \(16, 96\)"):
        model(torch.rand(16, 97))
    with pytest.raises(ValueError, match="runs on an NVIDIA GPU"):
        model(torch.rand(16, 96))
    with pytest.raises(ValueError, match="takes 1 inputs"):
        model(torch.rand(16, 96), torch.rand(1))


def test_exported_file_runs_in_a_process_without_us(tmp_path):
    problem = problems.problem(tmp_path, problems.SOFTMAX)
    cluster = plan("in0", "out0", cluster=(2, 1, 1))
    (tmp_path / "model_new.py").write_text(model_new(problem, Candidate(source=SOURCE, plan=cluster), arch="sm_90"))
    script = "import model_new as m; m.ModelNew(); print('warpsmith' in __import__('sys').modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n", done.stderr


def test_numbers_among_the_inputs_take_the_type_of_their_parameter(tmp_path):
    path = tmp_path / "scale.py"
    path.write_text("import torch\ndef scale(a, s, n):\n    return a * s + n\n")
    problem = load_problem(f"{path}:scale", inputs="f32[8,8] 3.5 2")
    source = 'extern "C" __global__ void k(const float* a, float s, long long n, float* out) {}\n'
    types = ("u64 .ptr .align 1", "f32", "u64", "u64")
    ptx = ".visible .entry k(\n" + ",\n".join(f".param .{t} k_{n}" for n, t in enumerate(types)) + "\n)"
    made = Candidate(source=source, plan=plan("in0", "in1", "in2", "out0"))
    exported = loaded_text(model_new(problem, made, arch="sm_90", ptx=ptx))
    assert exported["_STEPS"][0]["args"] == ["in0", {"f32": "in1"}, {"i64": "in2"}, "out0"]
    assert isinstance(exported["ModelNew"](), torch.nn.Module)


def test_overrides_are_written_into_the_copied_source():
    source = "a = 1\nb = (2,\n     3)\nwords = 'é'; c = a + 1\n"
    assert pinned(source, {"b": "(300,)", "c": "7"}) == "a = 1\nb = (300,)\nwords = 'é'; c = 7\n"


def test_export_of_a_run(tmp_path):
    problem = problems.problem(tmp_path, problems.SOFTMAX, dim="64")
    made = Candidate(source=SOURCE, plan=plan("in0", "out0"))
    time = Quantiles(p10=1.0, p50=1.0, p90=1.0, n=3)
    with RunStore.create("x", tmp_path / "runs") as store:
        store.write_manifest(
            RunManifest(
                run_id=store.run_id,
                created="",
                config={"problem": problem.ref.model_dump(mode="json")},
                versions={},
                commit=None,
                device="d",
                arch="sm_90",
                seed=0,
                problem_hash=problem.hash,
                problem_path=str(problem.path),
            )
        )
        with pytest.raises(UserError, match="no verified candidate"):
            export(store, "cu")
        store.put_candidate(made)
        outcome = Outcome(candidate=made.id, problem_hash=problem.hash, status="ok", time_us=time)
        store.append_outcome(outcome)
        kernel, launch = export(store, "cu", to=tmp_path / "there")
        assert kernel.read_text() == SOURCE
        assert LaunchPlan.model_validate_json(launch.read_text()) == made.plan
        (path,) = export(store, "model_new")
        assert path == store.folder / "best" / "model_new.py"
        assert "(8, 64)" in path.read_text()
        problem.path.write_text(problem.source + "\n# changed\n")
        with pytest.raises(UserError, match="changed since"):
            export(store, "model_new")


@pytest.fixture
def layers(tmp_path):
    """A problem whose plan is library steps alone, with a view."""
    text = (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.c = nn.Conv2d(3, 4, 3, stride=2, bias=False)\n"
        "        self.w = nn.Parameter(torch.rand(2, 64))\n\n    def forward(self, x):\n"
        "        return self.c(x).flatten(1) @ self.w.t()\n\n\n"
        "def get_inputs():\n    return [torch.rand(2, 3, 9, 9)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    (tmp_path / "layers.py").write_text(text)
    problem = load_problem(str(tmp_path / "layers.py"))
    spec = spec_for(COMPOSER, compose(capture(problem), model_for("sm_90")), model_for("sm_90"))
    return problem, spec


def test_library_steps_and_views_are_called_as_in_the_plan(layers):
    problem, spec = layers
    made = spec.emit(spec.naive)
    exported = loaded_text(model_new(problem, made, arch="sm_90"))
    model, x = exported["ModelNew"](), torch.rand(2, 3, 9, 9)
    values = {"in0": x, "param:c.weight": model.c.weight, "param:w": model.w}
    values |= {name: torch.zeros(b.shape) for name, b in made.plan.buffers.items()} | {"out0": torch.zeros(2, 2)}
    values |= {n: values[v.of].as_strided(v.shape, v.strides, v.offset) for n, v in made.plan.views.items()}
    assert made.plan.views
    for step in exported["_STEPS"]:
        exported["_call_library"](step, values)
    assert torch.allclose(values["out0"], exported["Model"].forward(model, x), atol=1e-5)


@pytest.mark.parametrize("channels", [3, 1], ids=["dense", "elements that share memory"])
def test_a_graph_is_recorded_once_on_memory_of_its_own_and_replayed_for_any_caller(layers, channels):
    problem, spec = layers
    exported = loaded_text(model_new(problem, spec.emit(spec.naive | {"launch": "graph"}), arch="sm_90"))
    model, recorded, results = exported["ModelNew"](), [], []

    def run(inputs, outputs):
        model._enqueue(model._values(inputs, outputs, torch.device("cpu")), torch.device("cpu"))

    def record(steps):
        recorded.append(steps)
        return steps

    calls = [torch.rand(2, channels, 9, 9).expand(2, 3, 9, 9) for _ in range(3)]
    replay = exported["_Replay"]([calls[0]], [torch.zeros(2, 2)], run, record)
    for x in calls:
        results.append(torch.full((2, 2), torch.nan))
        replay([x], [results[-1]])
        assert torch.allclose(results[-1], exported["Model"].forward(model, x), atol=1e-5)
    assert len(recorded) == 1
    assert not torch.equal(results[0], results[1])


def test_a_recording_is_given_up_where_parameters_lie_elsewhere_or_numbers_change(layers):
    problem, spec = layers
    exported = loaded_text(model_new(problem, spec.emit(spec.naive | {"launch": "graph"}), arch="sm_90"))
    model, cpu = exported["ModelNew"](), torch.device("cpu")

    def moved(module):
        module.c.weight.data = module.c.weight.data.clone()

    def replaced(module):
        module.w = torch.nn.Parameter(module.w.detach().clone())

    def other_layer(module):
        module.c = torch.nn.Conv2d(3, 4, 3, stride=2)

    kept = exported["_Kept"]()
    assert not kept.fits(model, [2], cpu)
    for change in (moved, replaced, other_layer):
        kept.remember(model, [2], cpu)
        with torch.no_grad():
            model.w.mul_(2.0)
        assert kept.fits(model, [2], cpu)
        assert not kept.fits(model, [3], cpu)
        change(model)
        assert not kept.fits(model, [2], cpu)


def test_a_plan_without_a_graph_exports_nothing_of_one(layers):
    problem, spec = layers
    text = model_new(problem, spec.emit(spec.naive), arch="sm_90")
    assert not any(word in text for word in ("CUDAGraph", "threading", "weakref"))
    assert "capture_error_mode" in model_new(problem, spec.emit(spec.naive | {"launch": "graph"}), arch="sm_90")


def test_a_result_that_stays_where_a_library_puts_it_is_read_there(tmp_path):
    (tmp_path / "grows.py").write_text(
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.c = nn.ConvTranspose2d(3, 4, 3, bias=False)\n"
        "        self.w = nn.Parameter(torch.rand(2, 64))\n\n    def forward(self, x):\n"
        "        return self.c(x).flatten(1) @ self.w.t()\n\n\n"
        "def get_inputs():\n    return [torch.rand(2, 3, 2, 2)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    problem = load_problem(str(tmp_path / "grows.py"))
    spec = spec_for(COMPOSER, compose(capture(problem), model_for("sm_90")), model_for("sm_90"))
    made = spec.emit(spec.naive)
    assert [buffer.init for buffer in made.plan.buffers.values()] == ["result"]
    exported = loaded_text(model_new(problem, made, arch="sm_90"))
    model, x, out, cpu = exported["ModelNew"](), torch.rand(2, 3, 2, 2), torch.zeros(2, 2), torch.device("cpu")
    assert model._scratch(cpu) == {}
    model._enqueue(model._values([x], [out], cpu), cpu)
    assert torch.allclose(out, exported["Model"].forward(model, x), atol=1e-5)


def test_a_caller_is_given_what_a_library_has_made(tmp_path):
    (tmp_path / "grows.py").write_text(
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.c = nn.ConvTranspose2d(3, 4, 3, bias=False)\n\n"
        "    def forward(self, x):\n        return self.c(x)\n\n\n"
        "def get_inputs():\n    return [torch.rand(2, 3, 2, 2)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    problem = load_problem(str(tmp_path / "grows.py"))
    spec = spec_for(COMPOSER, compose(capture(problem), model_for("sm_90")), model_for("sm_90"))
    exported = loaded_text(model_new(problem, spec.emit(spec.naive), arch="sm_90"))
    assert exported["_LEFT"] == ("out0",)
    model, x, outputs = exported["ModelNew"](), torch.rand(2, 3, 2, 2), [None]
    model._run([x], outputs, torch.device("cpu"))
    assert torch.allclose(outputs[0], exported["Model"].forward(model, x), atol=1e-6)
