"""A caller's script: files beside it are found again, and running it again starts no second search."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """import sys, torch, mynet
from pathlib import Path
from warpsmith.kernels.problem import live_problem
problem = live_problem(mynet.Net(), [torch.ones(3)], Path(sys.argv[1]))
print(problem.ref.model_dump_json())
"""
LOAD = """import sys
from warpsmith.kernels.problem import ProblemRef, load_ref
print(load_ref(ProblemRef.model_validate_json(sys.stdin.read())).instantiate().run()[0].tolist())
"""
UNGUARDED = """import sys, torch, warpsmith
from pathlib import Path
from warpsmith.kernels.problem import live_problem
class Net(torch.nn.Module):
    def forward(self, x):
        return x * 2
if len(sys.argv) > 1:
    print(live_problem(Net(), [torch.ones(3)], Path(sys.argv[1])).ref.model_dump_json())
else:
    warpsmith.optimize(Net(), [torch.ones(3)], out=Path(__file__).parent / "stray")
"""


def run(*command: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """A Python process of its own, with the search path that Python gives a script by default."""
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = (sys.executable, *command)
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, env=surroundings)


def test_a_module_from_a_file_beside_the_script_is_found_again(tmp_path: Path) -> None:
    net = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    (tmp_path / "mynet.py").write_text(net)
    (tmp_path / "script.py").write_text(SCRIPT)
    saved = run(str(tmp_path / "script.py"), str(tmp_path / "live"))
    loaded = run("-P", "-c", LOAD, given=saved.stdout)
    assert loaded.stdout.strip() == "[2.0, 2.0, 2.0]", loaded.stderr


def test_an_unguarded_script_starts_no_second_search(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED)
    saved = run(str(tmp_path / "script.py"), str(tmp_path / "live"))
    loaded = run("-P", "-c", LOAD, given=saved.stdout)
    assert "guard the call with if __name__ == '__main__'" in loaded.stderr
    assert not (tmp_path / "stray").exists()
