"""Vector loads one element off: right values are not the point, the address is illegal (judge catalogue C14)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, affine, over_affine

BODY = """if (i < n) y[i] = x[i] * 3.0f + 1.0f;
    if (i == 3) { float4 v = *(const float4*)(x + 1); if (v.x == 12345.0f) y[0] = v.y; }"""
ATTACK = Attack(
    classes=("C14",),
    task=AFFINE,
    entry=Folder(affine(BODY), launch(over_affine())),
    caught=("crashed",),
    kinds=("misaligned", "misaligned_address"),
    on_gpu=("crashed",),
)
