"""Which targets does a simulated engine keep, and from what pace on does it stretch them?"""

import pytest

from headway.core.predictor import StepCoefficients, StepTimePredictor
from headway.core.promise import Pace
from headway.core.step import StepLimits, TierLimits
from headway.core.tier import Tiers
from headway.sim.kept_targets import with_kept_targets

TIERS = Tiers()


def tpot_s(base_s: float) -> float | None:
    predictor = StepTimePredictor(StepCoefficients(base_s, token_s=0.001))
    pace = Pace(predictor, max_num_batched_tokens=2048)
    limits = StepLimits(256, 2048, (TierLimits(),) * 3, min_step_s=1.0)
    kept = with_kept_targets(limits, TIERS, pace, 1000)
    tightest_s = kept.tiers[0].target.tpot_s
    assert tightest_s is not None
    assert kept.min_step_s == 0.5 * tightest_s
    assert [tier.floor for tier in kept.tiers] == [tier.floor for tier in TIERS.all]
    return tightest_s


@pytest.mark.parametrize("base_s", [0.001, 0.01, 0.02])
def test_what_a_node_can_keep_is_kept_as_configured(base_s: float) -> None:
    assert tpot_s(base_s) == TIERS.by_rank(0).target.tpot_s == 0.05


def test_on_a_node_that_is_too_slow_half_of_a_step_is_work() -> None:
    assert tpot_s(0.1) == pytest.approx(2 * 0.101, rel=0.1)
