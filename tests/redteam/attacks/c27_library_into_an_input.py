"""A library step that writes into an input, whose shape the product happens to have (judge catalogue C4, C27)."""

from redteam.arena import REFUSED, Attack, Folder, Task, launch, step
from redteam.tasks import MATMUL_SOURCE, model

SQUARE = Task(
    "square_product",
    model("a @ b", "torch.randn(16, 16), torch.randn(16, 16)", "a, b"),
    Folder(MATMUL_SOURCE, launch(step("matmul", ["in0", "in1", "out0", {"i32": 16}, {"i32": 16}], grid=16, block=16))),
)
OVERWRITE = {"library": "mm", "args": ["in0", "in1"], "out": "in0"}
PRODUCT = {"library": "mm", "args": ["in0", "in1"], "out": "out0"}
ATTACK = Attack(
    classes=("C4", "C27"),
    task=SQUARE,
    entry=Folder(MATMUL_SOURCE, launch(PRODUCT, OVERWRITE)),
    caught=(REFUSED, "launch_error:library", "launch_error", "rejected"),
    on_gpu=(REFUSED, "launch_error:library", "launch_error", "rejected"),
)
