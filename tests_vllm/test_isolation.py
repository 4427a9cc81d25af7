"""How much of a flood do critical requests feel, in virtual time?

The bounds are what every change has to keep; `headway bench isolation` measures the real thing.
"""

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from tests_vllm.flood import Figures, TimedScheduler, flood, p99


@pytest.fixture(scope="module")
def fcfs(model: str) -> Figures:
    return flood(model, Scheduler, policy="fcfs")


@pytest.fixture(scope="module")
def ours(model: str) -> Figures:
    return flood(model, TimedScheduler)


def test_critical_hardly_waits(model: str, fcfs: Figures, ours: Figures) -> None:
    priority = flood(model, Scheduler)
    assert p99(ours.ttft_s) < 0.4
    assert p99(ours.ttft_s) * 15 < p99(priority.ttft_s)
    assert p99(ours.ttft_s) * 60 < p99(fcfs.ttft_s)


def test_critical_tokens_come_steadily(fcfs: Figures, ours: Figures) -> None:
    assert p99(ours.gap_s) < 0.12
    assert p99(ours.gap_s) * 10 < p99(fcfs.gap_s)


def test_bulk_keeps_its_throughput(fcfs: Figures, ours: Figures) -> None:
    assert ours.bulk_per_s > 0.85 * fcfs.bulk_per_s


def test_without_critical_nothing_is_lost(model: str) -> None:
    alone = {"every_s": 1e9, "duration_s": 100.0}
    stock = flood(model, Scheduler, policy="fcfs", **alone)
    ours = flood(model, TimedScheduler, **alone)
    assert ours.bulk_per_s > 0.97 * stock.bulk_per_s


def test_short_of_blocks_the_gain_is_of_the_same_order(model: str) -> None:
    """256 slots, and blocks for about 20 requests: blocks are what is preempted for."""
    size = {"max_num_seqs": 256, "num_blocks": 700, "duration_s": 100.0}
    stock = flood(model, Scheduler, **size)
    ours = flood(model, TimedScheduler, **size)
    assert p99(ours.ttft_s) < 0.5
    assert p99(ours.gap_s) < 0.15
    assert ours.bulk_per_s > 0.8 * stock.bulk_per_s
