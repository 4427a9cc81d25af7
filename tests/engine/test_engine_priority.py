"""Does a request wait only as long as it must?"""

from dataclasses import replace
from random import Random

import pytest

from headway.core.service import MAX_WEIGHT, MIN_WEIGHT
from headway.core.tier import Tier, Tiers
from headway.engine.fake_runner import FakeRunner
from headway.engine.request import EngineRequest
from headway.engine.sampling_params import SamplingParams
from headway.errors import InvalidRequestError
from tests.engine.tiny import (
    BULK,
    CRITICAL,
    NORMAL,
    RANKS,
    Tiny,
    check_answers,
    prompt_tokens,
    request,
)

NO_FLOORS = Tiers((Tier("critical", 0, preemptible=False), Tier("normal", 1), Tier("bulk", 2)))


# -- A: priority and preemption ---------------------------------------------------------------


def test_a1_urgent_request_takes_a_slot_from_one_batch_request() -> None:
    """A1(a): slots are short, blocks are not."""
    tiny = Tiny()
    batch = [request(f"b{i}", 20, 60, BULK, prompt_seed=i) for i in range(2)]
    for wanted in batch:
        tiny.add(wanted)
    while min(len(tiny.tokens(wanted.request_id)) for wanted in batch) < 10:
        tiny.step()
    urgent = request("urgent", 10, 5, CRITICAL, prompt_seed=9)
    tiny.add(urgent)
    tiny.step()
    assert len(tiny.tokens("urgent")) == 1
    assert tiny.engine.stats().num_preemptions == 1
    tiny.run()
    assert tiny.engine.stats().num_preemptions == 1
    check_answers(tiny, [*batch, urgent])


def test_a1_urgent_request_takes_blocks_from_one_batch_request() -> None:
    """A1(b): a slot is free, blocks are not."""
    tiny = Tiny(max_num_seqs=3)
    batch = [request(f"b{i}", 80, 11, BULK, prompt_seed=i) for i in range(2)]
    for wanted in batch:
        tiny.add(wanted)
    while min(len(tiny.tokens(wanted.request_id)) for wanted in batch) < 1:
        tiny.step()
    urgent = request("urgent", 14, 30, CRITICAL, prompt_seed=9)
    tiny.add(urgent)
    tiny.step()
    assert len(tiny.tokens("urgent")) == 1
    tiny.run()
    assert tiny.engine.stats().num_preemptions == 1
    check_answers(tiny, [*batch, urgent])


def test_a1_equals_never_take_each_others_slot() -> None:
    """A1: of one tier, the third waits until one of two has finished."""
    tiny = Tiny()
    for i in range(3):
        tiny.add(request(f"r{i}", 10, 10, CRITICAL, prompt_seed=i))
    tiny.run()
    assert tiny.engine.stats().num_preemptions == 0


@pytest.mark.parametrize("part", range(5))
def test_a2_victims_anywhere_in_the_running_list(part: int) -> None:
    """A2: 500 seeds; six requests of mixed tiers, blocks for about three of them."""
    for seed in range(part * 100, part * 100 + 100):
        random = Random(seed)
        tiny = Tiny(max_num_seqs=6, max_num_batched_tokens=random.choice([16, 64]))
        all_wanted = [
            request(
                f"r{i}",
                random.randint(30, 70),
                random.randint(2, 20),
                random.choice(RANKS),
                prompt_seed=i,
            )
            for i in range(6)
        ]
        for wanted in random.sample(all_wanted, 6):
            tiny.add(wanted)
            for _ in range(random.randint(0, 6)):
                tiny.step()
        tiny.run()
        if seed % 5 == 0:
            check_answers(tiny, all_wanted)


def test_g2_a_critical_request_is_in_the_first_step_after_its_arrival() -> None:
    """G2: whatever lower tiers have running and waiting."""
    for seed in range(150):
        random = Random(seed)
        tiny = Tiny(max_num_seqs=random.randint(1, 6), tiers=NO_FLOORS, max_preemptions=1_000_000)
        for i in range(random.randint(1, 10)):
            rank = random.choice([NORMAL, BULK])
            size, length = random.randint(1, 120), random.randint(1, 40)
            tiny.add(request(f"r{i}", size, length, rank, prompt_seed=i % 3))
        for _ in range(random.randint(0, 40)):
            tiny.step()
        tiny.add(request("urgent", random.randint(1, 150), 2, CRITICAL, prompt_seed=8))
        tiny.step()
        assert tiny.engine.stats().num_waiting[CRITICAL] == 0
        tiny.run()


def test_g2_an_overdue_floor_that_waits_for_others_does_not_hold_critical() -> None:
    """G2: bulk is owed and does not fit while normal holds the blocks; critical takes none of them.

    And once normal has left, bulk is next, however much critical keeps coming (G1): one step is
    the floor's.
    """
    tiny = Tiny(FakeRunner(num_blocks=24), max_num_seqs=6, max_num_batched_tokens=32)
    tiny.add(request("holder", 150, 200, NORMAL))
    tiny.step()
    tiny.add(request("bulk", 200, 4, BULK, prompt_seed=1))
    number, held = 0, 0
    while not tiny.outputs["bulk"]:
        tiny.add(request(f"normal{number}", 20, 4, NORMAL, prompt_seed=2 + number))
        tiny.add(request(f"critical{number}", 12, 1, CRITICAL, prompt_seed=5000 + number))
        tiny.step()
        if not tiny.engine.stats().num_running[BULK]:
            assert tiny.outputs[f"critical{number}"], "it is not in the first step it could be in"
        number += 1
        held = max(held, tiny.engine.stats().num_waiting[NORMAL])
        assert number < 1000, "bulk is starved"
    assert held > 20, "the floor was never overdue"
    tiny.run()


def test_b7_floors_let_bulk_finish_under_endless_critical_load() -> None:
    """G1, G4: with a floor bulk finishes; without one strict priority starves it."""

    def bulk_tokens(tiers: Tiers) -> int:
        tiny = Tiny(tiers=tiers)
        tiny.add(request("bulk", 20, 10, BULK))
        for number in range(1000):
            if tiny.engine.stats().num_waiting[CRITICAL] < 3:
                tiny.add(request(f"c{number}", 30, 20, CRITICAL, prompt_seed=number))
            tiny.step()
        tokens = len(tiny.tokens("bulk"))
        tiny.run()
        return tokens

    assert bulk_tokens(Tiers()) == 10
    assert bulk_tokens(NO_FLOORS) == 0


# -- A8: streams and long prompts -------------------------------------------------------------


def gaps(tiny: Tiny, steps: int, stream: str) -> list[int]:
    """Return the prefill tokens computed between each two tokens of a stream."""
    found, since = [], 0
    for _ in range(steps):
        before = tiny.engine.stats().num_batched_tokens
        gained = tiny.step()
        computed = tiny.engine.stats().num_batched_tokens - before
        if any(output.request_id == stream for output in gained):
            found.append(since + computed - 1)
            since = 0
        else:
            since += computed
    return found


@pytest.mark.parametrize("arrivals", ["one long", "eight", "continuous"])
def test_a8_prefill_between_two_tokens_is_at_most_one_budget(arrivals: str) -> None:
    """A8: and the long prompts still finish, and a short urgent one passes them."""
    runner = FakeRunner(num_blocks=400)
    tiny = Tiny(runner, max_num_seqs=16, max_num_batched_tokens=32)
    tiny.add(request("stream", 10, 200))
    tiny.step()
    if arrivals == "one long":
        tiny.add(request("long", 60 * 32, 2, prompt_seed=1))
    elif arrivals == "eight":
        for i in range(8):
            tiny.add(request(f"p{i}", 320, 2, prompt_seed=i + 1))
    found = []
    for number in range(60):
        if arrivals == "continuous" and number % 6 == 0:
            tiny.add(request(f"p{number}", 160, 1, prompt_seed=number + 1))
        if number == 20:
            tiny.add(request("urgent", 20, 1, CRITICAL, prompt_seed=200))
        found += gaps(tiny, 1, "stream")
        if number == 20:
            assert len(tiny.tokens("urgent")) == 1
            # The urgent prompt takes the step; the stream waits for it once.
            found += gaps(tiny, 1, "stream")
            found.pop()
    assert max(found) <= 32
    tiny.run()
    assert all(outputs[-1].finished for outputs in tiny.outputs.values())


def test_a8_a_short_prompt_of_the_same_tier_does_not_wait_for_a_long_one() -> None:
    """The long prompt takes 60 steps; the short one is through in two."""
    tiny = Tiny(FakeRunner(num_blocks=400), max_num_seqs=8, max_num_batched_tokens=32)
    tiny.add(request("long", 60 * 32, 2, prompt_seed=1))
    tiny.step()
    tiny.add(request("short", 30, 1, prompt_seed=2))
    tiny.step()
    tiny.step()
    assert len(tiny.tokens("short")) == 1
    tiny.run()


# -- A10: never, and not now ------------------------------------------------------------------


def test_a10_what_never_fits_is_refused_by_name() -> None:
    """A10(a, b): refused at submission, nothing is left of it."""
    tiny = Tiny()
    with pytest.raises(InvalidRequestError) as too_long:
        tiny.engine.add(request("a", 250, 1))
    assert (too_long.value.param, too_long.value.code) == ("prompt", "context_length_exceeded")
    with pytest.raises(InvalidRequestError) as too_much:
        tiny.engine.add(request("b", 100, 150))
    assert too_much.value.param == "max_tokens"
    tiny.check_idle()
    assert not tiny.engine.has_unfinished()


def test_a10_without_max_tokens_the_answer_is_what_fits() -> None:
    """A10(b): capped by the documented rule."""
    tiny = Tiny()
    open_end = EngineRequest(
        request_id="r",
        prompt_token_ids=prompt_tokens(100),
        params=SamplingParams(max_tokens=None, temperature=0.0, ignore_eos=True),
    )
    tiny.add(open_end)
    tiny.run()
    assert len(tiny.tokens("r")) == 92
    assert tiny.finish_reasons("r") == ["length"]


def test_a10_a_large_request_is_overtaken_a_bounded_number_of_times() -> None:
    """A10(c): small ones pass while it does not fit, but not for ever."""
    tiny = Tiny(max_num_seqs=3)
    for i in range(2):
        tiny.add(request(f"small{i}", 20, 12, CRITICAL, prompt_seed=i))
    tiny.step()
    tiny.step()
    tiny.add(request("large", 180, 8, CRITICAL, prompt_seed=50))
    finished_before = 0
    for number in range(60):
        tiny.add(request(f"n{number}", 10, 6, NORMAL, prompt_seed=100 + number))
        tiny.step()
        if not tiny.tokens("large"):
            finished_before = sum(bool(tiny.tokens(f"n{i}")) for i in range(number))
    assert tiny.tokens("large")
    assert finished_before <= 8
    tiny.run()


def test_a10_two_that_need_each_others_blocks_both_finish() -> None:
    """A10(d): the older goes on, the younger gives way."""
    tiny = Tiny()
    both = [request(f"r{i}", 100, 90, prompt_seed=i) for i in range(2)]
    for wanted in both:
        tiny.add(wanted)
    tiny.run()
    check_answers(tiny, both)


@pytest.mark.parametrize(
    "weight", [1e-308, 1e-7, 0.9e-3, 1.1e3, 1e7, float("inf"), float("nan"), 0.0, -1.0]
)
def test_g3_a_weight_that_would_drown_all_others_is_refused(weight: float) -> None:
    """G3: service is summed as cost over weight, and sums of floats forget what is small."""
    tiny = Tiny()
    with pytest.raises(InvalidRequestError) as refused:
        tiny.add(replace(request("r", 10, 5, tenant="odd"), weight=weight))
    assert refused.value.param == "weight"
    tiny.check_idle()


@pytest.mark.parametrize("weight", [MIN_WEIGHT, MAX_WEIGHT])
def test_g3_no_weight_that_is_taken_upsets_the_others(weight: float) -> None:
    """G3: a light tenant goes before the rest of a heavy one's backlog, whoever was here before."""
    tiny = Tiny()
    tiny.add(replace(request("odd", 10, 5, tenant="odd"), weight=weight))
    tiny.run()
    for i in range(20):
        tiny.add(request(f"heavy{i}", 20, 4, tenant="heavy", prompt_seed=i))
    tiny.add(request("light", 20, 4, tenant="light", prompt_seed=99))
    while not tiny.outputs["light"]:
        tiny.step()
    assert sum(bool(tiny.outputs[f"heavy{i}"]) for i in range(20)) <= 3
