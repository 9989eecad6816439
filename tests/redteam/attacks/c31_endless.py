"""Never ends: a harness that waits for ever gives no verdict (emmy #215; judge section 1.4)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = "if (i < n) y[i] = x[i]; while (*(volatile const float*)x == *(volatile const float*)x) {}"
ATTACK = Attack(
    classes=("C31",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("hang",),
    on_gpu=("hang",),
)
