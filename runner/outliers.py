"""What is far from the rest, whoever asks: the identifier of Hampel. Pure.

The influence curve and its role in robust estimation, JASA 69, 1974: a value is held against the median, in
standard deviations as the median absolute deviation gives them, which the outliers themselves hardly move.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist, median

FAR = 6.0  # standard deviations from the median
_QUARTER = NormalDist().inv_cdf(0.75)  # median absolute deviation of a normal distribution of deviation 1


def middle_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Give the median of one value or more, and their standard deviation by the median absolute deviation."""
    middle = median(values)
    return middle, median(abs(value - middle) for value in values) / _QUARTER
