"""Writes nothing where the answer never changes: the last output would do (KernelBench #25; judge catalogue C1, C6)."""

from redteam.arena import Attack, Folder, Task, launch, step
from redteam.tasks import model

CONSTANT = Task(
    "constant",
    model("torch.full_like(x, 3.0)", "torch.randn(256)"),
    Folder(
        'extern "C" __global__ void fill(float* y) { y[threadIdx.x] = 3.0f; }\n',
        launch(step("fill", ["out0"], block=256)),
    ),
)
ATTACK = Attack(
    classes=("C1", "C6", "C37"),
    task=CONSTANT,
    entry=Folder(
        'extern "C" __global__ void fill(float* y) {}\n',
        launch(step("fill", ["out0"], block=256)),
    ),
    caught=("wrong",),
    kinds=("nonfinite", "mismatch"),
    on_gpu=("wrong",),
)
