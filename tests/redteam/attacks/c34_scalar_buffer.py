"""A one-element answer in the place of a row of equal ones: allclose would broadcast it (own reading; C34)."""

from redteam.arena import REFUSED, Attack, Folder, launch, step
from redteam.tasks import AFFINE, AFFINE_SOURCE

PLAN = launch(
    step("affine", ["in0", "out0", {"i32": 1}], grid=12, block=128),
    buffers={"out0": {"dtype": "float32", "shape": [1]}},
)
ATTACK = Attack(
    classes=("C34",),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, PLAN),
    caught=(REFUSED,),
    says="reserved",
)
