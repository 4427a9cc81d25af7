"""Does the simulator bear out each claim about the core?

    python bench/simulated_claims.py --traces TRACES --seeds 3 --output claims.json

Every claim runs its scenarios under the policies that it compares, once for each seed, and is met
when it is met with every seed. TRACES is a folder with the traces that are named below.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from headway.core.tier_books import FLOOR_QUANTUM

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.claim_figures import (
    attained,
    largest_ttft_p99_s,
    load_over,
    service_per_s,
    tier,
    ttft_p99_s,
)
from bench.claim_table import NO_SETTINGS, Bench, Bound, Claim, Figures, Row, line_of, rows_of
from bench.seeds_option import add_seeds

from bench import limiter_knee, wait_calibration

SERVICE_OF_A_STEP = 2048
"""Tokens of a full step in the scenarios."""


# -- 1 ------------------------------------------------------------------------------------------


def bulk_flood(bench: Bench) -> Figures:
    """100,000 bulk requests wait: what does critical see of them, and what is left to them?"""
    alone = bench.run("bulk-flood", settings={"streams.bulk.arrivals.count": 1})
    bulk = bench.run("bulk-flood", settings={"streams.critical.arrivals.rate": 0.001})
    flood = bench.run("bulk-flood")
    priority = bench.run("bulk-flood", "vllm-priority")
    fcfs = bench.run("bulk-flood", "fcfs")
    left_over = bulk.service_per_s - service_per_s(flood, "critical")
    iteration_s = flood.mean_step_s
    assert iteration_s is not None, "a flood without a step"
    return {
        "critical TTFT p50 without bulk, s": tier(alone, "critical").ttft_s.p50 or inf,
        "critical TTFT p50, s": tier(flood, "critical").ttft_s.p50 or inf,
        "critical TTFT p99 without bulk, s": ttft_p99_s(alone),
        "critical TTFT p99, s": ttft_p99_s(flood),
        "p99 over that without bulk": ttft_p99_s(flood) / ttft_p99_s(alone),
        "p99 above it, in iterations": (ttft_p99_s(flood) - ttft_p99_s(alone)) / iteration_s,
        "bulk's share of what critical leaves": service_per_s(flood, "bulk") / left_over,
        "critical attained without bulk": attained(alone, "critical"),
        "critical attained": attained(flood, "critical"),
        "vLLM's priority: critical TTFT p99, s": ttft_p99_s(priority),
        "vLLM's priority: critical attained": attained(priority, "critical"),
        "first come: critical TTFT p99, s": ttft_p99_s(fcfs),
        "first come: critical attained": attained(fcfs, "critical"),
        "bulk output tok/s": tier(flood, "bulk").tokens_per_s,
        "vLLM's priority: bulk output tok/s": tier(priority, "bulk").tokens_per_s,
        "first come: bulk output tok/s": tier(fcfs, "bulk").tokens_per_s,
    }


# -- 2 ------------------------------------------------------------------------------------------


def floors(bench: Bench) -> Figures:
    """Endless critical work: how far below its floor is a tier in any 30 s in a row?

    The bound is that of G1 in the engine, as its test states it.
    """
    run = bench.run("floors")
    figures: Figures = {}
    for name, floor in (("normal", 0.15), ("bulk", 0.05)):
        bound = FLOOR_QUANTUM * SERVICE_OF_A_STEP + 2 * SERVICE_OF_A_STEP * floor + 2
        least = tier(run, name).least_share_30s or 0.0
        figures[f"{name}: share"] = tier(run, name).service_share
        figures[f"{name}: least share in 30 s"] = least
        figures[f"{name}: bound, as a share of 30 s"] = bound / (30 * run.service_per_s)
        figures[f"{name}: least, over the floor less the bound"] = least - (
            floor - bound / (30 * run.service_per_s)
        )
    return figures


# -- 3 ------------------------------------------------------------------------------------------

TRACES: Mapping[str, dict[str, object]] = {
    "vtc_lmsys_arena_27tenants": {
        "duration_s": 150,
        "streams.tenants.arrivals.rate_factor": 4,
        "nodes.max_num_seqs": 32,
    },
    "servegen_r1_burst_30min": {
        "duration_s": 240,
        "streams.tenants.arrivals.from_s": 550,
        "streams.tenants.arrivals.token_divisor": 2,
    },
    "servegen_mlarge_noisy_20min_rate1of20": {
        "duration_s": 240,
        "streams.tenants.arrivals.from_s": 560,
        "streams.tenants.arrivals.rate_factor": 2.5,
    },
}
"""Each with a node that is overloaded by it; of the longer ones the time when one tenant floods."""


def fairness(bench: Bench) -> Figures:
    """Tenants of a trace that want more than there is: how even is service, and at what cost?"""
    figures: Figures = {}
    for trace, settings in TRACES.items():
        fair = bench.run("tenants", settings=settings, trace=trace)
        fcfs = bench.run("tenants", "fcfs", settings=settings, trace=trace)
        name = trace.split("_")[1] if trace.startswith("servegen") else "vtc"
        figures[f"{name}: Jain index"] = fair.jain or 0.0
        figures[f"{name}: Jain index, first come"] = fcfs.jain or 0.0
        figures[f"{name}: service over first come's"] = fair.service_per_s / fcfs.service_per_s
        figures[f"{name}: output tok/s over first come's"] = fair.tokens_per_s / fcfs.tokens_per_s
    return figures


def weights(bench: Bench) -> Figures:
    """Weights of 1 to 4: how far is the share of any tenant from its own, relative to it?"""
    run = bench.run("weights-1-2-3-4")
    share = {each.tenant: each.service_share / (each.weight / 10) for each in run.tenants}
    figures = {f"share of {name} over its weight's": share[name] for name in sorted(share)}
    figures["furthest off"] = max(abs(each - 1) for each in share.values())
    return figures


# -- 4 ------------------------------------------------------------------------------------------

HALVINGS = 4
"""Of a range of loads 1.6 wide: what is found is at most 0.1 too low."""
CHUNKS = (192, 256, 320, 512)
"""Of Sarathi, which gets the best of them: larger ones carry more, at longer gaps."""


def goodput(bench: Bench) -> Figures:
    """The highest load at which 99 % of critical and 90 % of normal are within their targets."""
    return goodput_of(bench, "qoserve-tiers", (1.0, 2.6))


def goodput_of_defaults(bench: Bench) -> Figures:
    """The same with the default targets, of which a long prompt alone needs most of the TTFT."""
    return goodput_of(bench, "three-tiers", (0.4, 2.0))


def goodput_of(bench: Bench, scenario: str, loads: tuple[float, float]) -> Figures:
    """Compare headway's highest load with those of Sarathi."""
    highest = {"headway": highest_load(bench, scenario, loads, "headway")}
    figures: Figures = {}
    for policy in ("sarathi", "sarathi-edf"):
        by_chunk = {
            chunk: highest_load(bench, scenario, loads, policy, {"policy.chunk_size": chunk})
            for chunk in CHUNKS
        }
        figures[f"{policy}: best chunk size"] = max(CHUNKS, key=by_chunk.__getitem__)
        highest[policy] = max(by_chunk.values())
    figures |= {f"{policy}: highest load": load for policy, load in highest.items()}
    if (load := highest["headway"]) > 0:
        at_highest = bench.run(scenario, "headway", {"load": load})
        figures["headway: bulk attained at its highest load"] = attained(at_highest, "bulk")
    for policy, name in (("sarathi", "first come"), ("sarathi-edf", "earliest deadline")):
        figures[f"over Sarathi, {name}"] = load_over(load, highest[policy])
    return figures


def highest_load(
    bench: Bench,
    scenario: str,
    loads: tuple[float, float],
    policy: str,
    settings: Mapping[str, object] = NO_SETTINGS,
) -> float:
    """Return it by halving; the higher of `loads` is taken not to hold. 0 when none tried does.

    A low load may hold less than a higher one: its steps are longer, and so are its spikes.
    """

    def holds(load: float) -> bool:
        run = bench.run(scenario, policy, {"load": load, **settings})
        return attained(run, "critical") >= 0.99 and attained(run, "normal") >= 0.9

    low, high = loads
    for _ in range(HALVINGS):
        load = (low + high) / 2
        low, high = (load, high) if holds(load) else (low, load)
    return low if low > loads[0] or holds(low) else 0.0


# -- 5 ------------------------------------------------------------------------------------------

BURST: dict[str, object] = {
    "streams.code.arrivals.from_s": 820,
    "streams.batch.arrivals.count": 50_000,
    "nodes.count": 20,
    "nodes.max_num_seqs": 64,
    "duration_s": 90,
    "warmup_s": 20,
    "drain_s": 10,
}
BURST_ENDS_S = 67.5
"""From 29.5 s on the trace has, until then, six times its mean rate."""


def burst(bench: Bench) -> Figures:
    """The burst of the Azure code trace: who is served within the targets, and after it?"""
    figures: Figures = {}
    for policy in ("headway", "fcfs"):
        run = bench.run("burst-6x", policy, BURST, "azure2023_code")
        figures[f"{policy}: critical attained"] = attained(run, "critical")
        figures[f"{policy}: critical TTFT p99, s"] = ttft_p99_s(run)
        figures[f"{policy}: normal attained"] = attained(run, "normal")
        figures[f"{policy}: bulk output tok/s"] = tier(run, "bulk").tokens_per_s
        largest_s = largest_ttft_p99_s(run, BURST_ENDS_S + 2)
        figures[f"{policy}: largest TTFT p99 of a second, from 2 s after it"] = largest_s
    return figures


# -- 6 ------------------------------------------------------------------------------------------


def preemption(bench: Bench) -> Figures:
    """1.5 times the load, with ample blocks and with a quarter of them: what is computed twice?"""
    figures: Figures = {}
    for num_blocks in (16_384, 4096):
        run = bench.run("three-tiers", settings={"load": 1.5, "nodes.num_blocks": num_blocks})
        figures[f"{num_blocks} blocks: recomputed"] = run.recomputed_share
        figures[f"{num_blocks} blocks: preemptions p99, worst tier"] = max(
            each.preemptions_p99 or 0.0 for each in run.tiers
        )
    return figures


# -- 7 ------------------------------------------------------------------------------------------


def waits(bench: Bench) -> Figures:
    """How many of the waits were within the p90 that was told on arrival?"""
    return {
        load.scenario: load.run(bench.seed).wait_calibration or 0.0
        for load in wait_calibration.LOADS
    }


# -- 8 ------------------------------------------------------------------------------------------


def limiter(bench: Bench) -> Figures:
    """A limit learnt from a tenth and from ten times the best fixed one: where does it settle?"""
    static = limiter_knee.run_fixed(bench.seed)
    best = limiter_knee.best_limit(static)
    figures: Figures = {"best fixed limit": best}
    learnt = limiter_knee.run_learnt(bench.seed, best)
    for name, each in zip(("a tenth", "ten times"), learnt, strict=True):
        mean = fmean(each.limits(limiter_knee.SPAN["warmup_s"]))
        figures[f"from {name}: mean limit over the best"] = mean / best
        figures[f"from {name}: swing"] = each.swing()
        figures[f"from {name}: tok/s over the best's"] = (
            each.run.tokens_per_s / static[best].tokens_per_s
        )
        figures[f"from {name}: critical's mean gap, s"] = limiter_knee.gap_s(each.run)
    return figures


CLAIMS = (
    Claim(
        1,
        "bulk flood",
        bulk_flood,
        {
            "p99 over that without bulk": Bound(most=1.1),
            "p99 above it, in iterations": Bound(most=1),
            "bulk's share of what critical leaves": Bound(least=0.85),
        },
    ),
    Claim(
        2,
        "floors",
        floors,
        {
            "normal: least, over the floor less the bound": Bound(least=0),
            "bulk: least, over the floor less the bound": Bound(least=0),
        },
    ),
    Claim(
        3,
        "fairness",
        fairness,
        {
            f"{name}: {figure}": Bound(least=least)
            for name in ("vtc", "r1", "mlarge")
            for figure, least in (("Jain index", 0.98), ("service over first come's", 0.97))
        },
    ),
    Claim(3, "weights", weights, {"furthest off": Bound(most=0.03)}),
    Claim(
        4,
        "goodput",
        goodput,
        {
            "over Sarathi, first come": Bound(least=1.5),
            "over Sarathi, earliest deadline": Bound(least=1.15),
        },
    ),
    Claim(4, "goodput-of-defaults", goodput_of_defaults),
    Claim(
        5,
        "burst",
        burst,
        {
            "headway: critical attained": Bound(least=0.99),
            "headway: largest TTFT p99 of a second, from 2 s after it": Bound(most=2),
        },
    ),
    Claim(
        6,
        "preemption",
        preemption,
        {
            "16384 blocks: recomputed": Bound(most=0.05),
            "16384 blocks: preemptions p99, worst tier": Bound(most=2),
        },
    ),
    Claim(
        7,
        "waits",
        waits,
        {
            load.scenario: Bound(wait_calibration.LEAST, wait_calibration.MOST)
            for load in wait_calibration.LOADS
        },
    ),
    Claim(
        8,
        "limiter",
        limiter,
        {
            f"from {name}: {figure}": bound
            for name in ("a tenth", "ten times")
            for figure, bound in (
                ("mean limit over the best", Bound(0.9, 1.1)),
                ("swing", Bound(most=0.1)),
            )
        },
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, a claim at a time; 1 when one is not met."""
    options = _options(arguments)
    chosen = [each for each in CLAIMS if not options.only or each.name in options.only]
    benches = [Bench(seed, options.traces) for seed in range(options.seeds)]
    rows: list[Row] = []
    with ProcessPoolExecutor(options.processes) as pool:
        running = [pool.map(_measured, repeat(each.name), benches) for each in chosen]
        for claim, figures in zip(chosen, running, strict=True):
            found = rows_of(claim, list(figures))
            rows += found
            sys.stdout.writelines(line_of(row) for row in found)
            sys.stdout.flush()
            if options.output is not None:
                options.output.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
    return 0 if all(row.met is not False for row in rows) else 1


def _options(arguments: Sequence[str] | None) -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces"))
    add_seeds(parser)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", action="append", choices=[each.name for each in CLAIMS])
    parser.add_argument("--output", type=Path)
    return parser.parse_args(arguments)


def _measured(name: str, bench: Bench) -> Figures:
    claim = next(each for each in CLAIMS if each.name == name)
    return claim.measure(bench)


if __name__ == "__main__":
    sys.exit(main())
