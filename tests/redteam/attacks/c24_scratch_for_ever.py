"""A thousand scratch buffers that together fill the machine (judge section 5.2; invented)."""

from redteam.arena import REFUSED, Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

BUFFERS = {f"t{n}": {"dtype": "float32", "shape": [1 << 20]} for n in range(1000)}
ATTACK = Attack(
    classes=("C31",),
    task=AFFINE,
    entry=Folder(AFFINE_SOURCE, launch(over_affine(), buffers=BUFFERS)),
    caught=(REFUSED,),
    says="GiB",
)
