"""How many of the actual waits are within the predicted p90? (G5)

    python bench/wait_calibration.py --seeds 3

Simulates scenarios in which a queue forms at the gateway, also before engines without QoS, and
compares each wait with the p90 that was told on arrival.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headway.sim.measures import RunReport
from headway.sim.run import simulate
from headway.sim.scenario_file import find_scenario, load_scenario

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.seeds_option import add_seeds

LEAST, MOST = 0.85, 0.95


@dataclass(frozen=True, slots=True)
class Load:
    """A scenario, what is changed of it, and who takes its requests in."""

    scenario: str
    policy: str = "gateway+fcfs"
    settings: Mapping[str, object] = field(default_factory=dict)

    def run(self, seed: int) -> RunReport:
        """Simulate it; `wait_calibration` of the report is the share within the p90."""
        scenario = load_scenario(find_scenario(self.scenario), self.settings)
        return simulate(scenario, self.policy, seed)


def lasting(minutes: int, warmup_s: int = 120, **more: object) -> Mapping[str, object]:
    """Return settings for longer than the scenario lasts by itself."""
    return {"duration_s": 60 * minutes, "warmup_s": warmup_s, **more}


LOADS = (
    Load("three-tiers", "gateway+vllm-priority", lasting(25, 200, load=1.5)),
    Load("noisy-neighbour-tokens", "headway", lasting(15)),
    Load("noisy-neighbour-requests", "headway", lasting(15)),
    Load("agents-shared-prefix"),
    Load("long-prompt-hol", settings=lasting(25, 100)),
    Load("adversarial"),
    Load("diurnal-week"),
    Load("burst-6x"),
    Load("node-failure", settings=lasting(15)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the shares; 1 when one is outside 85 to 95 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_seeds(parser)
    seeds = parser.parse_args(arguments).seeds
    all_held = True
    for load in LOADS:
        for seed in range(seeds):
            report = load.run(seed)
            within = report.wait_calibration or 0.0
            all_held &= LEAST <= within <= MOST
            sys.stdout.write(
                f"{load.scenario:<25} {load.policy:<22} seed {seed}: {within:.1%} "
                f"of {report.num_waits_predicted}\n"
            )
            sys.stdout.flush()
    return 0 if all_held else 1


if __name__ == "__main__":
    sys.exit(main())
