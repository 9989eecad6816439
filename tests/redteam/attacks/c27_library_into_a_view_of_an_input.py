"""A library step that writes into an input by the name of a view on it (invented; C4, C27)."""

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.attacks.c27_library_into_an_input import PRODUCT, SQUARE
from redteam.tasks import MATMUL_SOURCE

VIEW = {"of": "in0", "shape": [16, 16], "strides": [1, 16]}
ATTACK = Attack(
    classes=("C4", "C27"),
    task=SQUARE,
    entry=Folder(
        MATMUL_SOURCE, launch(PRODUCT, {"library": "mm", "args": ["in0", "in1"], "out": "v"}, views={"v": VIEW})
    ),
    caught=(REFUSED,),
    on_gpu=(REFUSED,),
)
