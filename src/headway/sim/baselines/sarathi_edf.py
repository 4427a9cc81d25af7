"""What does Sarathi-Serve do when the earliest deadline goes first?

The baseline of QoServe (ASPLOS'26): prefills, started or not, go by deadline, so that an urgent
prompt overtakes the chunks of one under way; the latest deadline gives way when blocks run out.
"""

from headway.core.tier import Tiers
from headway.sim.baselines.sarathi import SarathiScheduler
from headway.sim.scheduler import PolicySetup, SimRequest

COMPLETION_S = 600.0
"""Deadline after arrival of a request without one whose tier has no TTFT target."""


def due(request: SimRequest, tiers: Tiers) -> float:
    """Return when the request is due: its tier's TTFT target, else its own deadline."""
    ttft_s = tiers.by_rank(request.rank).target.ttft_s
    if ttft_s is not None:
        return request.arrival + ttft_s
    return request.arrival + COMPLETION_S if request.deadline is None else request.deadline


def new_sarathi_edf(setup: PolicySetup) -> SarathiScheduler:
    """Return Sarathi-Serve, earliest deadline first."""
    return SarathiScheduler(setup, lambda request: due(request, setup.tiers))
