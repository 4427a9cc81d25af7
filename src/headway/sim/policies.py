"""Which policies can a simulation run, by name?"""

from dataclasses import replace

from headway.core.tier import Tiers
from headway.errors import ConfigError
from headway.sim.baselines.fcfs import new_fcfs
from headway.sim.baselines.sarathi import CHUNK_KNOB, new_sarathi
from headway.sim.baselines.sarathi_edf import new_sarathi_edf
from headway.sim.baselines.static_partition import StaticPartition, share_knobs
from headway.sim.baselines.vllm_priority import new_vllm_priority
from headway.sim.baselines.vtc import new_vtc
from headway.sim.headway_scheduler import HeadwayScheduler
from headway.sim.scheduler import PolicySetup, SchedulerFactory, StepScheduler

POLICIES: dict[str, SchedulerFactory] = {
    "headway": HeadwayScheduler,
    "strict": HeadwayScheduler,
    "fcfs": new_fcfs,
    "vllm-priority": new_vllm_priority,
    "sarathi": new_sarathi,
    "sarathi-edf": new_sarathi_edf,
    "static-partition": StaticPartition,
    "vtc": new_vtc,
}
"""Each makes the scheduler of one engine."""
REPORTING = frozenset({"headway", "strict"})
"""Engines of headway's own: they tell the gateway what they run at once."""
BEHIND_GATEWAY = "gateway+"
"""Before another engine's name: with headway's gateway in front of it, which learns how much it
takes. Without it, a plain balancer sends each request to the node with the fewest as it comes."""


def is_queued(name: str) -> bool:
    """Whether requests wait at headway's gateway, and not only in the engines."""
    return name in REPORTING or name.startswith(BEHIND_GATEWAY)


def new_scheduler(name: str, setup: PolicySetup) -> StepScheduler:
    """Return a new engine's scheduler. Raises ConfigError for a name that is not known."""
    check_policy(name)
    return POLICIES[name.removeprefix(BEHIND_GATEWAY)](setup)


def check_policy(name: str) -> None:
    """Raise ConfigError for a name that is not known."""
    engine = name.removeprefix(BEHIND_GATEWAY)
    if engine not in POLICIES or (engine != name and engine in REPORTING):
        known = ", ".join(POLICIES)
        text = f"there is no policy {name!r}, only {known}; and {BEHIND_GATEWAY}fcfs and so on"
        raise ConfigError("policy", text)


def knobs_of(name: str, tiers: Tiers) -> tuple[str, ...]:
    """Return the keys of a scenario's `[policy]` that the policy reads."""
    factory = POLICIES[name.removeprefix(BEHIND_GATEWAY)]
    if factory in (new_sarathi, new_sarathi_edf):
        return (CHUNK_KNOB,)
    return share_knobs(tiers) if factory is StaticPartition else ()


def tiers_under(name: str, tiers: Tiers) -> Tiers:
    """Return the tiers as the policy sees them: `strict` guarantees nobody a floor."""
    if name != "strict":
        return tiers
    return Tiers(tuple(replace(tier, floor=0.0) for tier in tiers.all))
