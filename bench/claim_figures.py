"""Which figures of runs are claims about, and what are they where nothing was measured?"""

from math import inf

from headway.sim.measures import RunReport, TierReport


def tier(run: RunReport, name: str) -> TierReport:
    """Return the figures of a tier."""
    return next(each for each in run.tiers if each.tier == name)


def ttft_p99_s(run: RunReport, name: str = "critical") -> float:
    """Return it; infinite when nobody of the tier got a token."""
    p99 = tier(run, name).ttft_s.p99
    return inf if p99 is None else p99


def largest_ttft_p99_s(run: RunReport, since_s: float) -> float:
    """Return the largest TTFT p99 of critical in a span of the course, of those from `since_s` on.

    A request counts in the span in which it arrived. That span's p99 is infinite when it never got
    a token (refused, expired, lost or unfinished; whoever left aside). So is that of a span
    in which nobody arrived who got one, if somebody waits at its end; if nobody does, it has none.
    When no span has one, nothing was measured, which is infinite, too.
    """
    course = run.course[0]
    starts = [0.0, *run.course_s]
    largest = []
    for start, p99, unanswered, waiting in zip(
        starts[:-1], course.ttft_p99_s, course.num_unanswered, course.waiting, strict=True
    ):
        if start < since_s:
            continue
        if unanswered > 0 or (p99 is None and waiting > 0):
            largest.append(inf)
        elif p99 is not None:
            largest.append(p99)
    return max(largest, default=inf)


def service_per_s(run: RunReport, name: str) -> float:
    """Return the cost of what was computed for a tier, per second."""
    return tier(run, name).service_share * run.service_per_s


def attained(run: RunReport, name: str) -> float:
    """Return the share of the tier's requests that ended within all targets."""
    return tier(run, name).attainment or 0.0


def load_over(load: float, other: float) -> float:
    """Return how many times the other's highest load is held; 0 by who holds none."""
    if load == 0:
        return 0.0
    return load / other if other > 0 else inf
