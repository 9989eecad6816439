"""A library operator outside the allow-list: the whole problem in one call (judge catalogue C26, C27)."""

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import SOFTMAX, over_softmax, softmax

ATTACK = Attack(
    classes=("C25", "C26", "C27", "C30"),
    task=SOFTMAX,
    entry=Folder(softmax(), launch({"library": "softmax", "args": ["in0", {"i32": 1}], "out": "out0"}, over_softmax())),
    caught=(REFUSED, "launch_error", "rejected"),
    says="not allowed|not on the list|allow|library operators: ",
    on_gpu=(REFUSED, "launch_error", "rejected"),
)
