"""The shared surrogate: a Gaussian process over the slots, its fit and its algebra."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.special import ndtr

Floats = NDArray[np.float64]

ROOT5 = math.sqrt(5.0)
WEIGHT_SPREAD = 1.5
"""Standard deviation of the prior on the logarithms of relevances; their mean is log(2 / slots)."""
NOISE, NOISE_SPREAD = 0.02, 1.0
"""Median and logarithmic standard deviation of the prior on the noise's variance, in units of the targets'."""
ITERATIONS = 25
TINY = 1e-10


@dataclass(frozen=True, slots=True)
class Scales:
    """What a fit finds: Matern 5/2 over per-slot distances with one relevance each, and noise."""

    weights: Floats
    """(slots,): squared inverse length scales."""
    noise: float
    """Variance, in units of the targets'."""


def prior_scales(slots: int) -> Scales:
    """The scales before any outcome."""
    return Scales(np.full(slots, 2.0 / slots), NOISE)


def fit(inputs: list[Floats], targets: Floats, start: Scales | None = None) -> Scales:
    """The most probable scales for inputs (per slot (n, d)) and targets (n,), found by gradients from `start`."""
    slots = len(inputs)
    begin = start or prior_scales(slots)
    squared = np.stack([_squared(x) for x in inputs])
    centre = np.append(np.full(slots, math.log(2.0 / slots)), math.log(NOISE))
    spread = np.append(np.full(slots, WEIGHT_SPREAD), NOISE_SPREAD)
    found = minimize(
        _loss,
        np.append(np.log(begin.weights), math.log(begin.noise)),
        args=(squared, standardised(targets)[0], centre, spread),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-8.0, 8.0)] * slots + [(-9.0, 0.5)],
        options={"maxiter": ITERATIONS},
    )
    return Scales(np.exp(found.x[:-1]), math.exp(found.x[-1]))


def standardised(targets: Floats) -> tuple[Floats, float, float]:
    """Targets with mean 0 and deviation 1, and the mean and deviation they had."""
    mean, scale = float(np.mean(targets)), float(np.std(targets)) or 1.0
    return (targets - mean) / scale, mean, scale


class Posterior:
    """A Gaussian process on a fixed list of points, to which observed inputs are added one by one.

    Only the algebra of the inputs is kept, so that the targets may change with every observation, as ranks do. An
    observation costs O(points x observed).
    """

    def __init__(self, points: list[Floats], scales: Scales, inputs: list[Floats], room: int = 64) -> None:
        """`points` and `inputs` per slot (m, d) and (n, d); `room`: observations before arrays grow."""
        self.scales = scales
        self._points = _scaled(points, scales.weights)
        self._inputs = _scaled(inputs, scales.weights)
        count = len(self._inputs)
        kernel = _matern(_distances(self._inputs, self._inputs)) + scales.noise * np.eye(count)
        self._factor = np.linalg.cholesky(kernel).astype(np.float64)
        """(n, n): lower Cholesky factor of the kernel matrix with noise."""
        self._white = np.empty((count + room, len(self._points)))
        """(>= n, m): the factor's inverse times the covariances of inputs and points."""
        cross = _matern(_distances(self._inputs, self._points))
        self._white[:count] = solve_triangular(self._factor, cross, lower=True)
        self._variance = 1.0 - np.einsum("ij,ij->j", self._white[:count], self._white[:count])

    def __len__(self) -> int:
        return len(self._inputs)

    def fork(self) -> Self:
        """A copy that may observe on its own. It shares what was observed before, so the original has to wait."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def observe(self, point: list[Floats]) -> None:
        """Adds one input, per slot (1, d)."""
        row = _scaled(point, self.scales.weights)
        count = len(self)
        below = solve_triangular(self._factor, _matern(_distances(self._inputs, row))[:, 0], lower=True)
        corner = math.sqrt(max(1.0 + self.scales.noise - float(below @ below), TINY))
        white = (_matern(_distances(row, self._points))[0] - below @ self._white[:count]) / corner
        factor = np.zeros((count + 1, count + 1))
        factor[:count, :count], factor[count, :count], factor[count, count] = self._factor, below, corner
        if count == len(self._white):
            self._white = np.concatenate([self._white, np.empty_like(self._white)])
        self._white[count] = white
        self._factor, self._inputs = factor, np.concatenate([self._inputs, row])
        self._variance = self._variance - white * white

    def predict(self, targets: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation at every point, for the targets (n,) of what was observed, in their units."""
        centred, mean, scale = standardised(targets)
        means: Floats = mean + scale * (solve_triangular(self._factor, centred, lower=True) @ self._white[: len(self)])
        deviations: Floats = scale * np.sqrt(np.maximum(self._variance, 1e-9))
        return means, deviations


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Expected decrease below `best`."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    improvement: Floats = (best - mean) * ndtr(z) + deviation * density
    return improvement


def nearby_failures(points: list[Floats], seen: list[Floats], failed: Floats) -> Floats:
    """(m,): chance of failing at points, a kernel average over what was seen, shrunk to a low base rate far from it."""
    weights, base, strength = np.full(len(points), 8.0), 0.1, 0.3
    near = np.exp(-_distances(_scaled(seen, weights), _scaled(points, weights)))
    chance: Floats = (failed @ near + base * strength) / (near.sum(axis=0) + strength)
    return chance


def _scaled(points: list[Floats], weights: Floats) -> Floats:
    """(n, all d): coordinates in which the weighted distance is the plain one."""
    return np.concatenate([part * math.sqrt(w) for part, w in zip(points, weights, strict=True)], axis=1)


def _squared(a: Floats) -> Floats:
    difference = a[:, None, :] - a[None, :, :]
    squared: Floats = np.sum(difference * difference, axis=2)
    return squared


def _distances(a: Floats, b: Floats) -> Floats:
    """(n, m) distances of scaled coordinates, by one matrix product."""
    squared = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)[None, :] - 2.0 * (a @ b.T)
    distance: Floats = np.sqrt(np.maximum(squared, 0.0))
    return distance


def _matern(distance: Floats) -> Floats:
    r = ROOT5 * distance
    kernel: Floats = (1.0 + r + r * r / 3.0) * np.exp(-r)
    return kernel


def _loss(theta: Floats, squared: Floats, targets: Floats, centre: Floats, spread: Floats) -> tuple[float, Floats]:
    """Negative log marginal likelihood plus log-normal priors, and its gradient in the logarithms of relevances and
    noise. `squared`: (slots, n, n)."""
    weights, noise = np.exp(theta[:-1]), math.exp(theta[-1])
    r = ROOT5 * np.sqrt(np.maximum(np.tensordot(weights, squared, axes=1), 1e-14))
    decay = np.exp(-r)
    kernel = (1.0 + r + r * r / 3.0) * decay
    try:
        factor = np.linalg.cholesky(kernel + noise * np.eye(len(targets)))
    except np.linalg.LinAlgError:
        return 1e10, np.zeros_like(theta)
    alpha = cho_solve((factor, True), targets)
    z = (theta - centre) / spread
    loss = 0.5 * float(targets @ alpha) + float(np.log(np.diag(factor)).sum()) + 0.5 * float(z @ z)
    pull = np.outer(alpha, alpha) - cho_solve((factor, True), np.eye(len(targets)))
    # d kernel / d (weighted squared distance) is -5/6 (1 + r) exp(-r).
    by_distance = pull * ((1.0 + r) * decay) * (-5.0 / 6.0)
    gradient = z / spread
    gradient[:-1] -= 0.5 * np.tensordot(squared, by_distance, axes=([1, 2], [0, 1])) * weights
    gradient[-1] -= 0.5 * float(np.trace(pull)) * noise
    return loss, gradient
