"""Training on a live problem: an ordinary search whose policy learns, and the weights that it leaves, by family."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from warpsmith.agents.policy import Proposal, Request, Trial
from warpsmith.agents.slots.policy import SlotPolicy
from warpsmith.agents.slots.specialist import Specialist, specialist_of
from warpsmith.agents.space import SearchSpace
from warpsmith.app.display import Display
from warpsmith.app.optimize import Finished, OptimizeSettings, optimize_bench
from warpsmith.app.workbench import open_bench
from warpsmith.kernels.slots import Values
from warpsmith.rl.slots.training import TrainSettings, made_by, trainee


@dataclass(frozen=True)
class Watched:
    """The policy, and what it was last told of each family."""

    policy: SlotPolicy
    told: dict[str, tuple[SearchSpace, tuple[Trial, ...]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the policy."""
        return self.policy.name

    def opening(self, space: SearchSpace) -> Values:
        """Of the policy."""
        return self.policy.opening(space)

    def propose(self, request: Request) -> list[Proposal]:
        """Of the policy."""
        self.told[request.space.name] = (request.space, request.history)
        return self.policy.propose(request)


def train_live(
    search: OptimizeSettings, settings: TrainSettings, start: tuple[Specialist, ...], display: Display
) -> tuple[Finished, dict[str, Specialist]]:
    """Searches the problem through the judge and keeps what was learnt: family -> specialist. Families that nothing was
    told of are left out; what the last round alone brought is not learnt."""
    watched = Watched(trainee(settings, start))
    bench = open_bench(search.problem, device=search.device, arch=search.arch, overrides={}, inputs=None, mode="eval")
    finished = optimize_bench(bench, search, display, policy=watched)
    found: dict[str, Specialist] = {}
    for family, (space, history) in watched.told.items():
        learner = watched.policy.learnt(space, history)
        learner.finish()
        if learner.replay:
            made = made_by(settings, learner, Path(search.problem).stem, 1)
            found[family] = specialist_of(learner.layout, learner.weights, made, learner.settings)
    return finished, found
