"""How certain a mean of values that remember each other is. Pure.

The variance of the mean is the spectral density at frequency 0 of an autoregressive model whose order has the
least AIC (Heidelberger and Welch, A spectral method for confidence interval generation, CACM 24, 1981), with
Kendall's correction (Biometrika 41, 1954) of the bias towards independence.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, log, log10, sqrt
from operator import mul
from statistics import NormalDist

ORDER = 12  # most terms of the autoregressive model
CONFIDENCE = 0.95
NORMAL = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_FEW_FREE = (0.0, 12.706, 4.303, 3.182, 2.776, 2.571)  # Student's t where the expansion is not yet good


def mean_of(values: Sequence[float]) -> tuple[float, float, float]:
    """Give the mean of two values or more, its standard error, how many independent ones they are worth."""
    number = len(values)
    mean = fsum(values) / number
    deviations = [value - mean for value in values]
    variance = fsum(one * one for one in deviations) / (number - 1)
    if variance == 0:
        return mean, 0.0, float(number)
    effective = number / _inflation(deviations)
    return mean, sqrt(variance / effective), effective


def _inflation(deviations: Sequence[float]) -> float:
    """How many times the variance of the mean is that of independent values; at least 1."""
    number = len(deviations)
    covariances = [
        sum(map(mul, deviations, deviations[lag:])) / number
        for lag in range(min(ORDER, number // 10, int(10 * log10(number))) + 1)
    ]
    weights, error = _autoregression(covariances, number)
    memory = fsum(weights)
    if memory > 0:
        memory = min(memory + (1 + 3 * memory) / number, 0.99)
    shrunk = error * number / (number - len(weights) - 1) / covariances[0] * (number - 1) / number
    return float(max(1.0, shrunk / (1 - memory) ** 2))


def _autoregression(covariances: Sequence[float], number: int) -> tuple[list[float], float]:
    """Yule-Walker by Levinson's recursion, to the order of least AIC: the weights, the error left."""
    weights: list[float] = []
    error = covariances[0]
    best, least = (weights, error), number * log(error)
    for order in range(1, len(covariances)):
        against = fsum(weight * covariances[order - 1 - at] for at, weight in enumerate(weights))
        last = (covariances[order] - against) / error
        weights = [weight - last * weights[order - 2 - at] for at, weight in enumerate(weights)] + [last]
        error *= 1 - last * last
        if error <= 0:
            break
        criterion = number * log(error) + 2 * order
        if criterion < least:
            best, least = (weights, error), criterion
    return best


def student_t(freedom: float) -> float:
    """The quantile of Student's t for CONFIDENCE, by Fisher's expansion in 1 / degrees of freedom.

    Below 5 degrees, which may be a fraction, between those of a table.
    """
    if freedom < len(_FEW_FREE) - 1:
        low = max(int(freedom), 1)
        share = (1 / max(freedom, 1) - 1 / low) / (1 / (low + 1) - 1 / low)
        return float(_FEW_FREE[low] ** (1 - share) * _FEW_FREE[low + 1] ** share)
    z = NORMAL
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + fsum(term / freedom ** (at + 1) for at, term in enumerate(terms))
