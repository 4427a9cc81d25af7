"""Does each request get the answer that it would get alone, whatever happens around it?"""

from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    rule,
)

from headway.core.tier import Tier, Tiers
from headway.engine.byte_tokenizer import EOS_TOKEN_ID, ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.request import EngineRequest
from headway.engine.sampling_params import SamplingParams
from headway.errors import ConfigError, EngineDeadError, InvalidRequestError
from tests.engine.tiny import (
    BULK,
    CRITICAL,
    NORMAL,
    RANKS,
    Tiny,
    alone,
    check_answers,
    prompt_tokens,
    request,
)

NO_FLOORS = Tiers((Tier("critical", 0, preemptible=False), Tier("normal", 1), Tier("bulk", 2)))


class AnyTraffic(RuleBasedStateMachine):
    """Requests arrive, leave and run in any order on any tiny engine (G4, G6, G7, G8, G9)."""

    ids: Bundle[str] = Bundle("ids")

    @initialize(
        slots=st.integers(1, 6),
        budget=st.sampled_from([4, 16, 64]),
        policy=st.sampled_from(["qos", "fcfs"]),
        caching=st.booleans(),
        chunking=st.booleans(),
        max_preemptions=st.integers(1, 3),
    )
    def build(
        self,
        slots: int,
        budget: int,
        policy: str,
        caching: bool,
        chunking: bool,
        max_preemptions: int,
    ) -> None:
        """Build the engine."""
        self.tiny = Tiny(
            max_num_seqs=slots,
            max_num_batched_tokens=budget,
            scheduling_policy=policy,
            enable_prefix_caching=caching,
            enable_chunked_prefill=chunking,
            max_preemptions=max_preemptions,
        )
        self.wanted: dict[str, EngineRequest] = {}
        self.num_added = 0

    @rule(
        target=ids,
        size=st.integers(1, 150),
        length=st.integers(1, 40),
        rank=st.sampled_from(RANKS),
        tenant=st.sampled_from(["a", "b"]),
        prompt_seed=st.integers(0, 2),
        n=st.sampled_from([1, 1, 1, 2, 3]),
    )
    def arrive(
        self, size: int, length: int, rank: int, tenant: str, prompt_seed: int, n: int
    ) -> str:
        """Add a request."""
        self.num_added += 1
        wanted = request(
            f"r{self.num_added}", size, length, rank, tenant=tenant, prompt_seed=prompt_seed, n=n
        )
        self.tiny.add(wanted)
        self.wanted[wanted.request_id] = wanted
        return wanted.request_id

    @rule(request_id=consumes(ids))
    def leave(self, request_id: str) -> None:
        """Abort a request, finished or not, twice."""
        outputs = self.tiny.outputs[request_id]
        if not (outputs and outputs[-1].finished):
            del self.wanted[request_id]
        self.tiny.engine.abort(request_id)
        self.tiny.engine.abort(request_id)
        self.tiny.engine.check_integrity()

    @rule(times=st.integers(1, 12))
    def step(self, times: int) -> None:
        """Run some steps, each checked."""
        for _ in range(times):
            self.tiny.step()

    def teardown(self) -> None:
        """Let all finish; every answer is as if alone and nothing is left behind."""
        if hasattr(self, "tiny"):
            self.tiny.run()
            check_answers(self.tiny, self.wanted.values())
            for wanted in self.wanted.values():
                assert len(self.tiny.finish_reasons(wanted.request_id)) == wanted.params.n


TestAnyTraffic = AnyTraffic.TestCase
TestAnyTraffic.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


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


# -- B: the prefix cache ----------------------------------------------------------------------


def test_b1_interleavings_of_refuse_evict_abort_preempt() -> None:
    """B1: a remembered match is not used after its blocks are gone."""
    for seed in range(200):
        random = Random(seed)
        tiny = Tiny(max_num_seqs=3)
        head = request("head", 80, 1)
        tiny.add(head)
        tiny.run()
        all_wanted = [
            request("returns", 144, 10, NORMAL),
            request("x", 70, 20, random.choice(RANKS), prompt_seed=1),
            request("y", 60, 20, random.choice(RANKS), prompt_seed=2),
        ]
        random.shuffle(all_wanted)
        for wanted in all_wanted:
            tiny.add(wanted)
            for _ in range(random.randint(0, 8)):
                tiny.step()
            if random.random() < 0.3:
                tiny.engine.abort("y")
        tiny.run()
        if seed % 10 == 0:
            check_answers(tiny, [wanted for wanted in all_wanted if wanted.request_id != "y"])


@pytest.mark.parametrize("moment", ["prefill", "first token", "middle", "twice"])
def test_b2_answers_survive_preemption_at_any_moment(moment: str) -> None:
    """B2: lengths around the block's edge, shared prefixes, forced preemption."""
    for size in (15, 16, 17, 31, 32, 33):
        for prompt_seed in range(3):
            tiny = Tiny(max_num_seqs=1, max_num_batched_tokens=8)
            victim = request("victim", size, 24, BULK, prompt_seed=prompt_seed)
            tiny.add(victim)
            wait_for = {"prefill": 0, "first token": 1, "middle": 12, "twice": 5}[moment]
            tiny.step()
            while len(tiny.tokens("victim")) < wait_for:
                tiny.step()
            tiny.add(request("urgent", 20, 3, CRITICAL, prompt_seed=7))
            tiny.step()
            if moment == "twice":
                while len(tiny.tokens("victim")) < wait_for + 5:
                    tiny.step()
                tiny.add(request("urgent2", 20, 3, CRITICAL, prompt_seed=8))
            tiny.run()
            expected = 2 if moment == "twice" else 1
            assert tiny.engine.stats().num_preemptions == expected
            check_answers(tiny, [victim])


def test_b2_a_full_hit_still_computes_one_token() -> None:
    """B2: a prompt of exactly k cached blocks."""
    tiny = Tiny()
    for name in ("first", "again"):
        tiny.add(request(name, 64, 4))
        tiny.run()
    assert tiny.whole("again").num_cached_tokens == 48
    assert tiny.tokens("again") == tiny.tokens("first")


def test_b5_reuse_happens() -> None:
    """B5: at once with the pool almost full, after an abort, and in the next turn of a chat."""
    tiny = Tiny()
    tiny.add(request("p", 128, 40))
    tiny.run()
    tiny.add(request("again", 128, 40))
    tiny.run()
    assert tiny.whole("again").num_cached_tokens == 112
    tiny.add(request("longer", 148, 30))
    while len(tiny.tokens("longer")) < 10:
        tiny.step()
    tiny.engine.abort("longer")
    tiny.add(request("after", 128, 5))
    tiny.run()
    assert tiny.whole("after").num_cached_tokens == 112
    turn = prompt_tokens(128) + tiny.tokens("after") + (1, 2, 3, 4, 5)
    params = SamplingParams(max_tokens=5, temperature=0.0)
    tiny.add(EngineRequest(request_id="turn2", prompt_token_ids=turn, params=params))
    tiny.run()
    assert tiny.whole("turn2").num_cached_tokens == 128


def test_g11_tenants_and_salts_share_nothing() -> None:
    """G11: neither time nor counts tell another tenant's prefix."""
    tiny = Tiny()
    tiny.add(request("a", 64, 1, tenant="a"))
    tiny.run()
    tiny.add(request("b", 64, 1, tenant="b"))
    tiny.run()
    assert tiny.whole("b").num_cached_tokens == 0
    salted = EngineRequest(
        request_id="salted",
        prompt_token_ids=prompt_tokens(64),
        params=SamplingParams(max_tokens=1),
        tenant="a",
        cache_salt="x",
    )
    tiny.add(salted)
    tiny.run()
    assert tiny.whole("salted").num_cached_tokens == 0


# -- C9: several answers ----------------------------------------------------------------------


def many(request_id: str, size: int = 40, rank: int = NORMAL) -> EngineRequest:
    """Return a request for three different answers."""
    return request(request_id, size, 20, rank, temperature=1.0, seed=5, n=3)


@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 40, 48])
def test_c9_one_prompt_three_answers(size: int) -> None:
    """C9: the prompt is computed once, each answer ends once, tokens are counted together."""
    tiny = Tiny(max_num_seqs=3, max_num_batched_tokens=64)
    wanted = many("r", size)
    tiny.add(wanted)
    tiny.run()
    whole = tiny.whole("r")
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert len(tiny.finish_reasons("r")) == 3
    assert (whole.num_prompt_tokens, whole.num_output_tokens) == (size, 60)
    assert len({choice.token_ids for choice in whole.choices}) == 3
    check_answers(tiny, [wanted])
    # The prompt once, two more times its last token, and 19 further tokens of each answer.
    assert tiny.engine.stats().num_batched_tokens == size + 2 + 57


def test_c9_many_in_one_tick_of_the_clock() -> None:
    """C9: equal arrival times have a total order."""
    tiny = Tiny(max_num_seqs=6)
    all_wanted = [many(f"r{i}", 20 + i % 3, rank=CRITICAL) for i in range(12)]
    for wanted in all_wanted:
        tiny.add(wanted)
    tiny.run()
    check_answers(tiny, all_wanted[:3])


def test_c9_abort_frees_all_answers() -> None:
    """C9: whether they run, follow or wait."""
    for steps in (0, 1, 2, 3, 4, 8):
        tiny = Tiny(max_num_seqs=2)
        tiny.add(many("r"))
        for _ in range(steps):
            tiny.step()
        tiny.engine.abort("r")
        tiny.check_idle()


def test_c9_one_answer_is_preempted() -> None:
    """C9: the others are not disturbed and all are right."""
    tiny = Tiny(max_num_seqs=3, max_num_batched_tokens=64)
    wanted = many("r")
    tiny.add(wanted)
    for _ in range(6):
        tiny.step()
    tiny.add(request("urgent", 10, 3, CRITICAL, prompt_seed=9))
    tiny.step()
    assert tiny.engine.stats().num_preemptions == 1
    tiny.run()
    check_answers(tiny, [wanted])


def test_c9_the_first_answer_ends_before_the_others_begin() -> None:
    """C9: they find the prompt in the prefix cache, or compute it."""
    for caching in (True, False):
        tiny = Tiny(max_num_seqs=1, enable_prefix_caching=caching)
        wanted = many("r")
        tiny.add(wanted)
        tiny.run()
        check_answers(tiny, [wanted])


# -- ends and failures ------------------------------------------------------------------------


def test_one_failure_ends_one_request() -> None:
    """NaN logits of one request are its error; the others go on."""
    scripts = {prompt_tokens(20, seed=3): (7, 250), prompt_tokens(20, seed=4): tuple(range(10))}
    tiny = Tiny(FakeRunner(scripts=scripts, poison=frozenset([250])))
    tiny.add(request("bad", 20, 10, prompt_seed=3))
    good = request("good", 20, 10, prompt_seed=4)
    tiny.add(good)
    tiny.run()
    assert tiny.finish_reasons("bad") == ["error"]
    assert tiny.tokens("bad") == (7, 250)
    assert tiny.whole("bad").choices[0].error == "the logits are not finite"
    assert len(tiny.tokens("good")) == 10


def test_a_dead_runner_is_a_dead_engine() -> None:
    """What the runner raises is raised; afterwards nothing is taken."""
    tiny = Tiny(FakeRunner(dies_at_step=2))
    tiny.add(request("r", 20, 10))
    tiny.step()
    with pytest.raises(RuntimeError, match="told to die"):
        tiny.engine.step()
    with pytest.raises(EngineDeadError):
        tiny.engine.step()
    with pytest.raises(EngineDeadError):
        tiny.engine.add(request("s", 20, 10))


def scripted(text: str, **params: Any) -> tuple[str, str, object, int]:
    """Run one request whose output is `text`; return text, finish and stop reason, tokens."""
    prompt = prompt_tokens(8)
    script = (*text.encode(), EOS_TOKEN_ID)
    engine = LLMEngine.from_parts(FakeRunner(scripts={prompt: script}), ByteTokenizer())
    engine.add_request(
        "r", prompt, SamplingParams(**({"temperature": 0.0, "max_tokens": 30} | params))
    )
    tiny_outputs = []
    while engine.has_unfinished():
        tiny_outputs += engine.step()
    choices = [choice for output in tiny_outputs for choice in output.choices]
    last = choices[-1]
    joined = "".join(choice.text for choice in choices)
    return joined, str(last.finish_reason), last.stop_reason, tiny_outputs[-1].num_output_tokens


def test_each_way_to_stop() -> None:
    """End of text, stop string, stop token, length; and what is shown of each."""
    assert scripted("héllo") == ("héllo", "stop", None, 7)
    assert scripted("hello", max_tokens=3) == ("hel", "length", None, 3)
    assert scripted("hello world", stop=("o w",)) == ("hell", "stop", "o w", 7)
    included = scripted("hello world", stop=("o w",), include_stop_str_in_output=True)
    assert included == ("hello w", "stop", "o w", 7)
    assert scripted("hello", stop_token_ids=(108,)) == ("he", "stop", 108, 3)
    assert scripted("hello", stop=("lo!",)) == ("hello", "stop", None, 6)
    assert scripted("hell", stop=("l",), max_tokens=4, min_tokens=3) == ("hel", "stop", "l", 4)
    assert scripted("é", max_tokens=1) == ("\ufffd", "length", None, 1)


def test_min_tokens_and_ignore_eos_keep_it_going() -> None:
    """End of text is not drawn before `min_tokens`, and not obeyed with `ignore_eos`."""
    assert scripted("hi", min_tokens=2)[3] == 3
    assert scripted("hi", min_tokens=5)[3] >= 5
    assert scripted("hi", ignore_eos=True, max_tokens=9)[1:] == ("length", None, 9)


def test_logprobs_are_passed_on() -> None:
    """One entry for each token, as many alternatives as asked."""
    tiny = Tiny()
    tiny.add(request("r", 8, 4, logprobs=2))
    tiny.add(request("none", 8, 4))
    tiny.run()
    logprobs = tiny.whole("r").choices[0].logprobs
    assert logprobs is not None
    assert [entry.token_id for entry in logprobs] == list(tiny.tokens("r"))
    assert all(len(entry.top) == 2 for entry in logprobs)
    assert tiny.whole("none").choices[0].logprobs is None


@pytest.mark.parametrize(
    ("prompt", "params", "more", "param"),
    [
        ((), {}, {}, "prompt"),
        ((257,), {}, {}, "prompt"),
        ((-1,), {}, {}, "prompt"),
        ((1,), {"logit_bias": {257: 1.0}}, {}, "logit_bias"),
        ((1,), {"stop_token_ids": (900,)}, {}, "stop_token_ids"),
        ((1,), {"max_tokens": 192}, {}, "max_tokens"),
        ((1,), {"max_tokens": None, "min_tokens": 192}, {}, "min_tokens"),
        ((1,), {}, {"tier": "vip"}, "tier"),
        ((1,), {}, {"tier": 3}, "tier"),
        ((1,), {}, {"weight": 0.0}, "weight"),
        ((1,), {}, {"weight": float("nan")}, "weight"),
        ((1,), {}, {"deadline_s": -1.0}, "deadline_s"),
    ],
)
def test_bad_requests_are_refused_by_field(
    prompt: tuple[int, ...], params: dict[str, Any], more: dict[str, Any], param: str
) -> None:
    """And the next request works."""
    tiny = Tiny()
    with pytest.raises(InvalidRequestError) as refused:
        tiny.engine.add_request("bad", prompt, SamplingParams(**params), **more)
    assert refused.value.param == param
    tiny.add(request("good", 10, 3))
    tiny.run()


def test_an_id_in_use_is_refused() -> None:
    """Until its request has ended."""
    tiny = Tiny()
    tiny.add(request("r", 10, 3))
    with pytest.raises(InvalidRequestError) as refused:
        tiny.engine.add(request("r", 10, 3))
    assert refused.value.param == "request_id"
    tiny.run()
    tiny.add(request("r", 10, 3))
    tiny.run()


def test_settings_that_cannot_be_are_refused_by_name() -> None:
    """Unknown names too: a setting without effect is an error."""
    for settings_, path in (
        ({"max_num_seq": 3}, "max_num_seq"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"block_size": True}, "block_size"),
        ({"scheduling_policy": "lottery"}, "scheduling_policy"),
    ):
        with pytest.raises(ConfigError) as refused:
            LLMEngine("smollm2-135m", **settings_)
        assert refused.value.path == path


def test_fcfs_serves_by_arrival() -> None:
    """The same engine with one tier: an urgent request waits for a slot."""
    tiny = Tiny(scheduling_policy="fcfs")
    for i in range(2):
        tiny.add(request(f"b{i}", 20, 20, BULK, prompt_seed=i))
    tiny.step()
    tiny.add(request("urgent", 10, 2, CRITICAL, prompt_seed=9))
    for _ in range(15):
        tiny.step()
    assert tiny.tokens("urgent") == ()
    assert tiny.engine.stats().num_waiting == (1, 0, 0)
    tiny.run()
    assert tiny.engine.stats().num_preemptions == 0


def test_g10_the_same_requests_give_the_same_run() -> None:
    """G10: draws without a seed are seeded by the engine."""

    def run() -> tuple[int, ...]:
        tiny = Tiny()
        tiny.add(request("r", 10, 20, temperature=1.0))
        tiny.run()
        return tiny.tokens("r")

    assert run() == run()


def test_alone_is_what_it_says() -> None:
    """The reference itself: pure in the prompt, different for different prompts."""
    assert alone(request("a", 30, 20)) == alone(request("b", 30, 20))
    assert alone(request("a", 30, 20)) != alone(request("a", 31, 20))
