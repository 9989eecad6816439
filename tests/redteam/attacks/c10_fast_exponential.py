"""A two-term exponential good to 1e-3 (judge section 2.3; C10)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import SOFTMAX, over_softmax, softmax

QUICK = """
__device__ float quick(float v) {
    const float t = v * 1.44269504f, f = floorf(t), r = t - f;
    const float p = 1.0f + r * (0.6565f + r * 0.3435f);
    return f < -126.0f ? 0.0f : __int_as_float(((int)f + 127) << 23) * p;
}
"""
ATTACK = Attack(
    classes=("C10",),
    task=SOFTMAX,
    entry=Folder(softmax("quick(in[i] - m)", before=QUICK), launch(over_softmax())),
    caught=("wrong",),
    kinds=("mismatch",),
    control=Folder(softmax("exp2f((in[i] - m) * 1.44269504f)"), launch(over_softmax())),
    on_gpu=("wrong",),
)
