"""How many tokens and how much time may a step take, and for whom is some of it kept?"""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from math import ceil, inf

from headway.core.due import itl_target_s
from headway.core.predictor import StepCoefficients
from headway.core.step import Resident, StepInput, StepLimits

DEAREST_TOKEN = 2.0
"""Price of a decoded token over that of a prefilled one (`cost.Prices`): a floor is a share of
service, counted in price, so it may take this many times its share of the tokens."""
MIN_TOKENS = 8
"""Tokens of a step that are computed however little time seems left."""
MIN_PROMPT_TOKENS = 16
"""The same of a prompt of rank 0."""
TIMELESS = StepCoefficients(0.0)


def fits_any_bound(seconds: float, limits: StepLimits) -> bool:
    """Return whether a step of predicted `seconds` is within its time, whoever is due and when.

    Without prompts, all that may be computed is computed in such a step.
    """
    bound = min(limits.min_step_s, *(tier.recent_s for tier in limits.tiers))
    return seconds * (1 + 1e-9) <= bound


class StepBudget:
    """What is left of one step, in tokens and in predicted seconds.

    1. Tokens end at `max_num_batched_tokens`. Time ends at the tightest due time of a decode, and
       at what a tier allows of which a request may arrive. A due time does not count while a prompt
       of a more urgent tier waits. To prompts of its own tier a late stream leaves the time of a
       token: what it lacks is made good at the expense of other tiers. No step is cut to less than
       `min_step_s`, whatever arrives.
    2. Time does not bound decodes of rank 0, nor the first `MIN_PROMPT_TOKENS` of its prompts, nor
       `MIN_TOKENS` of the step, nor the tokens of a floor: a wrong prediction makes steps long or
       short, it shuts nobody out.
    3. A tier that is owed its floor keeps that share, whatever others want. Beside prompts of more
       urgent tiers it is paid as late as G1 allows: its debt may grow to what it would be had the
       step before been one of all tokens.
    4. Decodes leave half to the prompts of their tier that have begun, nothing to those that wait.
       While prompts of more urgent tiers wait for their turn, they leave half to those, and the
       whole of one that goes into a step whole or not at all.
    5. Beside a prompt of rank 0, lower tiers fill a step only up to `min_step_s`.
    """

    def __init__(
        self,
        step: StepInput,
        limits: StepLimits,
        decodes: Sequence[Sequence[Resident]],
        prefills: Sequence[Sequence[Resident]],
        kept_for_heads: Sequence[int | None],
    ) -> None:
        timed = step.cost is not None
        self.cost = TIMELESS if step.cost is None else step.cost
        self._begun = [sum(r.num_left for r in of_tier) for of_tier in prefills]
        both = zip(self._begun, step.waiting, strict=True)
        self._has_prompt = [begun > 0 or len(waiting) > 0 for begun, waiting in both]
        self._times_s = [inf] * len(limits.tiers)  # what the step may take, for each tier
        if timed:
            self._bound_time(step, limits, decodes)
        self.total_s = max(self._times_s)
        self._shared_s = limits.min_step_s if timed else inf
        self._prompt_of_rank_0 = False
        self.left, self._least = limits.max_num_batched_tokens, MIN_TOKENS
        self._may_exceed = limits.may_exceed_tokens and not limits.enable_chunked_prefill
        self._kept_for_heads = kept_for_heads
        self._spent_s = self.cost.base_s
        time_s = max(0.0, self.total_s - self._spent_s)
        most = self._most_tokens(time_s, len(decodes[0]))
        self._floors, self._floors_s = [0] * len(limits.tiers), [0.0] * len(limits.tiers)
        for rank in self._to_pay(step, limits, most + sum(map(len, decodes))):
            share = min(1.0, DEAREST_TOKEN * limits.tiers[rank].floor)
            tokens = max(0, min(ceil(share * most), self.left - 1 - sum(self._floors)))
            seconds = share * time_s if time_s < inf else 0.0
            longest = inf if limits.enable_chunked_prefill else tokens
            coming = islice(step.waiting[rank].in_order(), limits.lookahead)
            wants = chain(
                ((r.num_left, r.num_computed) for r in chain(decodes[rank], prefills[rank])),
                ((c.num_tokens, 0) for c in coming if c.num_tokens <= longest),
            )
            self._floors[rank], self._floors_s[rank] = self._wanted(wants, tokens, seconds)
        self._half = (self.left - sum(self._floors)) // 2
        self._half_s = (time_s - sum(self._floors_s)) / 2 if time_s < inf else 0.0

    def _bound_time(
        self, step: StepInput, limits: StepLimits, decodes: Sequence[Sequence[Resident]]
    ) -> None:
        recent_s = min([limits.tiers[rank].recent_s for rank in step.recent], default=inf)
        due_s = [
            inf if self.waits_for_prompts(rank) else min([r.due_s for r in of_tier], default=inf)
            for rank, of_tier in enumerate(decodes)
        ]
        for rank, tier in enumerate(limits.tiers):
            others_s = min(due_s[:rank] + due_s[rank + 1 :], default=inf)
            paced = self._has_prompt[rank] and tier.target.is_paced
            own_s = max(due_s[rank], itl_target_s(tier.target)) if paced else due_s[rank]
            bound_s = min(recent_s, min(own_s, others_s) / step.safety)
            self._times_s[rank] = max(bound_s, limits.min_step_s)

    def _to_pay(self, step: StepInput, limits: StepLimits, most_service: int) -> list[int]:
        """Return the ranks whose floors cannot wait for the next step."""
        saved = max(0, limits.max_num_batched_tokens - most_service)
        return [
            rank
            for rank in step.owed
            if not (step.debts and self.waits_for_prompts(rank))
            or step.debts[rank] > limits.tiers[rank].floor * saved
        ]

    def _most_tokens(self, time_s: float, num_urgent: int) -> int:
        """Return how many tokens the step may come to hold, floors aside."""
        if time_s == inf:
            return self.left
        as_prompt = self.cost.tokens_within(time_s, 0, self.left)
        decode_s = self.cost.slice_s(1, 0)
        as_decodes = int(min(self.left, time_s / decode_s)) if decode_s > 0 else self.left
        return min(self.left, max(as_prompt, as_decodes, num_urgent + MIN_PROMPT_TOKENS))

    def _wanted(
        self, wants: Iterable[tuple[int, int]], most: int, most_s: float
    ) -> tuple[int, float]:
        """Return how much of `most` tokens and `most_s` such (tokens, context) slices would use."""
        tokens, seconds = 0, 0.0
        for num_tokens, context in wants:
            if tokens >= most and seconds >= most_s:
                break
            tokens += num_tokens
            seconds += self.cost.slice_s(num_tokens, context)
        return min(tokens, most), min(seconds, most_s)

    # -- what a tier may take -------------------------------------------------------------------

    def floor(self, rank: int) -> int:
        """Return the tokens that are kept for the floor of this tier."""
        return self._floors[rank]

    def waits_for_prompts(self, rank: int) -> bool:
        """Return whether prompts of more urgent tiers have not had their turn."""
        return any(self._has_prompt[:rank])

    def for_decodes(self, rank: int) -> tuple[int, int, float]:
        """Return the tokens for decodes of this tier, those without a time bound, the seconds."""
        (tokens, seconds), kept = self._for_tier(rank), 0
        if self.waits_for_prompts(rank):
            kept = self._kept_for_heads[rank] or 0
            tokens, seconds = tokens - max(kept, self._half), seconds - self._half_s
        elif self._begun[rank]:
            tokens, seconds = tokens - min(self._begun[rank], self._half), seconds - self._half_s
        floor = max(0, min(self._floors[rank], self.left - kept))
        tokens = max(tokens, floor)
        return tokens, tokens if rank == 0 else max(floor, self._least), seconds

    def for_prompt(self, rank: int, most: int, context: int, *, planned: int = 0) -> int:
        """Return how many of `most` tokens a prompt may take after `context`; see `slice_s`."""
        (tokens, seconds), least = self._for_tier(rank), max(self._floors[rank], self._least)
        most = min(most, tokens)
        if rank == 0 and not self._prompt_of_rank_0:
            least = max(least, MIN_PROMPT_TOKENS)
        within = self.cost.tokens_within(seconds, context, most, planned=planned)
        creeps = within == 1 < most and not planned  # as cheap as a decode, but never done
        return max(0 if creeps else within, min(most, least))

    def _for_tier(self, rank: int) -> tuple[int, float]:
        tokens = self.left - (sum(self._floors) - self._floors[rank])
        seconds = self._times_s[rank] - self._spent_s - (sum(self._floors_s) - self._floors_s[rank])
        if rank > 0 and self._prompt_of_rank_0:
            seconds = min(seconds, self._shared_s - self._spent_s)
        return max(0, tokens), seconds

    # -- what was taken -------------------------------------------------------------------------

    def take(self, rank: int, num_tokens: int, seconds: float, *, prompt: bool = False) -> None:
        """Spend tokens and their time; first what is kept for the tier's floor."""
        left = self.left - num_tokens
        # Beside a prompt that is too long for the step, other floors have theirs.
        others = sum(self._floors) - self._floors[rank] if self._may_exceed else left
        self.left = max(left, min(self.left, others))
        self._least -= num_tokens
        self._spent_s += seconds
        if self._floors[rank]:
            self._floors[rank] = max(0, self._floors[rank] - num_tokens)
            self._floors_s[rank] = max(0.0, self._floors_s[rank] - seconds)
        self._prompt_of_rank_0 |= prompt and rank == 0

    def give_back(self, num_tokens: int, seconds: float) -> None:
        """Return what a sequence was planned to take that is preempted now."""
        self.left += num_tokens
        self._least += num_tokens
        self._spent_s -= seconds

    def end_turn(self, rank: int) -> None:
        """Keep nothing more for this tier."""
        self._floors[rank], self._floors_s[rank] = 0, 0.0
        self._has_prompt[rank], self._begun[rank] = False, 0
