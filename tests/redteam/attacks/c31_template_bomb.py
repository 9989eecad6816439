"""Templates that instantiate two of themselves, a thousand levels deep (judge section 1.4; C31)."""

from redteam.arena import Attack, Folder, launch
from redteam.tasks import AFFINE, AFFINE_SOURCE, over_affine

BOMB = """
template <int N, int M> struct Grow {
    static constexpr int value = Grow<N - 1, 2 * M>::value + Grow<N - 1, 2 * M + 1>::value;
};
template <int M> struct Grow<0, M> { static constexpr int value = M; };
constexpr int bomb = Grow<900, 1>::value;
"""
ATTACK = Attack(
    classes=("C31",),
    task=AFFINE,
    entry=Folder(BOMB + AFFINE_SOURCE, launch(over_affine())),
    caught=("compile_error", "rejected"),
    on_gpu=("compile_error", "rejected"),
)
