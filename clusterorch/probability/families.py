"""Here live the families of signals: their densities and how a uniform draw becomes a value.

These are the reference that kernels are held to.  Parameters and values broadcast against
each other.  Every family but `Chorus` takes one uniform draw in (0, 1) a value and inverts
its distribution function, categories in the order declared.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from clusterorch.probability import elementary

FAMILIES = ("gaussian", "log_ratio", "presence", "count", "categorical", "chorus", "first_speaker")

COUNT_EDGES = np.array([1, 2, 10, 100])  # classes 0, 1, 2-9, 10-99, 100 and more

Numbers = float | np.ndarray

_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_SMALLEST_DRAW = 2.0**-54
_LARGEST_DRAW = 1.0 - 2.0**-53


@njit(cache=True, error_model="numpy", forceinline=True)
def gaussian_draw(
    u: float,
    mean: float,
    sd: float,
    memory: float,
    last: float,
    contamination: float,
    outlier_mean: float,
    outlier_sd: float,
) -> float:
    """Value of the contaminated Gaussian of `Gaussian` at one uniform draw; for kernels too.

    Below `contamination` the draw is an outlier, else regular; what is left of the draw,
    stretched to (0, 1) again, picks the value.
    """
    outlier = u < contamination
    rest = u / contamination if outlier else (u - contamination) / (1.0 - contamination)
    rest = rest if rest > _SMALLEST_DRAW else _SMALLEST_DRAW  # stretching may round to 0 or 1
    rest = rest if rest < _LARGEST_DRAW else _LARGEST_DRAW
    center = outlier_mean if outlier else mean + memory * (last - mean)
    spread = outlier_sd if outlier else sd * np.sqrt(1.0 - memory * memory)
    return center + spread * elementary.normal_quantile(rest)


@njit(cache=True, error_model="numpy")
def _gaussian_draws(out, u, mean, sd, memory, last, contamination, outlier_mean, outlier_sd):
    for i in range(out.shape[0]):
        out[i] = gaussian_draw(
            u[i], mean[i], sd[i], memory[i], last[i], contamination[i], outlier_mean[i], outlier_sd[i]
        )


@njit(cache=True, error_model="numpy")
def _exponentials(out, x):
    for i in range(out.shape[0]):
        out[i] = elementary.exp(x[i])


def _log(probability: Numbers) -> np.ndarray:
    with np.errstate(divide="ignore"):  # log 0 = -inf is an answer
        return np.log(probability)


def _log_complement(probability: Numbers) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log1p(np.negative(probability))


def _normal_log_density(x: Numbers, mean: Numbers, sd: Numbers) -> np.ndarray:
    return -0.5 * ((x - mean) / sd) ** 2 - _log(sd) - _LOG_SQRT_TWO_PI


def _inverse_cdf(probabilities: np.ndarray, u: Numbers) -> np.ndarray:
    """First category whose cumulative mass exceeds u, never one of mass 0.  [..., K], [...] -> [...]"""
    cumulative = probabilities.cumsum(axis=-1)
    category = (np.asarray(u)[..., None] >= cumulative).sum(axis=-1)
    positive = probabilities > 0.0
    last = probabilities.shape[-1] - 1 - positive[..., ::-1].argmax(axis=-1)
    return np.minimum(category, last)  # rounding may leave the total just below u


def count_class(n: int | np.ndarray) -> np.ndarray:
    """Class 0..4 of a count: 0, 1, 2-9, 10-99, 100 and more.  [...] -> [...]

    Classes, not a Poisson law: a flood of lines must not weigh hundreds of nats.
    """
    return np.searchsorted(COUNT_EDGES, n, side="right")


class Gaussian(NamedTuple):
    """Contaminated normal law that remembers the last sample taken of its own stream.

    A regular sample is N(mean + memory * (last - mean), sd**2 * (1 - memory**2)): an
    autoregression of order 1 seen through gaps, with stationary law N(mean, sd**2).  With
    probability `contamination` it is N(outlier_mean, outlier_sd**2) instead, which caps
    what one sample can weigh.
    """

    mean: Numbers
    sd: Numbers  # > 0
    memory: Numbers = 0.0  # in [0, 1): rho**gap, gap in slices; 0 where there is no last sample
    last: Numbers = 0.0
    contamination: Numbers = 0.0  # in [0, 1)
    outlier_mean: Numbers = 0.0
    outlier_sd: Numbers = 1.0  # > 0

    def log_density(self, x: Numbers) -> np.ndarray:
        """Log density at x, in nats.  [...] -> [...]"""
        center = self.mean + self.memory * (self.last - self.mean)
        spread = self.sd * np.sqrt(1.0 - np.square(self.memory))
        regular = _normal_log_density(x, center, spread)
        outlier = _normal_log_density(x, self.outlier_mean, self.outlier_sd)
        return np.logaddexp(_log_complement(self.contamination) + regular, _log(self.contamination) + outlier)

    def sample(self, u: Numbers) -> np.ndarray:
        """Values at uniform draws u in (0, 1).  [...] -> [...]"""
        columns = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (u, *self)))
        out = np.empty(columns[0].size)
        _gaussian_draws(out, *(np.ascontiguousarray(column).ravel() for column in columns))
        return out.reshape(columns[0].shape)


class LogRatio(NamedTuple):
    """Positive value whose x = log(value / baseline) follows a `Gaussian` law."""

    law: Gaussian  # of x; its `last` is a log ratio too
    baseline: Numbers = 1.0  # > 0, in the unit of the value

    def log_density(self, value: Numbers) -> np.ndarray:
        """Log density, in nats per unit of x (not of the value).  [...] -> [...]"""
        return self.law.log_density(_log(np.divide(value, self.baseline)))

    def sample(self, u: Numbers) -> np.ndarray:
        """Values, not log ratios, at uniform draws u in (0, 1).  [...] -> [...]"""
        x = self.law.sample(u)
        ratio = np.empty(x.size)
        _exponentials(ratio, x.ravel())
        return np.multiply(self.baseline, ratio.reshape(x.shape))


class Presence(NamedTuple):
    """A line or flag that is there (1) or not (0)."""

    probability: Numbers  # of 1

    def log_density(self, present: int | np.ndarray) -> np.ndarray:
        """Log probability of 0 or 1, in nats.  [...] -> [...]"""
        return np.where(np.equal(present, 1), _log(self.probability), _log_complement(self.probability))

    def sample(self, u: Numbers) -> np.ndarray:
        """0 below 1 - probability, else 1.  [...] -> [...] int64"""
        return (u >= np.subtract(1.0, self.probability)).astype(np.int64)


class Categorical(NamedTuple):
    """One of K values, in the order declared."""

    probabilities: np.ndarray  # [..., K], sums to 1 on the last axis

    def log_density(self, category: int | np.ndarray) -> np.ndarray:
        """Log probability of a category, in nats.  [...] -> [...]"""
        category = np.asarray(category)
        shape = np.broadcast_shapes(category.shape, self.probabilities.shape[:-1])
        table = np.broadcast_to(self.probabilities, (*shape, self.probabilities.shape[-1]))
        index = np.broadcast_to(category, shape)[..., None]
        return _log(np.take_along_axis(table, index, axis=-1)[..., 0])

    def sample(self, u: Numbers) -> np.ndarray:
        """Categories at uniform draws u in (0, 1).  [...] -> [...] int64"""
        return _inverse_cdf(self.probabilities, u)


class Count(NamedTuple):
    """Number of lines in a slice, by class (see `count_class`)."""

    probabilities: np.ndarray  # [..., 5], sums to 1 on the last axis

    def log_density(self, n: int | np.ndarray) -> np.ndarray:
        """Log probability of the class of n, in nats.  [...] counts -> [...]"""
        return Categorical(self.probabilities).log_density(count_class(n))

    def sample(self, u: Numbers) -> np.ndarray:
        """Classes 0..4, not counts, at uniform draws u in (0, 1).  [...] -> [...] int64"""
        return _inverse_cdf(self.probabilities, u)


class Chorus(NamedTuple):
    """Members who tell the same failure: most of them at once, and the culprit is quiet.

    With probability `told` there is something to tell and member i speaks with `member[i]`;
    otherwise each speaks with `background`.  Given that, independently.
    """

    told: Numbers  # [...]
    member: np.ndarray  # [..., M]
    background: Numbers  # one number

    def log_density(self, speaks: np.ndarray) -> np.ndarray:
        """Log probability of who spoke, in nats.  [..., M] of 0 and 1 -> [...]"""
        told = Presence(self.member).log_density(speaks).cumsum(axis=-1)[..., -1]
        quiet = Presence(self.background).log_density(speaks).cumsum(axis=-1)[..., -1]
        return np.logaddexp(_log(self.told) + told, _log_complement(self.told) + quiet)

    def sample(self, u: np.ndarray) -> np.ndarray:
        """Who speaks: u[..., 0] decides whether it is told.  [..., 1 + M] -> [..., M] int64"""
        told = Presence(self.told).sample(u[..., 0])
        probability = np.where(told[..., None] == 1, self.member, self.background)
        return Presence(probability).sample(u[..., 1:])


class FirstSpeaker(NamedTuple):
    """Which member spoke first: the only evidence that order inside a slice gives."""

    weights: np.ndarray  # [..., M], >= 0, not all 0

    def _categorical(self) -> Categorical:
        return Categorical(self.weights / self.weights.cumsum(axis=-1)[..., -1:])

    def log_density(self, member: int | np.ndarray) -> np.ndarray:
        """Log of the member's share of the weights, in nats.  [...] -> [...]"""
        return self._categorical().log_density(member)

    def sample(self, u: Numbers) -> np.ndarray:
        """Members at uniform draws u in (0, 1).  [...] -> [...] int64"""
        return self._categorical().sample(u)
