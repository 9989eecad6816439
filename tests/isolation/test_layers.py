"""Each layer of a runner, by trying what it should stop; skipped where this machine has no such layer."""

import asyncio
import os

import pytest

from warpsmith.kernels.errors import EnvironmentError_, UserError
from warpsmith.kernels.problem import ProblemRef
from warpsmith.sandbox.isolation.policy import Policy
from warpsmith.sandbox.isolation.profile import ALWAYS, Isolation, is_on, profile_of, shortfall
from warpsmith.sandbox.isolation.proof import STOPPED_BY, prove
from warpsmith.sandbox.worker import RemoteError, Worker
from warpsmith.tools.runner_policy import runner_policy
from warpsmith.tools.target import Target

OTHERS = ("secrets in the environment", "endless job", "crash, then a good job")
TRIAL = "warpsmith.sandbox.isolation.trials:attempt"


@pytest.fixture(scope="module")
def proof():
    return asyncio.run(prove(Policy()))


@pytest.fixture(scope="module")
def bare():
    return asyncio.run(prove(Policy(profile="bare")))


@pytest.mark.parametrize("name", [*STOPPED_BY, *OTHERS])
def test_each_attempt_is_stopped_where_a_layer_is_there_for_it(proof, name):
    (trial,) = [one for one in proof.trials if one.name == name]
    if not trial.expected(proof.isolation):
        pytest.skip(f"this machine has none of {STOPPED_BY[name]}: {proof.isolation.layers}")
    assert trial.stopped, trial.detail


def test_the_profile_follows_from_the_layers(proof):
    assert proof.isolation.profile == profile_of(proof.isolation.layers)
    assert all(state.startswith(("on", "off")) for state in proof.isolation.layers.values())


def test_without_layers_the_attempts_work_so_that_the_trials_mean_something(bare):
    worked = {trial.name for trial in bare.trials if not trial.stopped}
    assert bare.isolation.profile == "bare"
    assert {"write outside", "read a secret file", "connect", "send a datagram", "signal the parent"} <= worked


@pytest.mark.parametrize("name", ["large file", "many open files", "many processes", "hold memory", *OTHERS])
def test_bare_still_bounds_and_scrubs(bare, name):
    (trial,) = [one for one in bare.trials if one.name == name]
    assert trial.stopped, trial.detail


def test_a_profile_asked_for_is_reached_or_refused_with_the_remedy(proof, monkeypatch):
    monkeypatch.setenv("WARPSMITH_ISOLATION", "strict")
    if proof.isolation.profile == "strict":
        assert asyncio.run(_isolation()).profile == "strict"
    else:
        with pytest.raises(EnvironmentError_, match=r"`strict` cannot be had here .*: run as root"):
            asyncio.run(_isolation())
    monkeypatch.setenv("WARPSMITH_ISOLATION", "bare")
    assert asyncio.run(_isolation()).profile == "bare"
    monkeypatch.setenv("WARPSMITH_ISOLATION", "tight")
    with pytest.raises(UserError, match="tight"):
        asyncio.run(_isolation())


def test_which_layers_make_which_profile():
    layers = dict.fromkeys(ALWAYS, "on")
    assert profile_of(layers) == "user"
    assert profile_of(layers | {"namespaces": "on", "user id": "on"}) == "strict"
    assert profile_of(layers | {"landlock": "off: none"}) == "bare"
    missing = shortfall("user", Isolation("bare", layers | {"landlock": "off: none"}))
    assert "landlock is off: none" in missing
    assert "Linux 5.13" in missing
    assert shortfall("user", Isolation("user", layers)) is None
    assert shortfall(None, Isolation("bare", {})) is None


def test_visible_files_of_a_problem_folder_are_read_hidden_ones_not(tmp_path):
    (tmp_path / "problem.py").write_text("x = 1")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("secret")
    (tmp_path / ".env").write_text("secret")

    async def body():
        async with Worker(preload=(), policy=Policy(folders=(str(tmp_path),))) as worker:
            if not is_on(worker.isolation.layers, "landlock"):
                pytest.skip("no Landlock here")
            found = {}
            for name in ("problem.py", ".ssh/id_rsa", ".env"):
                payload = {"name": "read a secret file", "secret": str(tmp_path / name)}
                found[name] = (await worker.call(TRIAL, payload, timeout_s=30))["stopped"]
            return found

    assert asyncio.run(body()) == {"problem.py": False, ".ssh/id_rsa": True, ".env": True}


def test_own_folders_can_be_written_and_are_gone_afterwards(tmp_path):
    async def body():
        async with Worker(preload=(), policy=Policy(cache=str(tmp_path))) as worker:
            names = await worker.call("warpsmith.sandbox.selftest:environment", None, timeout_s=30)
            written = []
            for name in ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR"):
                payload = {"name": "write outside", "folder": names[name]}
                written.append((await worker.call(TRIAL, payload, timeout_s=30))["stopped"])
            return names["TMPDIR"], written

    folder, stopped = asyncio.run(body())
    assert stopped == [False] * 4
    assert not os.path.exists(folder)  # noqa: PTH110


def test_what_a_problem_needs_can_be_read_and_is_named(tmp_path, monkeypatch):
    """Neighbours of the problem, packages of the folder above them not; more where a variable names it."""
    for name in ("work", "data"):
        (tmp_path / name).mkdir()
    problem = tmp_path / "work" / "problem.py"
    problem.write_text("x = 1")
    (tmp_path / "linked.py").symlink_to(problem)
    ref = ProblemRef(path=str(tmp_path / "linked.py"))
    target = Target(kind="cpu", arch="sm_90")
    policy = runner_policy(target, ref, tmp_path / "cache")
    assert {str(problem), str(tmp_path / "linked.py"), str(tmp_path / "cache")} <= set(policy.read)
    assert set(policy.folders) == {str(tmp_path), str(tmp_path / "work")}
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WARPSMITH_READ", f"{tmp_path / 'data'}:/somewhere")
    (tmp_path / "data" / "libnvrtc-builtins.so").touch()
    monkeypatch.setenv("WARPSMITH_NVRTC", str(tmp_path / "data" / "own.so"))
    policy = runner_policy(target, ref, tmp_path / "cache")
    assert set(policy.folders) == {str(tmp_path / "work")}
    assert {str(tmp_path / "data"), "/somewhere", str(tmp_path / "linked.py")} <= set(policy.read)
    assert {str(tmp_path / "data" / name) for name in ("own.so", "libnvrtc-builtins.so")} <= set(policy.read)


def test_a_file_that_is_out_of_reach_is_named_with_the_remedy(tmp_path):
    async def body():
        async with Worker(preload=()) as worker:
            if not is_on(worker.isolation.layers, "landlock"):
                pytest.skip("no Landlock here")
            await worker.call("warpsmith.sandbox.selftest:read", str(tmp_path / "weights.pt"), timeout_s=30)

    (tmp_path / "weights.pt").touch()
    with pytest.raises(RemoteError, match=r"weights.pt.*WARPSMITH_READ"):
        asyncio.run(body())


async def _isolation():
    async with Worker(preload=()) as worker:
        return worker.isolation
