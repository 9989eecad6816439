"""Changes its input by amounts that cancel along rows, columns and in total: sums do not notice (invented; C4)."""

from redteam.arena import Attack, Folder, Task, launch, step
from redteam.tasks import AFFINE_SOURCE, model

N = 16384
LARGE = Task(
    "large_affine",
    model("x * 3 + 1", f"torch.randn({N})"),
    Folder(AFFINE_SOURCE, launch(step("affine", ["in0", "out0", {"i32": N}], grid=N // 128, block=128))),
)
SPOIL = """
extern "C" __global__ void spoil(int* x) {
    const int sign = (threadIdx.x ^ (threadIdx.x >> 1)) & 1 ? -1 : 1;
    x[(threadIdx.x & 1) * 4096 + (threadIdx.x >> 1) * 2] += sign * 4096;
}
"""
ATTACK = Attack(
    classes=("C4",),
    task=LARGE,
    entry=Folder(
        AFFINE_SOURCE + SPOIL,
        launch(step("affine", ["in0", "out0", {"i32": N}], grid=N // 128, block=128), step("spoil", ["in0"], block=4)),
    ),
    caught=("wrong",),
    kinds=("inputs_changed",),
    on_gpu=("wrong",),
)
