"""The Gaussian process and the failure estimate against what they must be able to learn."""

import numpy as np
import pytest

from warpsmith.agents.belief import Memory
from warpsmith.agents.policy import Trial
from warpsmith.agents.space import Grid
from warpsmith.agents.surrogate import Posterior, expected_improvement, fit, prior_scales
from warpsmith.agents.synthetic import FormulaSpace
from warpsmith.kernels.slots import Slot


def surface(points: np.ndarray) -> np.ndarray:
    """A smooth function of the first coordinate; the second does not matter."""
    return np.sin(3.0 * points[:, 0])


def columns(points: np.ndarray) -> list[np.ndarray]:
    return [points[:, i : i + 1] for i in range(points.shape[1])]


def fitted(points: np.ndarray, train: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation at points, after a fit."""
    scales = fit(columns(train), targets)
    return Posterior(columns(points), scales, columns(train)).predict(targets)


def test_it_predicts_held_out_points_and_finds_the_irrelevant_slot() -> None:
    rng = np.random.default_rng(0)
    train, test = rng.random((30, 2)), rng.random((50, 2))
    scales = fit(columns(train), surface(train))
    mean, deviation = fitted(test, train, surface(train))
    assert np.sqrt(np.mean((mean - surface(test)) ** 2)) < 0.1 * np.std(surface(test))
    assert scales.weights[1] < 0.2 * scales.weights[0]
    assert (deviation > 0).all()


def test_a_fit_is_more_probable_than_where_it_began_and_than_its_neighbours() -> None:
    from warpsmith.agents.surrogate import _loss, standardised

    rng = np.random.default_rng(4)
    train = rng.random((25, 3))
    targets = standardised(surface(train) + 0.3 * train[:, 2])[0]
    squared = np.stack([(x[:, None, 0] - x[None, :, 0]) ** 2 for x in columns(train)])
    centre, spread = np.append(np.full(3, np.log(2 / 3)), np.log(0.02)), np.ones(4)

    def loss(theta: np.ndarray) -> float:
        return _loss(theta, squared, targets, centre, spread)[0]

    at = centre + 0.3
    gradient = _loss(at, squared, targets, centre, spread)[1]
    for i in range(4):
        step = np.zeros(4)
        step[i] = 1e-5
        assert gradient[i] == pytest.approx((loss(at + step) - loss(at - step)) / 2e-5, rel=1e-4)
    found = fit(columns(train), targets)
    assert loss(np.append(np.log(found.weights), np.log(found.noise))) < loss(centre)


def test_constant_targets_do_no_harm() -> None:
    points = np.random.default_rng(1).random((5, 3))
    mean, deviation = fitted(points, points, np.zeros(5))
    assert mean == pytest.approx(np.zeros(5))
    assert np.isfinite(deviation).all()


def test_repeated_points_with_different_targets_do_no_harm() -> None:
    points = np.repeat(np.random.default_rng(2).random((3, 2)), 4, axis=0)
    mean, _ = fitted(points, points, np.arange(12.0))
    assert np.isfinite(mean).all()


def test_observing_one_by_one_is_observing_at_once() -> None:
    rng = np.random.default_rng(5)
    train, probe = rng.random((90, 3)), rng.random((40, 3))
    at_once = Posterior(columns(probe), prior_scales(3), columns(train)).predict(surface(train))
    slow = Posterior(columns(probe), prior_scales(3), columns(train[:5]), room=8)
    for i in range(5, 90):
        slow.observe(columns(train[i : i + 1]))
    for one, other in zip(slow.predict(surface(train)), at_once, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


def test_a_fork_observes_for_itself() -> None:
    rng = np.random.default_rng(3)
    train, probe = rng.random((6, 2)), rng.random((9, 2))
    posterior = Posterior(columns(probe), prior_scales(2), columns(train))
    mean, before = posterior.predict(surface(train))
    fork = posterior.fork()
    fork.observe(columns(probe[:1]))
    after_mean, after = fork.predict(np.append(surface(train), mean[0]))
    assert after[0] < 0.8 * before[0]
    assert after_mean[0] == pytest.approx(mean[0], abs=0.05)
    again_mean, again = posterior.predict(surface(train))
    assert (again_mean == mean).all()
    assert (again == before).all()


def test_expected_improvement_matches_simulation() -> None:
    draws = np.random.default_rng(4).normal(0.5, 0.8, 400_000)
    simulated = np.maximum(0.2 - draws, 0.0).mean()
    assert expected_improvement(np.array([0.5]), np.array([0.8]), 0.2)[0] == pytest.approx(simulated, rel=0.01)


def test_failures_raise_the_chance_nearby_and_only_there() -> None:
    """Of the slots only the first says what fails; the belief has to find that out."""
    slots = tuple(Slot(f"s{i}", "config", "choice", tuple(range(4)), 0, "") for i in range(4))
    grid = Grid(FormulaSpace(slots, {}))
    rng = np.random.default_rng(6)
    points = grid.all_points()
    tried = [points[i] for i in rng.choice(len(points), 30, replace=False)]
    told = [Trial(grid.values(p), None if p[0] == 2 else 1.0 + sum(p)) for p in tried]
    memory = Memory()
    pool = memory.whole(grid)
    assert pool is not None
    survival = memory.belief(pool, told).survival
    fails = pool.table[:, 0] == 2
    assert survival[fails].mean() < 0.25
    assert survival[~fails].mean() > 0.8
    assert (memory.belief(pool, [t for t in told if t.cost is not None]).survival == 1.0).all()


def test_what_is_kept_between_questions_changes_no_belief() -> None:
    slots = tuple(Slot(f"s{i}", "config", "choice", tuple(range(5)), 0, "") for i in range(3))
    grid = Grid(FormulaSpace(slots, {}))
    points = grid.all_points()
    order = np.random.default_rng(7).permutation(len(points))[:40]
    told = [Trial(grid.values(points[i]), None if i % 7 == 0 else 1.0 + float(i % 11)) for i in order]
    kept = Memory()
    for length in (10, 11, 25, 40, 30, 31):
        both = []
        for memory in (kept, Memory()):
            pool = memory.whole(grid)
            assert pool is not None
            found = memory.belief(pool, told[:length])
            both.append((*found.posterior.predict(found.targets), found.survival))
        for one, other in zip(*both, strict=True):
            assert (one == other).all()
