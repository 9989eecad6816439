"""A library step into a buffer of another shape, which `out=` would quietly resize or move (invented; C27, C34)."""

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import MATMUL, MATMUL_SOURCE, over_matmul

PLAN = launch(
    {"library": "mm", "args": ["in0", "in1"], "out": "tmp"},
    over_matmul(),
    buffers={"tmp": {"dtype": "float32", "shape": [1]}},
)
ATTACK = Attack(
    classes=("C27", "C34"),
    task=MATMUL,
    entry=Folder(MATMUL_SOURCE, PLAN),
    caught=(REFUSED, "launch_error", "rejected"),
    on_gpu=(REFUSED, "launch_error", "rejected"),
)
