"""A leaky variant where the module has a plain one: near for inputs that are mostly positive (C38)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import PAIR, PAIR_SOURCE, over_pair

ATTACK = Attack(
    classes=("C38", "C15"),
    task=PAIR,
    entry=Folder(
        PAIR_SOURCE.replace(
            "fmaxf(x[threadIdx.x * n + i], 0.0f)", "fmaxf(x[threadIdx.x * n + i], 1e-4f * x[threadIdx.x * n + i])"
        ),
        launch(over_pair()),
    ),
    caught=("wrong",),
    kinds=("mismatch",),
    on_gpu=("wrong",),
)
