"""A load-time step that writes into a parameter (invented; T12, C4)."""

from redteam.arena import REFUSED, Attack, Folder, launch, step
from redteam.tasks import LINEAR, LINEAR_SOURCE, over_linear

WRITE = 'extern "C" __global__ void spoil(float* w) { w[threadIdx.x] = 0.0f; }\n'
PACK = """
extern "C" __global__ void copy(const float* w, float* t) {
    t[blockIdx.x * blockDim.x + threadIdx.x] = w[blockIdx.x * blockDim.x + threadIdx.x];
}
"""
COPIED = launch(
    over_linear("linear", "in0", "packed", "param:inner.bias", "out0", {"i32": 64}),
    prepare=[step("copy", ["param:inner.weight", "packed"], grid=32, block=64)],
    buffers={"packed": {"dtype": "float32", "shape": [32, 64]}},
)
ATTACK = Attack(
    classes=("T12", "C4"),
    task=LINEAR,
    entry=Folder(LINEAR_SOURCE + WRITE, launch(over_linear(), prepare=[step("spoil", ["param:inner.weight"])])),
    caught=(REFUSED, "wrong", "rejected"),
    control=Folder(LINEAR_SOURCE + PACK, COPIED),
    on_gpu=(REFUSED, "wrong", "rejected"),
)
