"""How long does a step take on this machine, and which targets can it keep?

A step of n tokens takes about `base_s + n * token_s`: reading the weights, then computing. Both are
measured on the real model before anybody is served: what the predictor (`core/predictor.py`) starts
from, and with it what is promised (`core/promise.py`).
"""

from math import inf

from headway.clock import Clock
from headway.core.predictor import StepCoefficients
from headway.engine.runner import ModelRunner, SequenceSlice
from headway.engine.sampling_params import SamplingParams

MIN_REPEATS, MAX_REPEATS = 3, 20
MEASURE_S = 2.0
"""After this many seconds a length is not measured more often than `MIN_REPEATS` times."""


class FastestSteps:
    """The least times of a step of 1 and of `max_tokens` tokens, as far as steps were timed.

    Others who use the machine make a step slower, nothing makes it faster. Because its time is
    affine in its tokens, n tokens in t seconds bound both ends of the line: one token takes at most
    t, and `max_tokens` at most t, too, or `t * max_tokens / n` where they are more than n.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max(2, max_tokens)
        self._shortest_s = inf
        self._longest_s = inf

    def note(self, num_tokens: int, seconds: float) -> None:
        """Take the time of a step of `num_tokens`, at least 1."""
        at_most_s = seconds * max(1.0, self._max_tokens / num_tokens)
        self._shortest_s = min(self._shortest_s, seconds)
        self._longest_s = min(self._longest_s, at_most_s)

    @property
    def step_time(self) -> StepCoefficients:
        """The line through both ends.

        Where one token seems to take as long as all, only the time of all is known: the line then
        starts at 0, so that tokens cost something.
        """
        if self._shortest_s >= self._longest_s:
            return StepCoefficients(0.0, self._longest_s / self._max_tokens)
        token_s = (self._longest_s - self._shortest_s) / (self._max_tokens - 1)
        return StepCoefficients(max(0.0, self._shortest_s - token_s), token_s)


def measure_steps(runner: ModelRunner, clock: Clock, *, max_tokens: int) -> FastestSteps:
    """Time steps of one and of `max_tokens` tokens, or as many as fit, on blocks nobody holds.

    To be called before the first request: the blocks are overwritten. One token is timed before
    and after, so that a short disturbance does not meet all of it.
    """
    capacity = min(runner.num_blocks * runner.block_size, runner.max_model_len)
    num_tokens = min(max_tokens, capacity)
    fastest = FastestSteps(num_tokens)
    for length in (1, num_tokens, 1):
        _time_steps(runner, clock, length, fastest)
    return fastest


def _time_steps(runner: ModelRunner, clock: Clock, num_tokens: int, fastest: FastestSteps) -> None:
    """Note the times of some steps of one sequence of `num_tokens`."""
    num_blocks = -(-num_tokens // runner.block_size)
    measured = SequenceSlice(
        sequence_id="calibration",
        token_ids=[position % runner.vocab_size for position in range(num_tokens)],
        num_prompt_tokens=num_tokens,
        start=0,
        end=num_tokens,
        block_table=range(num_blocks),
        sample=True,
        params=SamplingParams(temperature=0.0, max_tokens=1),
        seed=0,
    )
    until = clock.now() + MEASURE_S
    for repeat in range(MAX_REPEATS):
        start = clock.now()
        if repeat >= MIN_REPEATS and start >= until:
            return
        runner.execute([measured], [])
        fastest.note(num_tokens, clock.now() - start)
