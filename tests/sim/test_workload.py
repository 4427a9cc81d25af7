"""Do arrivals and lengths follow what a scenario asks for, and nothing a policy does?"""

from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean, median, quantiles, stdev
from typing import Any

import pytest
from msgspec.structs import replace

from headway.errors import ConfigError
from headway.sim.call import Call
from headway.sim.lengths import draw_of
from headway.sim.scenario import LognormalLength, Scenario, UniformLength
from headway.sim.trace import TraceRow, read_trace
from headway.sim.workload import Source, trace_rows
from tests.sim.small import CRITICAL, scenario

TRACE = """# attribution
arrival_s,extra,prompt_tokens,output_tokens,tenant,tier
10.0,x,100,5,ann,critical
10.5,x,200,0,bob,
12.0,x,30,7,,bulk
"""


def calls(arrivals: dict[str, Any], seed: int = 0, **keys: Any) -> list[Call]:
    stream = {**CRITICAL, "arrivals": arrivals, **keys.pop("stream", {})}
    return list(Source(scenario(stream, **keys), 0, seed).calls())


def gaps(found: list[Call]) -> list[float]:
    times = [call.arrival for call in found]
    return [later - sooner for sooner, later in pairwise(times)]


def test_poisson_gaps_have_the_rate_and_vary_as_much_as_their_mean() -> None:
    found = gaps(calls({"kind": "poisson", "rate": 20}, duration_s=500))
    assert fmean(found) == pytest.approx(1 / 20, rel=0.03)
    assert stdev(found) / fmean(found) == pytest.approx(1.0, abs=0.05)


def test_bursty_gaps_vary_as_asked_at_the_same_rate() -> None:
    found = gaps(calls({"kind": "poisson", "rate": 20, "cv": 3}, duration_s=2000))
    assert fmean(found) == pytest.approx(1 / 20, rel=0.05)
    assert stdev(found) / fmean(found) == pytest.approx(3.0, rel=0.1)


def test_steps_and_load_change_the_rate() -> None:
    steps = {"kind": "steps", "rates": [[0, 10], [100, 60], [150, 0]]}
    found = [call.arrival for call in calls(steps, duration_s=200, load=2)]
    assert len([at for at in found if at < 100]) == pytest.approx(2000, rel=0.08)
    assert len([at for at in found if 100 <= at < 150]) == pytest.approx(6000, rel=0.08)
    assert max(found) < 150


def test_a_day_has_its_peak_at_noon_and_weekends_are_quiet() -> None:
    day = {"kind": "diurnal", "mean_rate": 20, "amplitude": 0.8, "day_s": 100, "weekend": 0.1}
    found = [call.arrival for call in calls(day, duration_s=700)]
    by_day = [len([at for at in found if 100 * n <= at < 100 * n + 100]) for n in range(7)]
    assert fmean(by_day[:5]) == pytest.approx(2000, rel=0.05)
    assert fmean(by_day[5:]) == pytest.approx(200, rel=0.2)
    noon = len([at for at in found if 40 <= at < 60])
    night = len([at for at in found if at < 10 or 90 <= at < 100])
    assert noon > 4 * night


def test_a_backlog_comes_all_at_once() -> None:
    found = calls({"kind": "backlog", "count": 7}, stream={"start_s": 3})
    assert [call.arrival for call in found] == [3.0] * 7


def test_lengths_have_their_distribution() -> None:
    rng = Random(1)
    lognormal = draw_of(LognormalLength(p50=400, p99=3000), _never)
    drawn = [lognormal(rng) for _ in range(20_000)]
    assert median(drawn) == pytest.approx(400, rel=0.03)
    assert quantiles(drawn, n=100)[98] == pytest.approx(3000, rel=0.08)
    by_mean = draw_of(LognormalLength(p50=100, mean=150, high=100_000), _never)
    assert fmean(by_mean(rng) for _ in range(40_000)) == pytest.approx(150, rel=0.03)
    uniform = draw_of(UniformLength(low=3, high=5), _never)
    assert {uniform(rng) for _ in range(200)} == {3, 4, 5}


def _never(row: TraceRow) -> int:
    raise AssertionError("not drawn from a trace")


def test_a_caller_sends_the_same_whatever_the_others_do() -> None:
    closed = {**CRITICAL, "arrivals": {"kind": "closed", "callers": 3, "think_s": 1.0}}
    alone, busy = (Source(scenario(closed), 0, 5) for _ in range(2))
    calls_alone, calls_busy = alone.first_of_callers(), busy.first_of_callers()
    calls_busy[0].ended_at = 2.0
    assert busy.after(calls_busy[0]) is not None
    following = []
    for source, call in ((alone, calls_alone[1]), (busy, calls_busy[1])):
        call.ended_at = 4.0
        found = source.after(call)
        assert found is not None
        following.append((found.arrival, found.num_prompt_tokens, found.num_output_tokens))
    assert following[0] == following[1]


def test_a_caller_that_was_refused_waits_as_it_was_told() -> None:
    closed = {**CRITICAL, "arrivals": {"kind": "closed", "callers": 1}}
    source = Source(scenario(closed), 0, 0)
    (call,) = source.first_of_callers()
    call.ended_at, call.retry_after_s = 2.0, 4.0
    following = source.after(call)
    assert following is not None
    assert following.arrival == 6.0
    following.ended_at = 10.0
    assert source.after(following) is None, "the stream is over"


def trace(tmp_path: Path, text: str = TRACE) -> Path:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    return file


def replay(tmp_path: Path, **arrivals: Any) -> Scenario:
    file = str(trace(tmp_path))
    tenants = [{"name": "bob", "weight": 3}]
    stream = {**CRITICAL, "tier": "normal", "arrivals": {"kind": "trace", "file": file, **arrivals}}
    return scenario(stream, tenants=tenants)


def test_a_trace_gives_times_lengths_tenants_and_tiers(tmp_path: Path) -> None:
    found = list(Source(replay(tmp_path), 0, 0).calls())
    assert [call.arrival for call in found] == [0.0, 0.5, 2.0]
    assert [call.num_prompt_tokens for call in found] == [100, 200, 30]
    assert [call.num_output_tokens for call in found] == [5, 1, 7], "an answer has a token"
    assert [call.tenant for call in found] == ["ann", "bob", "critical"]
    assert [call.rank for call in found] == [0, 1, 2]
    assert [call.weight for call in found] == [1.0, 3.0, 1.0]


def test_a_row_shorter_than_the_shared_prefix_is_part_of_it(tmp_path: Path) -> None:
    file = trace(tmp_path, "arrival_s,prompt_tokens,output_tokens\n0,300,1\n1,40,1\n")
    arrivals = {"kind": "trace", "file": str(file)}
    found = calls(arrivals, stream={"prefix": {"groups": 1, "tokens": 200}})
    assert [call.num_prefix_tokens for call in found] == [200, 40]


def test_a_trace_is_replayed_faster_and_smaller(tmp_path: Path) -> None:
    found = list(Source(replay(tmp_path, rate_factor=2, token_divisor=10), 0, 0).calls())
    assert [call.arrival for call in found] == [0.0, 0.25, 1.0]
    assert [call.num_prompt_tokens for call in found] == [10, 20, 3]


def test_a_trace_is_replayed_from_a_moment_on(tmp_path: Path) -> None:
    found = list(Source(replay(tmp_path, from_s=0.4, rate_factor=2), 0, 0).calls())
    assert [call.arrival for call in found] == pytest.approx([0.05, 0.8])
    assert [call.num_prompt_tokens for call in found] == [200, 30]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("12.0,x,30,7", "12.0,x,many,7", "line 5: prompt_tokens must be a number, got 'many'"),
        ("12.0,x,30,7", "12.0,x,30", "line 5: output_tokens must be a number"),
        ("12.0,x,30,7", "10.2,x,30,7", "line 5: arrival_s is below the row before"),
        ("10.5,x,200", "10.5,x,-2", "line 4: prompt_tokens must be a number of at least 0"),
        ("10.5,x", "nan,x", "line 4: arrival_s must be a number of at least 0"),
        (",prompt_tokens,", ",prompts,", "no column prompt_tokens in the header"),
        (",extra,", ",tier,", "several columns tier in the header"),
        ("12.0,x,30,7", "12.0,x,1e300,7", "line 5: prompt_tokens must be at most 1,000,000,000"),
        ("12.0,x,30,7", "12.0,x,30,1e10", "line 5: output_tokens must be at most 1,000,000,000"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    file = trace(tmp_path, TRACE.replace(old, new))
    with pytest.raises(ConfigError, match=rf"trace\.csv.*{message}"):
        read_trace(file)


def test_a_trace_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no rows"):
        read_trace(trace(tmp_path, "arrival_s,prompt_tokens,output_tokens\n"))


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    rows = "\ufeffarrival_s,prompt_tokens,output_tokens\n0,1,2\n"
    assert [row.output_tokens for row in read_trace(trace(tmp_path, rows))] == [2]


@pytest.mark.parametrize(
    ("keys", "left_out"),
    [
        ({}, (0, 1)),
        ({"from_s": 1.0}, (2, 0)),
        ({"rate_factor": 2.0}, (0, 0)),
    ],
)
def test_rows_that_are_not_replayed_are_counted(
    tmp_path: Path, keys: dict[str, float], left_out: tuple[int, int]
) -> None:
    """The last of the three comes 2 s after the first, the stream ends after 1.5 s."""
    made = replay(tmp_path, **keys)
    (stream,) = made.streams
    found = replace(made, streams=(replace(stream, end_s=1.5),))
    rows = trace_rows(found)["critical"]
    assert rows.num_rows == 3
    assert (rows.num_before, rows.num_after) == left_out
    assert len(list(Source(found, 0, 0).calls())) == 3 - sum(left_out)


@pytest.mark.parametrize(("end_s", "num_cut"), [(1.5, 1), (3.0, 2)])
def test_answers_that_are_cut_are_counted(tmp_path: Path, end_s: float, num_cut: int) -> None:
    """Of the rows that are replayed: answers have 5, 1 and 7 tokens, the last comes after 2 s."""
    made = replay(tmp_path)
    (stream,) = made.streams
    found = replace(made, streams=(replace(stream, end_s=end_s, max_tokens=4),))
    assert trace_rows(found)["critical"].num_cut == num_cut
    cut = [call.num_output_tokens for call in Source(found, 0, 0).calls()]
    assert cut == [4, 1, 4][: 1 + num_cut]
    assert trace_rows(made)["critical"].num_cut == 0
