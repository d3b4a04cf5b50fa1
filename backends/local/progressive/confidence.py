"""How many standard errors the bounds of a value are away from it.

Batches of units are a sample without replacement, and a total is their sum. For one look, Student's t with as many
degrees of freedom as there are batches, less one. A run that stops when the bounds are close enough looks again and
again, and one of many looks is wrong more often: it takes bounds that hold at all times together, an asymptotic
confidence sequence (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas 2021, theorem 2.2)."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

LEAST_BATCHES = 8
"""Fewer batches say too little of the spread between them."""
BOUNDED_BATCHES = 30
"""A group needs rows in so many batches, or in all of fewer, to have bounds: sums over few batches are not normal."""
SOON = 50
"""The number of batches at which the bounds for all times together are closest."""


def student(confidence: float, batches: Any) -> Any:
    """The half width of a two-sided interval in standard errors, for one look; of a number of batches, or of each in an
    array."""
    freedom = batches - 1
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    # Cornish and Fisher's expansion of Student's quantile; its error is below 0.1 % from 7 degrees of freedom on.
    z2 = z * z
    terms = (
        z * (z2 + 1) / 4,
        z * ((5 * z2 + 16) * z2 + 3) / 96,
        z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384,
        z * ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def at_all_times(confidence: float, batches: Any) -> Any:
    """The same for all looks together."""
    alpha = 1 - confidence
    rho2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha)) + 1) / SOON
    grown = batches * rho2 + 1
    normal = np.sqrt(2 * grown / (batches * rho2) * np.log(np.sqrt(grown) / alpha))
    # The spread is estimated: as much wider as Student's quantile is than the normal one.
    return normal * student(confidence, batches) / NormalDist().inv_cdf((1 + confidence) / 2)
