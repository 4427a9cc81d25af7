"""Which policies can a simulation run, by name?"""

from headway.errors import ConfigError
from headway.sim.scheduler import PolicySetup, SchedulerFactory, StepScheduler

POLICIES: dict[str, SchedulerFactory] = {}
"""Each makes the scheduler of one engine."""


def new_scheduler(name: str, setup: PolicySetup) -> StepScheduler:
    """Return a new engine's scheduler. Raises ConfigError for a name that is not known."""
    factory = POLICIES.get(name)
    if factory is None:
        known = ", ".join(POLICIES)
        raise ConfigError("policy", f"there is no policy {name!r}, only {known}")
    return factory(setup)
