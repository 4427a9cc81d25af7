"""What of a flood do critical requests feel at vLLM: its own policies, the plugin, our gateway?

Run in vLLM's environment, on a machine that does nothing else:

    .venv-vllm-0.32.0/bin/python -m bench.vllm_isolation MODEL_FOLDER --setup fcfs --setup plugin

All servers are up at once and are measured in turn; one that is not measured is idle. `--blocks`
makes KV short, `--phase bulk-alone` leaves critical requests out.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console
from tests_vllm.servers import PLUGIN, Server, serve_gateway, serve_vllm

from headway.bench.client import Server as Address
from headway.bench.isolation import (
    ALL_PHASES,
    FLOOD,
    IsolationReport,
    PhaseReport,
    Run,
    measure,
)
from headway.bench.load import Load
from headway.bench.report import table, to_json
from headway.cli.tell import tell
from headway.clock import MonotonicClock

PRIORITIES = {"critical": -1, "bulk": 1}


class Setup(NamedTuple):
    """What is measured."""

    args: tuple[str, ...] = ()
    """Of vLLM."""
    behind_gateway: bool = False


SETUPS = {
    "fcfs": Setup(),
    "priority": Setup(("--scheduling-policy", "priority")),
    "plugin": Setup(PLUGIN),
    "gateway": Setup(behind_gateway=True),
    "gateway+plugin": Setup(PLUGIN, behind_gateway=True),
}


def vllm_args(options: argparse.Namespace) -> list[str]:
    """Return what every vLLM is started with."""
    args = ["--no-enforce-eager", "--max-model-len", "4096", "--max-num-seqs", str(options.slots)]
    if options.batched_tokens is not None:
        args += ["--max-num-batched-tokens", str(options.batched_tokens)]
    if options.blocks is not None:
        args += ["--num-gpu-blocks-override", str(options.blocks)]
    return args


def chosen_setups(options: argparse.Namespace) -> dict[str, Setup]:
    """Return what is measured, by name; those with the plugin once for each of the settings.

    Of several settings the names have the number, from 1.
    """
    chosen: dict[str, Setup] = {}
    for name in options.setup:
        setup = SETUPS[name]
        if setup.args != PLUGIN or not options.settings:
            chosen[name] = setup
            continue
        for number, text in enumerate(options.settings, start=1):
            config = ("--additional-config", f'{{"headway": {text}}}')
            label = name if len(options.settings) == 1 else f"{name} {number}"
            chosen[label] = setup._replace(args=(*PLUGIN, *config))
    return chosen


@contextmanager
def started(
    options: argparse.Namespace, setups: Mapping[str, Setup]
) -> Iterator[tuple[dict[str, Server], dict[str, Server]]]:
    """Start what the setups need; yield by setup where to send, and the vLLM there."""
    nodes: dict[tuple[str, ...], Server] = {}
    doors: dict[str, Server] = {}
    behind: dict[str, Server] = {}
    with TemporaryDirectory() as folder, ExitStack() as stack:
        for name, setup in setups.items():
            if setup.args not in nodes:
                log = Path(folder, f"{len(nodes)}.log")
                args = [*vllm_args(options), *setup.args]
                node = serve_vllm(options.model, log, *args, VLLM_CPU_KVCACHE_SPACE="1")
                nodes[setup.args] = stack.enter_context(node)
                node.wait()
            doors[name] = behind[name] = nodes[setup.args]
            if setup.behind_gateway:
                own = Path(folder, f"gateway-{len(doors)}")
                own.mkdir()
                doors[name] = stack.enter_context(serve_gateway(behind[name].url, own))
                doors[name].wait()
        yield doors, behind


def runs_of(doors: Mapping[str, Server], setups: Mapping[str, Setup], phase: str) -> list[Run]:
    """Return what is to be measured in turn."""

    def run_of(name: str, door: Server) -> Run:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Address]:
            is_gateway = setups[name].behind_gateway
            yield Address(
                base_url=door.url,
                api_key="acme" if is_gateway else None,
                priorities={} if is_gateway else PRIORITIES,
            )

        return Run(label=name, phases=(phase,), open=opened)

    return [run_of(name, door) for name, door in doors.items()]


def ratios(report: IsolationReport, names: Sequence[str]) -> Iterator[str]:
    """Yield how each setup compares with the first ones, in words."""
    for name in names:
        for other in ("fcfs", "priority"):
            before, after = (report.middle(label, FLOOD, "critical") for label in (other, name))
            stock, bulk = (report.middle(label, FLOOD, "bulk") for label in (other, name))
            if name == other or not (before and after and stock and bulk):
                continue
            share = bulk.tokens_per_s / stock.tokens_per_s
            ttft, gap = (
                old / new if old and new else 0.0
                for old, new in (
                    (before.ttft_p99_s, after.ttft_p99_s),
                    (before.gap_p99_s, after.gap_p99_s),
                )
            )
            yield (
                f"{name} beside {other}: TTFT p99 {ttft:.1f} times lower, gap p99 {gap:.1f} times, "
                f"bulk {share:.0%}"
            )


def of_plugin(node: Server) -> str:
    """Return what our scheduler's own numbers say since it was started."""
    computed = node.total("headway:batched_tokens_total")
    steps = node.total("headway:steps_total")
    return (
        f"{node.total('headway:preemptions_total'):.0f} preemptions, "
        f"{node.total('headway:recomputed_tokens_total') / computed:.2%} of the tokens computed "
        f"again, {1e3 * node.total('headway:planning_seconds_total') / steps:.2f} ms of planning a "
        f"step, {node.total('headway:late_steps_total') / steps:.1%} of the steps late"
    )


def of_stock(node: Server) -> str:
    """Return what vLLM's own numbers say since it was started."""
    return f"{node.total('vllm:num_preemptions_total'):.0f} preemptions"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--setup", action="append", choices=SETUPS, default=[])
    parser.add_argument("--phase", default=FLOOD, choices=ALL_PHASES)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--blocks", type=int)
    parser.add_argument(
        "--batched-tokens", type=int, help="most tokens of a step; vLLM's default on a CPU is 2048"
    )
    parser.add_argument(
        "--settings", action="append", default=[], help="settings of the plugin, as JSON"
    )
    parser.add_argument("--callers", type=int, default=48)
    parser.add_argument("--duration", type=float, default=70.0)
    parser.add_argument("--warmup", type=float, default=25.0)
    parser.add_argument(
        "--critical-from",
        type=float,
        default=0.0,
        help="seconds that bulk has the server to itself before critical requests begin to arrive",
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.settings and not any(SETUPS[name].args == PLUGIN for name in options.setup):
        parser.error("--settings needs a --setup with the plugin")
    load = Load(
        bulk_callers=options.callers,
        duration_s=options.duration,
        warmup_s=options.warmup,
        critical_from_s=options.critical_from,
        grace_s=60.0,
    )
    console = Console(width=120)
    setups = chosen_setups(options)
    ended: list[PhaseReport] = []
    with started(options, setups) as (doors, behind):
        runs = runs_of(doors, setups, options.phase)
        measuring = measure(
            runs,
            load,
            MonotonicClock(),
            watch=tell,
            repeat=options.repeat,
            alternate=True,
            ended=ended,
        )
        try:
            asyncio.run(measuring)
        finally:
            report = IsolationReport(load=load, phases=tuple(ended))
            console.print(table(report))
            for number, text in enumerate(options.settings, start=1):
                console.print(f"settings {number}: {text}")
            for line in ratios(report, list(setups)):
                console.print(line)
            if options.json is not None:
                options.json.write_bytes(to_json(report, []))
            for node in (*doors.values(), *behind.values()):
                if node.process.poll() is not None:
                    console.print(f"{node.url} has ended:\n{node.log.read_text()[-8000:]}")
        for name, node in behind.items():
            is_ours = setups[name].args[: len(PLUGIN)] == PLUGIN
            console.print(f"{name}: {of_plugin(node) if is_ours else of_stock(node)}")


if __name__ == "__main__":
    main()
