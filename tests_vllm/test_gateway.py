"""Does our gateway bring quality of service to a real vLLM, with the plugin and without?"""

import ast
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from uuid import uuid4

import pytest

from tests_vllm.servers import (
    KEYS,
    PLUGIN,
    Server,
    as_tenant,
    eventually,
    serve_gateway,
    serve_vllm,
)

PLACES = 2
"""What one of the gateways lets a vLLM of four slots have at once."""
MOST_AT_ONCE = 6
"""What vLLM takes, running and waiting, before it answers 503."""


@dataclass
class Stack:
    """One vLLM behind two gateways: one that is told how much to send, and one that finds out."""

    has_plugin: bool
    vllm: Server
    late: Server
    free: Server
    status_before: int
    """What a client was answered while vLLM was starting."""


@pytest.fixture(scope="module", params=["stock", "plugin"])
def stack(
    request: pytest.FixtureRequest, model: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    has_plugin = request.param == "plugin"
    folders: list[Path] = [tmp_path_factory.mktemp(name) for name in ("vllm", "late", "free")]
    args = ["--max-num-queued-reqs", str(MOST_AT_ONCE), "--enable-log-requests"]
    # Stock, too, minds priorities only with this policy.
    args += PLUGIN if has_plugin else PLUGIN[2:]
    with (
        serve_vllm(model, folders[0] / "log", *args) as vllm,
        serve_gateway(vllm.url, folders[1], PLACES) as late,
        serve_gateway(vllm.url, folders[2]) as free,
    ):
        # What comes before the first look at the node waits for it, and is answered once it is up.
        assert eventually(lambda: "node vllm is down" in late.log.read_text(encoding="utf-8"))
        assert eventually(lambda: status_of(late) not in (0, 200))
        before = status_of(late)
        for server in (vllm, late, free):
            server.wait()
        yield Stack(has_plugin, vllm, late, free, before)


def status_of(server: Server) -> int:
    """Return the status of a short answer; 0 when nobody listens."""
    try:
        return int(server.open(as_tenant("acme"), max_tokens=1).status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


def inside(vllm: Server) -> float:
    """Return how many requests vLLM has, running and waiting."""
    return vllm.total("vllm:num_requests_running") + vllm.total("vllm:num_requests_waiting")


def holds_more(vllm: Server, number: int) -> bool:
    """Return whether vLLM has more requests than that."""
    return inside(vllm) > number


def tiers_ended(gateway: Server, at_least: int = 0) -> list[str]:
    """Return the tiers of the requests that have ended, in the order of their ends.

    A line of the log may come after the answer: so many are waited for.
    """

    def found() -> list[str]:
        return re.findall(r'"used_tier":"(\w+)"', gateway.log.read_text(encoding="utf-8"))

    assert eventually(lambda: len(found()) >= at_least)
    return found()


def num_ended(gateway: Server) -> int:
    """Return how many requests have ended: all that were sent, and their lines are in the log."""
    marker = f"marker-{uuid4().hex}"
    gateway.ask({**as_tenant("acme"), "x-request-id": marker}, max_tokens=1)
    assert eventually(lambda: marker in gateway.log.read_text(encoding="utf-8"))
    return len(tiers_ended(gateway))


def test_a_server_that_starts_is_not_sent_to(stack: Stack) -> None:
    assert stack.status_before == 503
    assert status_of(stack.late) == 200


def test_whose_it_is_arrives(stack: Stack) -> None:
    """In vLLM's own log of requests: from the gateway alone, and of the deadline what is left."""
    sent = {"headway_tenant": "mallory", "headway_weight": 1e6, "headway_deadline_s": 900.0}
    answer = stack.late.ask(as_tenant("zeta", "bulk"), max_tokens=2, vllm_xargs=sent)
    assert answer["usage"]["completion_tokens"] == 2
    log = stack.vllm.log.read_text(encoding="utf-8")
    found = re.findall(r"Received request .*extra_args=(\{.*?\})", log)
    terms = ast.literal_eval(found[-1])
    assert 0 < terms.pop("headway_deadline_s") <= 900.0
    assert terms == {"headway_tenant": "zeta", "headway_weight": KEYS["zeta"]}


def test_tiers_are_counted(stack: Stack) -> None:
    """By the plugin; stock vLLM counts requests alone."""
    ended = "vllm:request_success_total"
    ended_before, before = stack.vllm.total(ended), stack.vllm.by_tier("admissions_total")
    for tier in ("critical", "normal", "bulk"):
        stack.late.ask(as_tenant("zeta", tier), max_tokens=2)
    assert eventually(lambda: stack.vllm.total(ended) == ended_before + 3)
    after = stack.vllm.by_tier("admissions_total")
    counted = {tier: after[tier] - before.get(tier, 0.0) for tier in after}
    tiers = ("critical", "normal", "bulk") if stack.has_plugin else ()
    assert counted == dict.fromkeys(tiers, 1.0)


@pytest.mark.parametrize("first", ["bulk", "critical"])
def test_vllm_serves_by_the_tier(stack: Stack, first: str) -> None:
    """Who waits inside vLLM leaves it by tier, whoever came first: priorities arrive at stock."""
    ended_before = num_ended(stack.late)
    holders = [stack.vllm.open(max_tokens=480, ignore_eos=True, stream=True) for _ in range(4)]
    for holder in holders:
        holder.readline()

    def ask(tier: str) -> None:
        stack.late.ask(as_tenant("acme", tier), max_tokens=8, ignore_eos=True)

    second = "critical" if first == "bulk" else "bulk"
    with ThreadPoolExecutor(2) as callers:
        asked = [callers.submit(ask, first)]
        if not stack.has_plugin:
            assert eventually(lambda: inside(stack.vllm) == 5.0)
        asked.append(callers.submit(ask, second))
        if not stack.has_plugin:
            assert eventually(lambda: inside(stack.vllm) == 6.0)
            assert len(tiers_ended(stack.late)) == ended_before, "a slot was free too early"
        holders.pop().close()
        for each in asked:
            each.result()
    for holder in holders:
        holder.close()
    ended = tiers_ended(stack.late, ended_before + 2)[ended_before:]
    assert ended == ["critical", "bulk"]


def test_requests_wait_at_the_gateway_and_leave_by_tier(stack: Stack) -> None:
    """In the gateway's order: a busy machine wakes the threads of a client in any."""
    most_inside = 0.0
    ended_before = num_ended(stack.late)

    def ask(tier: str, num_tokens: int) -> None:
        stack.late.ask(as_tenant("acme", tier), max_tokens=num_tokens, ignore_eos=True)

    def are_queued(tier: str, number: int) -> bool:
        return stack.late.samples("headway_queue_depth")[f'tier="{tier}"'] >= number

    with ThreadPoolExecutor(13) as callers:
        asked = [callers.submit(ask, "bulk", 200) for _ in range(PLACES)]
        assert eventually(lambda: stack.vllm.total("vllm:num_requests_running") == PLACES)
        asked += [callers.submit(ask, "bulk", 60) for _ in range(10)]
        assert eventually(lambda: are_queued("bulk", PLACES + 1))
        # Critical would rather be refused than wait for so long.
        asked.append(callers.submit(ask, "normal", 5))
        assert eventually(lambda: are_queued("normal", 1))
        # On a busy machine some bulk may have ended before it came.
        ended_by_then = len(tiers_ended(stack.late)) - ended_before
        while not all(each.done() for each in asked):
            inside = stack.vllm.total("vllm:num_requests_running")
            most_inside = max(most_inside, inside + stack.vllm.total("vllm:num_requests_waiting"))
        for each in asked:
            each.result()
    ended = tiers_ended(stack.late, ended_before + PLACES + 11)[ended_before:]
    assert ended.count("bulk") == PLACES + 10
    assert ended.index("normal") <= ended_by_then + PLACES
    assert 0 < most_inside <= PLACES


def test_no_tenant_finds_the_prefix_of_another(stack: Stack) -> None:
    def hits(tenant: str) -> float:
        before = stack.vllm.total("vllm:prefix_cache_hits_total")
        stack.late.ask(as_tenant(tenant), prompt="All work and no play. " * 30, max_tokens=1)
        return stack.vllm.total("vllm:prefix_cache_hits_total") - before

    assert hits("acme") == 0.0
    assert hits("acme") > 0.0
    assert hits("zeta") == 0.0


def test_a_client_that_leaves_the_gateway_leaves_vllm(stack: Stack) -> None:
    before = stack.vllm.total("vllm:generation_tokens_total")
    stream = stack.late.open(as_tenant("acme"), max_tokens=450, ignore_eos=True, stream=True)
    stream.readline()
    stream.close()

    def is_gone() -> bool:
        # The numbers travel with an answer of the engine.
        stack.late.ask(as_tenant("acme"), max_tokens=1)
        return stack.vllm.total("vllm:num_requests_running") == 0.0

    assert eventually(is_gone)
    assert stack.vllm.total("vllm:generation_tokens_total") - before < 400


def test_a_full_vllm_is_tried_again(stack: Stack) -> None:
    """vLLM counts a request only a while after it has let it in, so it is filled one by one.

    Answers are short, because a request is sent eight times at most, a second apart.
    """
    before = stack.free.total("headway_node_retries_total")
    holders = []
    for number in range(MOST_AT_ONCE):
        holders.append(stack.vllm.open(max_tokens=300, ignore_eos=True, stream=True))
        assert eventually(partial(holds_more, stack.vllm, number))
    with pytest.raises(HTTPError) as full:
        stack.vllm.ask(max_tokens=1)
    assert full.value.code == 503

    def ask(_: int) -> int:
        return int(stack.free.open(as_tenant("acme"), max_tokens=2, ignore_eos=True).status)

    with ThreadPoolExecutor(2 * MOST_AT_ONCE) as callers:
        asked = [callers.submit(ask, number) for number in range(2 * MOST_AT_ONCE)]
        assert eventually(lambda: stack.free.total("headway_node_retries_total") > before)
        for holder in holders:
            holder.close()
        assert {each.result() for each in asked} == {200}
