"""How does a scenario become figures?"""

from headway.errors import ConfigError
from headway.sim.cost_model import cost_model
from headway.sim.measures import RunReport, measure
from headway.sim.plan_log import PlanLog
from headway.sim.policies import new_scheduler
from headway.sim.scenario import Scenario
from headway.sim.world import Watch, World, policy_setup


def check_run(scenario: Scenario, policy: str) -> None:
    """Raise ConfigError when a run could not begin: an engine of the policy does not fit."""
    try:
        new_scheduler(policy, policy_setup(scenario, policy, cost_model(scenario.nodes.cost_model)))
    except ConfigError as error:
        at = f"{scenario.name} under {policy}: {error.path}"
        raise ConfigError(at, error.message) from error


def simulate(
    scenario: Scenario,
    policy: str,
    seed: int | None = None,
    *,
    plan_log: PlanLog | None = None,
    watch: Watch | None = None,
) -> RunReport:
    """Run a scenario under a policy and return its figures. `seed` None: the scenario's.

    Raises ConfigError for a policy or a file of the scenario that does not exist.
    """
    world = World(scenario, policy, seed, plan_log=plan_log, watch=watch)
    finished = world.run()
    return measure(finished.recorder, scenario, policy, world.seed, finished.num_steps)
