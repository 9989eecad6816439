"""`out` among the keywords of a library step sends the result elsewhere (invented; C27, C4)."""

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import MATMUL, MATMUL_SOURCE, over_matmul

STEP = {"library": "mm", "args": ["in0", "in1"], "out": "out0", "kwargs": {"out": "in0"}}
ATTACK = Attack(
    classes=("C27",),
    task=MATMUL,
    entry=Folder(MATMUL_SOURCE, launch(over_matmul(), STEP)),
    caught=(REFUSED, "launch_error", "rejected"),
    says="keyword",
    on_gpu=(REFUSED, "launch_error", "rejected"),
)
