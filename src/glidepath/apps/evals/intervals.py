"""How sure a pass rate is, and whether a difference can be chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb, exp, lgamma, log, sqrt

Z = 1.959963984540054
"""95 %, two-sided."""
_EXACT = 300  # items up to which binomial weights are exact


def wilson(passed: float, total: float, z: float = Z) -> tuple[float, float]:
    """Wilson's interval for a share; (0, 1) when nothing is known."""
    if total <= 0:
        return 0.0, 1.0
    share = passed / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * sqrt(max(0.0, share * (1 - share) / total + z * z / (4 * total * total)))
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def clustered_interval(groups: Sequence[Sequence[bool]]) -> tuple[float, float]:
    """Wilson's interval for a pass rate with repeats: repeats of one case are alike, and count for less.

    Each group is one case. The number of trials is divided by the design effect, which the spread between the cases
    shows: from the number of all repeats, when they are as different as chance makes them, to the number of cases.
    """
    groups = [group for group in groups if group]
    trials = sum(map(len, groups))
    if not trials:
        return 0.0, 1.0
    passed = sum(map(sum, groups))
    share, count = passed / trials, len(groups)
    effective = float(trials)
    if trials > count:
        spread = share * (1 - share)
        if count > 1 and spread > 0:
            # The variance of a ratio whose parts are clustered, against that of independent trials.
            between = sum((sum(group) - share * len(group)) ** 2 for group in groups) * count / (count - 1)
            effective = spread * trials * trials / between if between > 0 else float(trials)
        else:
            effective = float(count)
    return wilson(share * (held := min(float(trials), max(float(count), effective))), held)


def paired_interval(differences: Sequence[float], z: float = Z) -> tuple[float, float]:
    """The interval of a mean difference of pairs, each from -1 to 1, with one pair of either sign added.

    For pairs that pass or fail this is Bonett and Price's interval.
    """
    count = len(differences) + 2
    mean = sum(differences) / count
    variance = max(0.0, (sum(one * one for one in differences) + 2) / count - mean * mean)
    half = z * sqrt(variance / count)
    middle = sum(differences) / len(differences) if differences else 0.0
    return max(-1.0, min(middle, mean - half)), min(1.0, max(middle, mean + half))


def sign_flip_chance(differences: Sequence[int]) -> float:
    """How often two equal agents would differ at least as much: the exact test that flips the sign of every pair.

    With differences of -1, 0 and 1 it is McNemar's exact test.
    """
    sizes: dict[int, int] = {}
    for one in differences:
        if one:
            sizes[abs(one)] = sizes.get(abs(one), 0) + 1
    if not sizes:
        return 1.0
    sums: Mapping[int, float] = {0: 1.0}
    for size, count in sizes.items():
        weights = [_binomial_half(count, minus) for minus in range(count + 1)]
        fresh: dict[int, float] = {}
        for before, share in sums.items():
            for minus, weight in enumerate(weights):
                place = before + size * (count - 2 * minus)
                fresh[place] = fresh.get(place, 0.0) + share * weight
        sums = fresh
    seen = abs(sum(differences))
    return min(1.0, sum(share for place, share in sums.items() if abs(place) >= seen))


def _binomial_half(count: int, part: int) -> float:
    """The chance of this many heads in this many tosses."""
    if count <= _EXACT:
        return float(comb(count, part)) / 2.0**count
    return exp(lgamma(count + 1) - lgamma(part + 1) - lgamma(count - part + 1) - count * log(2))
