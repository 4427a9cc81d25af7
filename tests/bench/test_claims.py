"""Can a claim be met by what nobody got, or by what was not measured?"""

from collections.abc import Callable, Sequence
from math import inf

import pytest
from bench.claim_figures import largest_ttft_p99_s, load_over

from bench import limiter_knee, simulated_claims, wait_calibration
from headway.core.outcome import Outcome
from headway.sim.measures import RunReport, measure
from tests.sim.test_measures import call, ended, served, ten_seconds


def course(outcome: Outcome | None = None, *, waiting: int = 0) -> RunReport:
    """Return a run of ten seconds: one who came at 2.0 had a token after 0.4 s, at 5.0 after 0.2 s.

    With an outcome, one ended so at 5.5 without a token. `waiting`: how many do from second 8 on.
    """
    made, recorder = ten_seconds()
    served(recorder, call(1, arrival=2.0), 2.4)
    served(recorder, call(2, arrival=5.0), 5.2)
    if outcome is not None:
        left = call(3, arrival=5.1)
        recorder.arrived(left)
        ended(recorder, left, outcome, 5.5)
    for second in range(1, 11):
        recorder.tick(second, [waiting if second > 8 else 0, 0, 0], None, [])
    return measure(recorder, made, "headway", 0, 0)


def test_a_second_is_of_those_who_arrived_in_it() -> None:
    assert largest_ttft_p99_s(course(), 0.0) == pytest.approx(0.4)
    assert largest_ttft_p99_s(course(), 3.0) == pytest.approx(0.2)


@pytest.mark.parametrize("outcome", [Outcome.REJECTED_SATURATED, Outcome.EVICTED_TTL_EXPIRED])
def test_whoever_never_got_a_token_makes_its_second_infinite(outcome: Outcome) -> None:
    assert largest_ttft_p99_s(course(outcome), 3.0) == inf
    assert largest_ttft_p99_s(course(outcome), 6.0) == inf, "nobody was there to be measured"
    assert course(outcome).course[0].num_unanswered == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_whoever_left_says_nothing() -> None:
    assert largest_ttft_p99_s(course(Outcome.CANCELLED), 3.0) == pytest.approx(0.2)


def test_a_second_in_which_one_only_waits_is_infinite() -> None:
    assert largest_ttft_p99_s(course(waiting=1), 3.0) == inf


def test_who_holds_no_load_has_no_ratio_to_be_proud_of() -> None:
    assert load_over(0.0, 0.0) == 0.0
    assert load_over(1.0, 0.0) == inf
    assert load_over(1.5, 1.0) == 1.5


@pytest.mark.parametrize("main", [simulated_claims.main, wait_calibration.main, limiter_knee.main])
@pytest.mark.parametrize("seeds", ["0", "-1", "x"])
def test_without_a_seed_nothing_is_claimed(
    main: Callable[[Sequence[str]], int], seeds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--seeds", seeds])
    assert stopped.value.code == 2
    assert "--seeds: must be a whole number of at least 1" in capsys.readouterr().err
