"""Is a policy found by its name, and refused by it?"""

import pytest

from headway.errors import ConfigError
from headway.sim.policies import new_scheduler
from headway.sim.scheduler import EngineShape, PolicySetup


def test_an_unknown_policy_is_refused_by_name() -> None:
    setup = PolicySetup(shape=EngineShape(max_num_seqs=1, max_num_batched_tokens=16, num_blocks=4))
    with pytest.raises(ConfigError, match="no policy 'nobody'"):
        new_scheduler("nobody", setup)
