"""Does `vllm serve` with the plugin serve, count by tier, and let go of clients that leave?"""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway.vllm_plugin.counters import METRICS
from tests_vllm.servers import PLUGIN, START_S, Server, eventually, serve_vllm

HURRIED = {
    "efficiency": 0.02,
    "min_efficiency": 0.01,
    "tiers": {"critical": {"gap_s": 0.001}},
}
"""Settings by which there is little time for bulk beside critical."""
MANY = 16
"""Slots of which that time is not enough for all."""


def at(priority: int) -> dict[str, str]:
    return {"x-vllm-priority": str(priority)}


@pytest.fixture(scope="module")
def server(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that was asked for the plugin by the environment alone, and for no statistics."""
    log = tmp_path_factory.mktemp("vllm") / "log"
    with serve_vllm(model, log, "--disable-log-stats", HEADWAY_VLLM="1") as server:
        server.wait()
        yield server


def test_requests_are_counted_by_tier(server: Server) -> None:
    """Whatever `--disable-log-stats` says: vLLM keeps its statistics for our logger."""
    before = server.by_tier("admissions_total")
    xargs = {"headway_tenant": "acme", "headway_weight": 2.0, "headway_deadline_s": 60.0}
    for priority, number in ((-1, 1), (0, 2), (1, 3)):
        for _ in range(number):
            answer = server.ask(at(priority), max_tokens=4, vllm_xargs=xargs)
            assert answer["usage"]["completion_tokens"] == 4
    after = server.by_tier("admissions_total")
    counted = {tier: after[tier] - before.get(tier, 0.0) for tier in after}
    assert counted == {"critical": 1.0, "normal": 2.0, "bulk": 3.0}
    assert server.by_tier("num_requests_waiting")["bulk"] == 0.0
    assert server.by_tier("batched_tokens_total")["bulk"] > 0.0
    assert server.total("headway:max_num_seqs") == 4.0


def test_what_the_environment_chose_is_logged(server: Server) -> None:
    text = server.log.read_text(encoding="utf-8")
    assert "HEADWAY_VLLM: --scheduler-cls headway.vllm_plugin.QoSScheduler" in text
    assert "in place of vLLM's scheduler and policy fcfs" in text


def bulk_stream(server: Server, **body: Any) -> Any:
    """Return a stream of bulk that holds a slot until it is closed, or for long."""
    stream = server.open(at(1), max_tokens=480, ignore_eos=True, stream=True, **body)
    stream.readline()
    return stream


def order_of(server: Server, asked: Sequence[dict[str, Any]]) -> list[int]:
    """Return in which order bulk requests that wait for one slot are answered, by their index.

    `asked` are their extra arguments. All wait before the slot is free.
    """
    order: list[int] = []
    streams = [bulk_stream(server, vllm_xargs={"headway_tenant": "filler"}) for _ in range(4)]

    def ask(index: int) -> None:
        xargs = {f"headway_{name}": value for name, value in asked[index].items()}
        server.ask(at(1), max_tokens=8, ignore_eos=True, vllm_xargs=xargs)
        order.append(index)

    with ThreadPoolExecutor(len(asked)) as callers:
        answers = []
        for index in range(len(asked)):
            answers.append(callers.submit(ask, index))
            waiting = index + 1
            assert eventually(
                lambda n=waiting: server.by_tier("num_requests_waiting")["bulk"] == n
            ), "the slots are free too early, so nothing is shown"
        streams.pop().close()
        for answer in answers:
            answer.result()
    for stream in streams:
        stream.close()
    return order


def test_deadlines_arrive(server: Server) -> None:
    late, soon = {"tenant": "acme", "deadline_s": 3600.0}, {"tenant": "acme", "deadline_s": 5.0}
    assert order_of(server, [late, soon]) == [1, 0]


def test_tenants_arrive(server: Server) -> None:
    """One of zeta's does not wait for all of acme's."""
    order = order_of(server, [{"tenant": "acme"}] * 4 + [{"tenant": "zeta"}])
    assert order.index(4) <= 1


def test_weights_arrive(server: Server) -> None:
    light, heavy = {"tenant": "acme", "weight": 0.2}, {"tenant": "zeta", "weight": 2.0}
    order = order_of(server, [light] * 4 + [heavy] * 4)
    assert sum(index >= 4 for index in order[:4]) >= 3


def test_every_choice_is_a_request_of_its_tier(server: Server) -> None:
    before = server.by_tier("admissions_total").get("critical", 0.0)
    answer = server.ask(at(-1), n=3, temperature=0.9, max_tokens=5, ignore_eos=True)
    assert len(answer["choices"]) == 3
    assert answer["usage"]["completion_tokens"] == 15
    assert server.by_tier("admissions_total")["critical"] - before == 3.0


def test_a_request_waits_aside_for_its_grammar(server: Server) -> None:
    """vLLM compiles it while the request is in the queue."""
    answer = server.ask(at(-1), max_tokens=8, structured_outputs={"choice": ["yes", "no"]})
    assert answer["choices"][0]["text"] in ("yes", "no")


def test_a_client_that_leaves_frees_its_slot(server: Server) -> None:
    stream = server.open(at(1), max_tokens=400, ignore_eos=True, stream=True)
    stream.readline()
    stream.close()

    def is_gone() -> bool:
        # The numbers travel with an answer of the engine.
        server.ask(max_tokens=1)
        return server.by_tier("num_requests_running")["bulk"] == 0.0

    assert eventually(is_gone)


def test_two_engines_behind_one_server(model: str, tmp_path: Path) -> None:
    """Data parallelism: each engine has a scheduler of its own, and metrics of its own."""
    with (
        serve_vllm(model, tmp_path / "log", *PLUGIN, "--data-parallel-size", "2") as server,
        ThreadPoolExecutor(8) as callers,
    ):
        server.wait()
        asked = [callers.submit(server.ask, at(1), max_tokens=8) for _ in range(8)]
        assert all(answer.result()["choices"] for answer in asked)
        admissions = server.samples("headway:admissions_total")
        engines = {labels.partition('engine="')[2].partition('"')[0] for labels in admissions}
        assert engines == {"0", "1"}
        assert sum(admissions.values()) == 8.0
        assert server.total("headway:max_num_seqs") == 8.0


def test_an_engine_that_is_not_supported_says_how_to_go_back(model: str, tmp_path: Path) -> None:
    with serve_vllm(model, tmp_path / "log", *PLUGIN[:2]) as server:
        server.process.wait(START_S)
        text = server.log.read_text(encoding="utf-8")
        assert "it needs --scheduling-policy priority" in text
        assert "The way back: start vLLM without --scheduler-cls" in text


def test_what_the_scheduler_did_is_counted(model: str, tmp_path: Path) -> None:
    """A critical request takes a slot of bulk, and some of the rest is parked beside it."""
    args = ["--max-num-seqs", str(MANY), "--additional-config", json.dumps({"headway": HURRIED})]
    with serve_vllm(model, tmp_path / "log", *PLUGIN, *args) as server:
        server.wait()
        began = time.monotonic()
        streams = [bulk_stream(server) for _ in range(MANY)]
        with closing(server.open(at(-1), max_tokens=60, ignore_eos=True, stream=True)) as critical:
            critical.readline()
            assert eventually(lambda: 0.0 < server.total("headway:step_budget_seconds") < 1.0)
            critical.read()
        assert eventually(lambda: totals(server)["recomputed_tokens"] > 0), "nobody came back"
        for stream in streams:
            stream.close()
        took_s = time.monotonic() - began
        counted = totals(server)
        assert server.by_tier("preemptions_total")["bulk"] >= 1
        assert server.by_tier("parked_turns_total")["bulk"] >= 1
        assert server.total("headway:safety_factor") >= 1.0
    assert counted["preemptions"] >= 1
    assert counted["steps"] >= 60
    assert 0.0 < counted["step_seconds"] < took_s
    assert 0.2 < counted["predicted_step_seconds"] / counted["step_seconds"] < 5.0
    assert 0.0 < counted["planning_seconds"] < counted["step_seconds"]
    assert 0 <= counted["late_steps"] <= counted["steps"]


def totals(server: Server) -> dict[str, float]:
    """Return what the scheduler has counted, each over all tiers."""
    names = [metric.name for metric in METRICS if not metric.is_gauge]
    return {name: server.total(f"headway:{name}_total") for name in names}
