"""Does each request get the answer that it would get alone, whatever happens around it?"""

from random import Random

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

from headway.clock import ManualClock
from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.request import EngineRequest
from headway.engine.sampling_params import SamplingParams
from headway.errors import ConfigError, EngineDeadError
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


@pytest.mark.parametrize(
    ("runner", "path"),
    [
        (FakeRunner(num_blocks=1, block_size=1), "num_kv_blocks"),
        (FakeRunner(max_model_len=1), "max_model_len"),
    ],
)
@pytest.mark.parametrize("calibrate", [True, False])
def test_an_engine_that_could_answer_nobody_is_refused(
    runner: FakeRunner, path: str, calibrate: bool
) -> None:
    """By the setting that is too small, before anything is measured."""
    with pytest.raises(ConfigError) as refused:
        Tiny(runner, calibrate=calibrate)
    assert refused.value.path == path


@pytest.mark.parametrize(
    "runner", [FakeRunner(num_blocks=2, block_size=1), FakeRunner(max_model_len=2)]
)
def test_the_smallest_engine_answers_the_smallest_request(runner: FakeRunner) -> None:
    """One token in, one out; calibrated on what there is."""
    tiny = Tiny(runner, max_num_seqs=1, max_num_batched_tokens=1, calibrate=True)
    tiny.add(request("r", 1, 1))
    tiny.run()
    assert len(tiny.tokens("r")) == 1


class FailingClock(ManualClock):
    """A clock that fails when told to: the first thing that a step asks."""

    fails = False

    def now(self) -> float:
        """See `Clock`."""
        if self.fails:
            raise RuntimeError("no time")
        return super().now()


def test_an_engine_ends_whatever_fails_in_a_step() -> None:
    """Not only the runner: what was half carried out is not built upon."""
    clock = FailingClock()
    engine = LLMEngine.from_parts(FakeRunner(), ByteTokenizer(), clock=clock)
    engine.add(request("r", 20, 5))
    clock.fails = True
    with pytest.raises(RuntimeError, match="no time"):
        engine.step()
    clock.fails = False
    with pytest.raises(EngineDeadError):
        engine.step()
