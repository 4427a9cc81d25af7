"""Does every policy keep to its engine's room, and does every request end?"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from headway.sim.policies import POLICIES, new_scheduler
from headway.sim.scheduler import EngineShape, PolicySetup, SimRequest, SimStep

SHAPE = EngineShape(max_num_seqs=10, max_num_batched_tokens=20, num_blocks=40, block_size=4)
SETUP = PolicySetup(shape=SHAPE)
LARGEST = 40
"""Tokens of the largest request: three of them fill the smallest part of a divided engine."""


class Engine(RuleBasedStateMachine):
    """Requests come, leave and are stepped; after every step the room is checked."""

    def __init__(self, policy: str) -> None:
        super().__init__()
        self.scheduler = new_scheduler(policy, SETUP)
        self.now = 0.0
        self.num_added = 0
        self.missing: dict[str, int] = {}
        """Tokens that are still to come, by request."""
        self.step: SimStep | None = None

    @rule(
        rank=st.integers(0, 2),
        tenant=st.sampled_from("abc"),
        prompt=st.integers(1, 30),
        output=st.integers(1, 10),
        spare=st.integers(0, 20),
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        prefix=st.integers(0, 2),
    )
    def arrive(
        self,
        rank: int,
        tenant: str,
        prompt: int,
        output: int,
        spare: int,
        weight: float,
        prefix: int,
    ) -> None:
        """A request arrives, maybe during a step."""
        request_id = f"r{self.num_added}"
        self.num_added += 1
        self.scheduler.add(
            SimRequest(
                request_id=request_id,
                rank=rank,
                tenant=tenant,
                weight=weight,
                arrival=self.now,
                num_prompt_tokens=prompt,
                num_output_tokens=output,
                max_tokens=min(output + spare, LARGEST - prompt),
                prefix_id=f"p{prefix}" if prefix else "",
                num_prefix_tokens=min(prompt, 8 * prefix),
            ),
            self.now,
        )
        self.missing[request_id] = output

    @rule(position=st.integers(0, 1000))
    def abort(self, position: int) -> None:
        """Somebody leaves, waiting, running or in a step; or was never there."""
        self.scheduler.abort("nobody")
        if self.missing:
            request_id = sorted(self.missing)[position % len(self.missing)]
            del self.missing[request_id]
            self.scheduler.abort(request_id)

    @rule()
    def begin(self) -> None:
        """A step begins if none is under way; work conservation: never an idle engine (G6)."""
        if self.step is not None:
            return
        self.step = self.scheduler.plan(self.now)
        assert (self.step is None) == (not self.missing), "idle with work, or a step without"
        if self.step is not None:
            features = self.step.features
            assert 0 < features.num_tokens <= SHAPE.max_num_batched_tokens
            assert sum(self.step.num_tokens) == features.num_tokens
            assert 0 < features.num_decodes + features.num_prefills <= SHAPE.max_num_seqs

    @rule()
    def end(self) -> None:
        """The step ends; each request gets one token at most, and its last one ends it (G9)."""
        if self.step is None:
            return
        self.now += 1.0
        emissions = self.scheduler.done(self.step, self.now, 1.0)
        self.step = None
        assert len({emission.request_id for emission in emissions}) == len(emissions)
        for emission in emissions:
            self.missing[emission.request_id] -= 1
            assert emission.finished == (self.missing[emission.request_id] == 0)
            if emission.finished:
                del self.missing[emission.request_id]

    @invariant()
    def has_room(self) -> None:
        """Slots and blocks suffice, and everybody is counted."""
        self.scheduler.check_integrity()
        stats = self.scheduler.stats()
        assert sum(stats.running) <= SHAPE.max_num_seqs
        assert 0.0 <= stats.kv_used <= 1.0
        assert sum(stats.running) + sum(stats.waiting) == len(self.missing)

    def teardown(self) -> None:
        """Everybody who is left ends (G4), and nothing stays behind (G9)."""
        for _ in range(2000):
            self.end()
            if not self.missing:
                break
            self.begin()
        assert not self.missing, "somebody never ends"
        self.has_room()
        stats = self.scheduler.stats()
        assert (sum(stats.running), sum(stats.waiting), stats.kv_used) == (0, 0, 0.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_room_progress_and_one_end(policy: str) -> None:
    """G4, G6, G7, G9 of the simulated engine under any policy."""

    class ThisEngine(Engine):
        def __init__(self) -> None:
            super().__init__(policy)

    options = settings(max_examples=60, stateful_step_count=60)
    run_state_machine_as_test(ThisEngine, settings=options)


def test_all_policies_are_there() -> None:
    assert set(POLICIES) >= {
        "fcfs",
        "vllm-priority",
        "sarathi",
        "sarathi-edf",
        "static-partition",
        "vtc",
    }
