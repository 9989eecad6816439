"""A view that reaches beyond the input that it lies on, into whatever the allocator put there (invented; C27)."""

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.attacks.c27_library_into_an_input import SQUARE
from redteam.tasks import MATMUL_SOURCE

VIEW = {"of": "in0", "shape": [16, 16], "strides": [16, 1], "offset": 1}
ATTACK = Attack(
    classes=("C27",),
    task=SQUARE,
    entry=Folder(MATMUL_SOURCE, launch({"library": "mm", "args": ["v", "in1"], "out": "out0"}, views={"v": VIEW})),
    caught=(REFUSED, "launch_error", "launch_error:library"),
    on_gpu=(REFUSED, "launch_error", "launch_error:library"),
)
