"""What the gateway sees of a node in one window."""

import pytest

from headway.core.window import WindowSignals
from headway.flowcontrol.meter import FRESH_S, NodeMeter, NodeReport

TARGETS = (0.05, 0.1, None)


def meter() -> NodeMeter:
    """Return a meter whose first window begins at 0."""
    one = NodeMeter(TARGETS)
    assert one.close(0.0, 0) is None
    return one


def closed(one: NodeMeter, now: float = 2.0, inflight: int = 4) -> WindowSignals:
    """Return the window that ends now."""
    signals = one.close(now, inflight)
    assert signals is not None
    return signals


def test_a_window_counts_what_came_through_and_the_next_begins_empty() -> None:
    one = meter()
    one.max_inflight = 7
    one.completions = 20
    one.tokens_came(2, 300)
    assert one.close(0.9, 4) is None
    window = closed(one)
    assert (window.duration_s, window.completions, window.tokens) == (2.0, 20, 300)
    assert window.max_inflight == 7
    assert not window.failed
    assert window.throughput == 150.0
    one.failed = True
    following = closed(one, 4.0, 3)
    assert (following.tokens, following.max_inflight, following.failed) == (0, 4, True)


def test_time_in_which_nothing_happened_is_no_part_of_a_window() -> None:
    one = meter()
    assert one.close(100.0, 0) is None
    one.tokens_came(0, 500)
    assert closed(one, 102.0).duration_s == 2.0


def test_the_mean_of_the_gaps_counts_for_a_target_that_is_a_mean() -> None:
    """One step in twenty has a full chunk of prefill in it."""
    one = meter()
    for index in range(600):
        one.tokens_came(0, 1, 0.2 if index % 20 == 0 else 0.03)
    assert closed(one).itl_s == pytest.approx(0.0385)


def test_tokens_that_came_together_share_the_time() -> None:
    one = meter()
    for _ in range(200):
        one.tokens_came(0, 4, 0.08)
    assert closed(one).itl_s == pytest.approx(0.02, rel=0.1)


def test_the_gaps_are_of_the_most_urgent_tier_that_has_a_target_and_enough_of_them() -> None:
    one = meter()
    for _ in range(600):
        one.tokens_came(2, 1, 9.0)
    window = closed(one)
    assert (window.itl_s, window.itl_target_s) == (None, None)
    for rank, count, gap in ((0, 5, 0.01), (1, 500, 0.2), (2, 500, 9.0)):
        for _ in range(count):
            one.tokens_came(rank, 1, gap)
    window = closed(one, 4.0)
    assert window.itl_target_s == 0.1
    assert window.itl_s == pytest.approx(0.2, rel=0.1)
    for rank, gap in ((0, 0.01), (1, 0.2)):
        for _ in range(500):
            one.tokens_came(rank, 1, gap)
    assert closed(one, 6.0).itl_target_s == 0.05


def test_what_the_node_said_is_used_while_it_is_fresh() -> None:
    one = meter()
    one.reported(NodeReport(queue_wait_p95_s=0.3, kv_used=0.5, num_preemptions=2), 1.0)
    one.reported(NodeReport(queue_wait_p95_s=0.2, kv_used=0.6, num_preemptions=1), 1.5)
    one.completions = 20
    window = closed(one)
    assert (window.queue_wait_p95_s, window.kv_used, window.num_preemptions) == (0.2, 0.6, 3)
    one.completions = 20
    window = closed(one, 1.5 + FRESH_S)
    assert (window.kv_used, window.num_preemptions) == (0.6, 0)
    one.completions = 20
    stale = closed(one, 3.0 + FRESH_S)
    assert (stale.queue_wait_p95_s, stale.kv_used, stale.num_preemptions) == (None, None, None)
    assert not stale.told


def test_a_queue_shows_before_those_in_it_have_ended() -> None:
    one = meter()
    one.reported(NodeReport(queue_wait_p95_s=0.0, num_waiting=6), 1.0)
    one.completions = 20
    window = closed(one)
    assert window.queue_wait_p95_s == pytest.approx(0.6)
    assert window.num_waiting_inside == pytest.approx(6)
    one.tokens_came(2, 500)
    one.reported(NodeReport(num_waiting=3), 3.0)
    assert closed(one, 4.0).num_waiting_inside == pytest.approx(3)


def test_who_waits_in_one_report_only_has_just_come_in() -> None:
    one = meter()
    for at, waiting, inside in ((2.0, 0, 0.0), (4.0, 4, 0.0), (6.0, 3, 3.0)):
        one.reported(NodeReport(num_waiting=waiting), at)
        one.completions = 20
        assert closed(one, at).num_waiting_inside == pytest.approx(inside)
