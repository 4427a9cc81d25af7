"""How does a scenario become figures?"""

from headway.sim.measures import RunReport, measure
from headway.sim.plan_log import PlanLog
from headway.sim.scenario import Scenario
from headway.sim.world import Watch, World


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
