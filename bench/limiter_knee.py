"""Does the limit of a node find the knee, from a tenth and from ten times the right value?

    python bench/limiter_knee.py --seeds 3 --plot docs/images/knee.png

Simulates stock vLLM with its priority scheduler behind the gateway under a bulk flood: with fixed
limits, of which the best is the one with the most tokens per second among those at which critical
keeps its mean gap, and then with a limit that is learnt. Prints a table, and draws limit against
throughput and gap with the courses of the learnt limits.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, quantiles

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headway.sim.measures import RunReport
from headway.sim.run import simulate
from headway.sim.scenario_file import find_scenario, load_scenario

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.seeds_option import add_seeds

SCENARIO, POLICY = "bulk-flood", "gateway+vllm-priority"
LIMITS = (16, 32, 64, 96, 128, 160, 176, 192, 208, 256)
TARGET_S = 0.05
"""Critical's mean gap between tokens."""
SPAN = {"duration_s": 800, "warmup_s": 400}
"""The same for all, for later in the flood prompts are longer and the best limit is lower."""
SETTLED_S = 600
"""Swings are measured from then on, when that drift has become slow."""


@dataclass(frozen=True)
class Learnt:
    """A run with a limit that is learnt, from its start on."""

    start: int
    run: RunReport

    def limits(self, since_s: float) -> list[int]:
        """Return the limits from then until arrivals end, one for each few seconds."""
        pairs = zip(self.run.course_s, self.run.limit, strict=True)
        return [limit or 0 for end_s, limit in pairs if since_s < end_s <= SPAN["duration_s"]]

    def swing(self) -> float:
        """Return how far the 5th and 95th percentile of the settled limit are from its mean."""
        limits = self.limits(SETTLED_S)
        low, *_, high = quantiles(limits, n=20, method="inclusive")
        mean = fmean(limits)
        return max(high - mean, mean - low) / mean


def run(seed: int, **settings: object) -> RunReport:
    """Simulate once."""
    return simulate(load_scenario(find_scenario(SCENARIO), settings), POLICY, seed)


def gap_s(report: RunReport) -> float:
    """Return the median over critical requests of the mean gap between tokens."""
    return report.tiers[0].tpot_s.p50 or float("inf")


def best_limit(static: dict[int, RunReport]) -> int:
    """Return the limit with the most tokens per second among those that keep the target."""
    kept = [limit for limit, report in static.items() if gap_s(report) <= TARGET_S]
    return max(kept, key=lambda limit: static[limit].tokens_per_s)


def run_fixed(seed: int) -> dict[int, RunReport]:
    """Return the runs with fixed limits."""
    fixed = {"gateway.adaptive_limits": False, **SPAN}
    return {n: run(seed, **{"nodes.max_inflight": n, **fixed}) for n in LIMITS}


def run_learnt(seed: int, best: int) -> list[Learnt]:
    """Return the runs that begin with a tenth and with ten times the best limit."""
    starts = (max(1, best // 10), best * 10)
    return [Learnt(n, run(seed, **{"nodes.first_limit": n, **SPAN})) for n in starts]


def draw(static: dict[int, RunReport], best: int, learnt: list[Learnt], path: Path) -> None:
    """Draw the knee, and beside it how the learnt limits came to it."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    knee, course = figure.subplots(1, 2)
    knee.plot(LIMITS, [r.tokens_per_s for r in static.values()], "o-", color="#335c67")
    knee.set_xlabel("requests in flight, at most")
    knee.set_ylabel("output tokens/s")
    gaps = knee.twinx()
    gaps.plot(LIMITS, [1000 * gap_s(r) for r in static.values()], "s--", color="#c1121f")
    gaps.axhline(1000 * TARGET_S, color="#c1121f", linewidth=0.8)
    gaps.set_ylabel("critical's mean gap between tokens (ms)", color="#c1121f")
    for each in learnt:
        limits = [limit or 0 for limit in each.run.limit]
        course.plot(each.run.course_s, limits, label=f"from {each.start}")
    course.axhline(best, color="#6c7a89", linestyle="--", label=f"best fixed: {best}")
    course.set_ylim(0, 2 * best)
    course.set_xlabel("virtual seconds")
    course.set_ylabel("learnt limit")
    course.legend()
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a learnt limit is more than 10 % from the best fixed one, or swings
    by more."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_seeds(parser)
    parser.add_argument("--plot", type=Path, help="draw the first seed's runs to this PNG")
    options = parser.parse_args(arguments)
    worst = 0.0
    for seed in range(options.seeds):
        static = run_fixed(seed)
        best = best_limit(static)
        for limit, report in static.items():
            mark = " best" if limit == best else ""
            out = f"seed {seed} fixed {limit:4}: {report.tokens_per_s:5.0f} tok/s"
            sys.stdout.write(f"{out}, gap {1000 * gap_s(report):.1f} ms{mark}\n")
        learnt = run_learnt(seed, best)
        for each in learnt:
            limits = each.limits(SPAN["warmup_s"])
            off = fmean(limits) / best - 1
            worst = max(worst, abs(off), each.swing())
            sys.stdout.write(
                f"seed {seed} learnt from {each.start}: mean {fmean(limits):.0f} ({off:+.0%}), "
                f"{min(limits)} to {max(limits)}, swing {each.swing():.1%}, "
                f"{each.run.tokens_per_s:.0f} tok/s, gap {1000 * gap_s(each.run):.1f} ms\n"
            )
        sys.stdout.flush()
        if seed == 0 and options.plot is not None:
            options.plot.parent.mkdir(parents=True, exist_ok=True)
            draw(static, best, learnt, options.plot)
    return 0 if worst <= 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
