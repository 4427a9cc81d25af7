"""A table of steps: who is in each, with how many tokens."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import cast

from headway.sim.baselines.books import Planned
from headway.sim.scheduler import EngineShape, PolicySetup, SimRequest, SimStep, StepScheduler

CRITICAL, NORMAL, BULK = 0, 1, 2


def setup(
    *, slots: int = 8, tokens: int = 8, blocks: int = 100, caching: bool = False, **knobs: float
) -> PolicySetup:
    """Return a small engine with the default tiers and blocks of 4 tokens."""
    return PolicySetup(
        shape=EngineShape(
            max_num_seqs=slots,
            max_num_batched_tokens=tokens,
            num_blocks=blocks,
            block_size=4,
            enable_prefix_caching=caching,
        ),
        knobs=knobs,
    )


def ask(name: str, prompt: int, output: int, rank: int = NORMAL, **more: object) -> SimRequest:
    """Return a request; its tenant is the first letter of its name."""
    return SimRequest(
        request_id=name,
        rank=rank,
        tenant=name[0],
        weight=float(cast(float, more.get("weight", 1.0))),
        arrival=float(cast(float, more.get("arrival", 0.0))),
        num_prompt_tokens=prompt,
        num_output_tokens=output,
        max_tokens=output,
        deadline=cast("float | None", more.get("deadline")),
        prefix_id=cast(str, more.get("prefix_id", "")),
        num_prefix_tokens=cast(int, more.get("num_prefix_tokens", 0)),
    )


def tokens_of(step: SimStep) -> dict[str, int]:
    """Return the tokens by request."""
    parts = step.token if isinstance(step.token, list) else [step]
    planned: dict[str, int] = {}
    for part in parts:
        if part is not None:
            tokens = cast(Planned, part.token)
            planned |= {sequence.request_id: n for sequence, n in tokens.items()}
    return planned


def run(
    scheduler: StepScheduler,
    arrivals: Mapping[int, Seq[SimRequest]],
    num_steps: int,
    aborts: Mapping[int, str] | None = None,
) -> list[dict[str, int]]:
    """Add the requests of each step before it is planned; return the plans."""
    plans: list[dict[str, int]] = []
    for number in range(num_steps):
        for request in arrivals.get(number, ()):
            scheduler.add(request, number)
        if aborts and number in aborts:
            scheduler.abort(aborts[number])
        step = scheduler.plan(number)
        scheduler.check_integrity()
        plans.append({} if step is None else tokens_of(step))
        if step is not None:
            scheduler.done(step, number + 1, 1.0)
            scheduler.check_integrity()
    return plans
