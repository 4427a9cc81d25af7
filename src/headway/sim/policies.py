"""Which policies can a simulation run, by name?"""

from headway.errors import ConfigError
from headway.sim.baselines.fcfs import new_fcfs
from headway.sim.baselines.sarathi import new_sarathi
from headway.sim.baselines.sarathi_edf import new_sarathi_edf
from headway.sim.baselines.static_partition import StaticPartition
from headway.sim.baselines.vllm_priority import new_vllm_priority
from headway.sim.baselines.vtc import new_vtc
from headway.sim.scheduler import PolicySetup, SchedulerFactory, StepScheduler

POLICIES: dict[str, SchedulerFactory] = {
    "fcfs": new_fcfs,
    "vllm-priority": new_vllm_priority,
    "sarathi": new_sarathi,
    "sarathi-edf": new_sarathi_edf,
    "static-partition": StaticPartition,
    "vtc": new_vtc,
}
"""Each makes the scheduler of one engine."""


def new_scheduler(name: str, setup: PolicySetup) -> StepScheduler:
    """Return a new engine's scheduler. Raises ConfigError for a name that is not known."""
    factory = POLICIES.get(name)
    if factory is None:
        known = ", ".join(POLICIES)
        raise ConfigError("policy", f"there is no policy {name!r}, only {known}")
    return factory(setup)
