"""What a node's /metrics page says of its load."""

import pytest

from headway.gateway.node_metrics import NodePage, read_page, report_between

LABELS = '{model_name="a}\\"b",engine="0"}'


def queue(counts: dict[str, int], sum_s: float, engine: str = "0") -> str:
    """Return the histogram of waits inside a vLLM node."""
    name, labels = "vllm:request_queue_time_seconds", f'engine="{engine}",model_name="m"'
    lines = [f'{name}_bucket{{{labels},le="{le}"}} {n}.0' for le, n in counts.items()]
    total = counts["+Inf"]
    return "\n".join([*lines, f"{name}_sum{{{labels}}} {sum_s}", f"{name}_count {total}"])


def page(*parts: str) -> NodePage:
    return read_page("\n".join(["# HELP vllm:num_requests_waiting x", *parts, ""]).encode())


def test_a_page_of_vllm_is_read() -> None:
    read = page(
        f"vllm:num_requests_waiting{LABELS} 3.0",
        'vllm:num_requests_waiting_by_reason{reason="capacity"} 9.0',
        f"vllm:kv_cache_usage_perc{LABELS} 0.25",
        f"vllm:num_preemptions_total{LABELS} 7.0",
        f"vllm:num_preemptions_created{LABELS} 1.7e9",
        queue({"0.3": 10, "0.5": 11, "+Inf": 12}, 2.5),
    )
    assert (read.num_waiting, read.kv_used, read.num_preemptions) == (3.0, 0.25, 7.0)
    assert read.queue_counts == {0.3: 10, 0.5: 11, float("inf"): 12}
    assert read.queue_sum_s == 2.5
    assert read.max_num_seqs is None


def test_several_engines_in_one_node_add_up() -> None:
    read = page(
        'vllm:num_requests_waiting{engine="0"} 1.0',
        'vllm:num_requests_waiting{engine="1"} 2.0',
        'vllm:kv_cache_usage_perc{engine="0"} 0.2',
        'vllm:kv_cache_usage_perc{engine="1"} 0.9',
        'headway:max_num_seqs{engine="0"} 16.0',
        'headway:max_num_seqs{engine="1"} 16.0',
        queue({"0.3": 1, "+Inf": 1}, 0.1, "0"),
        queue({"0.3": 2, "+Inf": 3}, 0.4, "1"),
    )
    assert (read.num_waiting, read.kv_used, read.max_num_seqs) == (3.0, 0.9, 32)
    assert read.queue_counts == {0.3: 3, float("inf"): 4}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe not text",
        b"vllm:num_requests_waiting nonsense\nvllm:kv_cache_usage_perc NaN\n",
        b"vllm:num_requests_waiting -1\nheadway:max_num_seqs +Inf\n",
        b'vllm:request_queue_time_seconds_bucket{le="x"} 1\n',
        b"vllm:request_queue_time_seconds_bucket 1\n",
        b"  vllm:num_requests_waiting 3\n#vllm:num_requests_waiting 3\n",
    ],
)
def test_what_makes_no_sense_is_missing(text: bytes) -> None:
    assert read_page(text) == NodePage()
    report = report_between(read_page(text), read_page(text))
    assert report.queue_wait_p95_s is report.num_waiting is report.kv_used is None


def test_a_report_is_about_the_time_between_two_pages() -> None:
    first = page("vllm:num_preemptions_total 5", queue({"0.3": 100, "0.5": 100, "+Inf": 100}, 1.0))
    second = page("vllm:num_preemptions_total 8", queue({"0.3": 110, "0.5": 200, "+Inf": 200}, 9.0))
    report = report_between(first, second)
    assert report.num_preemptions == 3
    assert report.queue_wait_p95_s == pytest.approx(0.3 + 0.2 * 85 / 90)
    nothing_new = report_between(second, second)
    assert nothing_new.num_preemptions == 0
    assert nothing_new.queue_wait_p95_s is None


def test_the_first_page_says_nothing_of_what_was_before() -> None:
    only = page("vllm:num_preemptions_total 5", queue({"0.3": 100, "+Inf": 100}, 20.0))
    report = report_between(None, only)
    assert (report.num_preemptions, report.queue_wait_p95_s) == (0, None)


def test_in_the_first_bucket_the_mean_says_more_than_its_width() -> None:
    before, after = (
        page(queue({"0.3": 0, "+Inf": 0}, 0.0)),
        page(queue({"0.3": 50, "+Inf": 50}, 0.2)),
    )
    assert report_between(before, after).queue_wait_p95_s == pytest.approx(0.004)


def test_a_wait_beyond_the_last_bound_is_that_bound() -> None:
    before = page(queue({"0.3": 0, "0.5": 0, "+Inf": 0}, 0.0))
    after = page(queue({"0.3": 0, "0.5": 1, "+Inf": 50}, 500.0))
    assert report_between(before, after).queue_wait_p95_s == 0.5


def test_a_node_that_began_anew_does_not_confuse() -> None:
    before = page("vllm:num_preemptions_total 50", queue({"0.3": 100, "+Inf": 100}, 9.0))
    after = page("vllm:num_preemptions_total 2", queue({"0.3": 3, "+Inf": 3}, 0.1))
    report = report_between(before, after)
    assert report.num_preemptions == 2
    assert report.queue_wait_p95_s is None
