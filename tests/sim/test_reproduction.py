"""Does the simulator show what was measured of vLLM?

The figures are those of `scenarios/cpu-flood.toml`: 48 bulk callers and a critical request each two
seconds before vLLM 0.32 with 32 slots.
"""

from statistics import median

from headway.sim.measures import TierReport
from headway.sim.run import simulate
from tests.sim.small import shipped

SEEDS = (0, 1, 2)
MEASURED_FCFS_TTFT_S = 21.0
MEASURED_BULK_TOKENS_PER_S = 134.0
UNLOADED_TTFT_S = 0.11


def tiers_of(policy: str) -> list[dict[str, TierReport]]:
    """Return the tiers by name, of a run for each seed."""
    runs = [simulate(shipped("cpu-flood"), policy, seed) for seed in SEEDS]
    return [{tier.tier: tier for tier in run.tiers} for run in runs]


def ttft_s(runs: list[dict[str, TierReport]]) -> tuple[float, float]:
    """Return the medians of critical's p50 and p99."""
    found = [run["critical"].ttft_s for run in runs]
    p50 = [each.p50 for each in found if each.p50 is not None]
    p99 = [each.p99 for each in found if each.p99 is not None]
    return median(p50), median(p99)


def test_vllms_priority_helps_and_is_far_from_enough() -> None:
    """Measured p50 / p99: 21 / 31 s first come first served, 3.4 / 16.5 s with vLLM's priority."""
    fcfs, priority = tiers_of("fcfs"), tiers_of("vllm-priority")
    bulk = median(run["bulk"].tokens_per_s for run in fcfs)
    assert 0.9 < bulk / MEASURED_BULK_TOKENS_PER_S < 1.1
    p50, p99 = ttft_s(fcfs)
    assert 0.75 < p50 / MEASURED_FCFS_TTFT_S < 1.25
    priority_p50, priority_p99 = ttft_s(priority)
    assert 0.16 / 3 < priority_p50 / p50 < 0.16 * 2  # measured 0.16
    assert 0.53 / 3 < priority_p99 / p99 < 0.53 * 1.5  # measured 0.53
    assert priority_p50 > 10 * UNLOADED_TTFT_S  # a full node makes critical wait for a slot
    assert all((run["critical"].gap_s.p99 or 0.0) > 1.0 for run in priority)  # and for prompts
