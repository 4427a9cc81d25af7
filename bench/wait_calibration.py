"""How many of the actual waits are within the predicted p90, on five kinds of load? (G5)

    python bench/wait_calibration.py --seeds 3

Plays the scenarios of `tests/core/waits.py` on a manual clock: the dispatcher that the gateway runs
before a simple model of a server. Run it from the root of the repository.
"""

import argparse
import sys
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.core.waits import SCENARIOS, Waits, waits_of

HEAD = ("scenario", "seed", "waits", "shed", "mean wait", "in p90", "in p50", "p90 / wait")
ROW = "{:<22} {:>4} {:>7} {:>6} {:>9} {:>7} {:>7} {:>11}\n"


def main() -> int:
    """Print the table; 1 when a share is outside 85 to 95 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    sys.stdout.write(ROW.format(*HEAD))
    worst = 0.0
    for scenario in SCENARIOS:
        for seed in range(seeds):
            waits = waits_of(scenario, seed)
            worst = max(worst, abs(waits.within_p90() - 0.9))
            sys.stdout.write(ROW.format(scenario, seed, *figures(waits)))
            sys.stdout.flush()
    return 0 if worst <= 0.05 else 1


def figures(waits: Waits) -> tuple[object, ...]:
    """Return the figures of one row."""
    judged = waits.judged()
    return (
        len(judged),
        waits.num_shed,
        f"{mean(wait.wait_s for wait in judged):.1f} s",
        f"{waits.within_p90():.1%}",
        f"{waits.within_p50():.1%}",
        f"{waits.excess():.2f}",
    )


if __name__ == "__main__":
    sys.exit(main())
