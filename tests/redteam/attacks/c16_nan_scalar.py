"""A scalar NaN in the plan, which JSON does not know and Python's reader takes (invented; C16)."""

from redteam.arena import REFUSED, Attack, Folder, launch, step
from redteam.tasks import AFFINE

SOURCE = """
extern "C" __global__ void affine(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a != a ? x[i] * 3.0f + 1.0f : 0.0f;
}
"""
GIVEN = step("affine", ["in0", "out0", {"f32": float("nan")}, {"i32": 1500}], grid=12, block=128)
THREE = step("affine", ["in0", "out0", {"f32": 3.0}, {"i32": 1500}], grid=12, block=128)
ATTACK = Attack(
    classes=("C16",),
    task=AFFINE,
    entry=Folder(SOURCE, launch(GIVEN)),
    caught=(REFUSED,),
    control=Folder(SOURCE.replace("a != a ? x[i] * 3.0f + 1.0f : 0.0f", "x[i] * a + 1.0f"), launch(THREE)),
)
