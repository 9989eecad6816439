"""The Gaussian process and the failure estimate against what they must be able to learn."""

import numpy as np
import pytest

from warpsmith.agents.surrogate import expected_improvement, failure_chance, fit, with_pseudo


def surface(points: np.ndarray) -> np.ndarray:
    """A smooth function of the first coordinate; the second does not matter."""
    return np.sin(3.0 * points[:, 0])


def columns(points: np.ndarray) -> list[np.ndarray]:
    return [points[:, i : i + 1] for i in range(points.shape[1])]


def test_it_predicts_held_out_points_and_finds_the_irrelevant_slot() -> None:
    rng = np.random.default_rng(0)
    train, test = rng.random((30, 2)), rng.random((50, 2))
    model = fit(columns(train), surface(train))
    mean, deviation = model.predict(columns(test))
    assert np.sqrt(np.mean((mean - surface(test)) ** 2)) < 0.1 * np.std(surface(test))
    assert model.weights[1] < 0.2 * model.weights[0]
    assert (deviation > 0).all()


def test_constant_targets_do_no_harm() -> None:
    points = np.random.default_rng(1).random((5, 3))
    mean, deviation = fit(columns(points), np.zeros(5)).predict(columns(points))
    assert mean == pytest.approx(np.zeros(5))
    assert np.isfinite(deviation).all()


def test_repeated_points_with_different_targets_do_no_harm() -> None:
    points = np.repeat(np.random.default_rng(2).random((3, 2)), 4, axis=0)
    mean, _ = fit(columns(points), np.arange(12.0)).predict(columns(points))
    assert np.isfinite(mean).all()


def test_a_pseudo_observation_lowers_the_doubt_there_and_keeps_the_mean() -> None:
    rng = np.random.default_rng(3)
    train, probe = rng.random((6, 2)), rng.random((1, 2))
    model = fit(columns(train), surface(train))
    before_mean, before = model.predict(columns(probe))
    after_mean, after = with_pseudo(model, columns(probe)).predict(columns(probe))
    assert after[0] < 0.2 * before[0] or after[0] < 0.05
    assert after_mean == pytest.approx(before_mean, abs=0.05)


def test_expected_improvement_matches_simulation() -> None:
    draws = np.random.default_rng(4).normal(0.5, 0.8, 400_000)
    simulated = np.maximum(0.2 - draws, 0.0).mean()
    assert expected_improvement(np.array([0.5]), np.array([0.8]), 0.2)[0] == pytest.approx(simulated, rel=0.01)


def test_failures_raise_the_chance_nearby_and_only_there() -> None:
    points = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    failed = np.array([True, True, False, False])
    chance = failure_chance(columns(points), failed, columns(np.array([[0.05, 0.5], [0.95, 0.5]])))
    assert chance[0] > 0.5 > 0.2 > chance[1]
    assert (failure_chance(columns(points), np.zeros(4, dtype=bool), columns(points)) == 0).all()
