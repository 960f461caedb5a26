"""Looking several times without being wrong more often: error spent over the looks.

Whoever tests after each launch and stops when it suits him is wrong far more often than his level says.
Here every look gets a share of the error, and its bound takes into account that a look is reached only
when all before it were within theirs, and that looks share their launches (K. K. G. Lan and D. L. DeMets,
Biometrika 70, 1983; the recursion over looks is that of P. Armitage, C. K. McPherson and B. C. Rowe, JRSS
A 132, 1969).

A mean of `n` launches minus that of `m` has information ``1 / (1/n + 1/m)``, in units of the launches'
variance. The score ``z * sqrt(information)`` is then a walk with independent normal steps, whose variances
are the differences of the information: that is what the recursion needs.
"""

from __future__ import annotations

import math
from functools import lru_cache

STUDENT = 0.45
"""By how much the error grows, times the degrees of freedom at the first look, as the variance is estimated.

The recursion is exact for a known variance; each bound is then taken from Student's t at the same tail. Drawn at
a level of 1 %, false alarms exceed it by 29 % with one degree of freedom, 13 % with three, 8 % with seven and
3 % with fifteen, so the level is lowered by about as much (tests/unit/gate/test_spending.py holds this).
"""

STEPS = 1201
"""Points of the grid on which the walk's density is followed."""


@lru_cache(maxsize=256)
def tails(
    level: float, weights: tuple[float, ...], reference: int, first: int, freedom: int
) -> tuple[float, ...]:
    """The tail probability that each look's one-sided bound cuts off, so that all looks together err at
    `level`.

    `weights` says how the error is shared among the looks, which have `first`, `first + 1`, ... launches
    against `reference`; only the first may be 0. `freedom` is that of the variance at the first look.
    """
    import numpy as np
    from scipy.special import ndtr, ndtri

    information = [1 / (1 / launches + 1 / reference) for launches in range(first, first + len(weights))]
    shares = [level / (1 + STUDENT / freedom) * weight / sum(weights) for weight in weights]
    found = [shares[0]]
    reach = 8 * math.sqrt(information[-1])
    score = np.linspace(-reach, reach, STEPS)
    step = score[1] - score[0]
    bound = -float(ndtri(shares[0])) * math.sqrt(information[0])
    density = _normal(score, information[0])
    for before, now, share in zip(information, information[1:], shares[1:], strict=False):
        density *= np.clip((bound - score) / step + 0.5, 0, 1)  # beyond the bound it was decided
        density = np.convolve(density, _normal(score, now - before) * step, "same")
        # The chance to get beyond the lower edge of each cell, undecided so far.
        beyond = np.cumsum(density[::-1])[::-1] * step
        bound = float(np.interp(-share, -beyond, score - step / 2))
        found.append(float(ndtr(-bound / math.sqrt(now))))
    return tuple(found)


def _normal(score, variance: float):  # type: ignore[no-untyped-def]
    import numpy as np

    return np.exp(-(score**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)


@lru_cache(maxsize=4096)
def student(tail: float, freedom: int) -> float:
    """The value that Student's t with `freedom` degrees exceeds with probability `tail`; infinity for none."""
    from scipy.special import stdtrit

    return -float(stdtrit(freedom, tail)) if tail > 0 else math.inf
