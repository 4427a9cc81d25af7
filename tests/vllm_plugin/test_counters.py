"""Do the scheduler's numbers arrive as they were counted?"""

from headway.core.tier import Tiers
from headway.vllm_plugin.counters import METRICS, Counters, decode


def test_numbers_survive_the_journey() -> None:
    counters = Counters(Tiers())
    counters.add("preemptions", rank=2)
    counters.add("preemptions", rank=2)
    counters.add("queue_seconds", 0.25, rank=0)
    counters.set("safety_factor", 1.234)
    carried = counters.take()
    assert all(isinstance(value, int) for value in carried.values())
    arrived = {(metric.name, tier): value for metric, tier, value in decode(carried)}
    assert arrived == {
        ("preemptions", "bulk"): 2,
        ("queue_seconds", "critical"): 0.25,
        ("safety_factor", ""): 1.234,
    }
    assert counters.take() == {}


def test_what_is_not_ours_is_skipped() -> None:
    assert list(decode({"adapter": 3, "headway:unknown:bulk": 1})) == []


def test_names_are_unique_and_described() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert all(metric.help.endswith(".") for metric in METRICS)
