"""Does `vllm serve` with the plugin serve, count by tier, and let go of clients that leave?"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests_vllm.servers import PLUGIN, START_S, Server, eventually, serve_vllm


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
