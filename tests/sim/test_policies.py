"""Is a policy found by its name, and refused by it?"""

import re

import pytest

from headway.core.tier import Tiers
from headway.errors import ConfigError
from headway.sim.policies import new_scheduler, tiers_under
from headway.sim.scheduler import EngineShape, PolicySetup


@pytest.mark.parametrize("name", ["nobody", "gateway+nobody", "gateway+headway", "gateway+"])
def test_an_unknown_policy_is_refused_by_name(name: str) -> None:
    setup = PolicySetup(shape=EngineShape(max_num_seqs=1, max_num_batched_tokens=16, num_blocks=4))
    with pytest.raises(ConfigError, match=rf"no policy '{re.escape(name)}', only headway"):
        new_scheduler(name, setup)


def test_strict_guarantees_nobody_a_floor() -> None:
    assert [tier.floor for tier in tiers_under("strict", Tiers()).all] == [0, 0, 0]
    assert tiers_under("headway", Tiers()) == Tiers()
