"""The shared surrogate: a Gaussian process on ranks, and an estimate of the chance that a combination
fails."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import ndtr

Floats = NDArray[np.float64]

SCALES = (0.3, 0.6, 1.2, 2.4)
NOISES = (1e-3, 1e-2, 1e-1)
STEPS = (0.35, 2.8)
"""Factors by which a sweep tries to change one slot's relevance."""


@dataclass(frozen=True, slots=True)
class Surrogate:
    """A fitted Gaussian process: Matern 5/2 over per-slot distances with one relevance each."""

    inputs: list[Floats]
    """Per slot (n, d)."""
    targets: Floats
    """(n,), centred and scaled."""
    weights: Floats
    """(slots,): squared inverse length scales."""
    factor: Floats
    """(n, n): lower Cholesky factor of the kernel matrix with noise."""
    mean: float
    scale: float

    def predict(self, points: list[Floats]) -> tuple[Floats, Floats]:
        """Mean and standard deviation at points (per slot (m, d)), in units of the targets."""
        cross = _matern(_distances(points, self.inputs, self.weights))
        alpha = cho_solve((self.factor, True), self.targets)
        reduced = solve_triangular(self.factor, cross.T, lower=True)
        variance = np.maximum(1.0 - np.sum(reduced**2, axis=0), 1e-9)
        mean: Floats = self.mean + self.scale * (cross @ alpha)
        deviation: Floats = self.scale * np.sqrt(variance)
        return mean, deviation


def fit(inputs: list[Floats], targets: Floats) -> Surrogate:
    """Fits relevances and noise by a grid and two coordinate sweeps over the penalised marginal
    likelihood."""
    mean, scale = float(np.mean(targets)), float(np.std(targets)) or 1.0
    centred = (targets - mean) / scale
    squared = np.stack([_squared(x, x) for x in inputs])
    slots = len(inputs)
    best = (-math.inf, np.ones(slots), NOISES[-1])
    for length in SCALES:
        for noise in NOISES:
            weights = np.full(slots, 1.0 / (length * length * slots) * 2.0)
            best = max(best, (_evidence(squared, centred, weights, noise), weights, noise), key=lambda b: b[0])
    for _ in range(2):
        for slot in range(slots):
            for step in STEPS:
                weights = best[1].copy()
                weights[slot] *= step
                best = max(
                    best,
                    (_evidence(squared, centred, weights, best[2]), weights, best[2]),
                    key=lambda b: b[0],
                )
    _, weights, noise = best
    factor = _cholesky(squared, weights, noise)
    return Surrogate(inputs, centred, weights, factor, mean, scale)


def with_pseudo(model: Surrogate, point: list[Floats]) -> Surrogate:
    """The surrogate after its own mean was "observed" at one point, so that a batch does not crowd."""
    mean, _ = model.predict(point)
    inputs = [np.concatenate([x, p]) for x, p in zip(model.inputs, point, strict=True)]
    targets = np.append(model.targets, (mean - model.mean) / model.scale)
    squared = np.stack([_squared(x, x) for x in inputs])
    factor = _cholesky(squared, model.weights, NOISES[0])
    return Surrogate(inputs, targets, model.weights, factor, model.mean, model.scale)


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Expected decrease below `best`."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    improvement: Floats = (best - mean) * ndtr(z) + deviation * density
    return improvement


def failure_chance(inputs: list[Floats], failed: NDArray[np.bool_], points: list[Floats]) -> Floats:
    """Chance of failing at points: a kernel average over neighbours, shrunk to a low base rate far from
    data."""
    if not failed.any():
        return np.zeros(len(points[0]))
    weights = np.full(len(inputs), 8.0)
    near = np.exp(-_distances(points, inputs, weights))
    base, strength = 0.1, 0.3
    chance: Floats = (near @ failed.astype(np.float64) + base * strength) / (near.sum(axis=1) + strength)
    return chance


def _squared(a: Floats, b: Floats) -> Floats:
    difference = a[:, None, :] - b[None, :, :]
    squared: Floats = np.sum(difference * difference, axis=2)
    return squared


def _distances(a: list[Floats], b: list[Floats], weights: Floats) -> Floats:
    """(m, n) weighted distances, by one matrix product."""
    x = np.concatenate([part * math.sqrt(w) for part, w in zip(a, weights, strict=True)], axis=1)
    y = np.concatenate([part * math.sqrt(w) for part, w in zip(b, weights, strict=True)], axis=1)
    squared = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1)[None, :] - 2.0 * (x @ y.T)
    distance: Floats = np.sqrt(np.maximum(squared, 0.0))
    return distance


def _matern(distance: Floats) -> Floats:
    r = math.sqrt(5.0) * distance
    kernel: Floats = (1.0 + r + r * r / 3.0) * np.exp(-r)
    return kernel


def _cholesky(squared: Floats, weights: Floats, noise: float) -> Floats:
    distance = np.sqrt(np.tensordot(weights, squared, axes=1))
    factor: Floats = np.linalg.cholesky(_matern(distance) + noise * np.eye(len(distance))).astype(np.float64)
    return factor


def _evidence(squared: Floats, targets: Floats, weights: Floats, noise: float) -> float:
    """Log marginal likelihood plus a wide log-normal prior on the relevances."""
    try:
        factor = _cholesky(squared, weights, noise)
    except np.linalg.LinAlgError:
        return -math.inf
    white = solve_triangular(factor, targets, lower=True)
    prior = -0.5 * float(np.sum((np.log(weights) / 2.0) ** 2))
    return float(-0.5 * white @ white - np.sum(np.log(np.diag(factor)))) + prior
