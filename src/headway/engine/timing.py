"""How long did a request take, as its client sees it?"""

from headway.clock import Clock
from headway.engine.request import RequestOutput
from headway.metrics.engine import RequestTimes


class Timing:
    """Watches the outputs of one request go by. Times are seconds since `arrived`."""

    def __init__(
        self, clock: Clock, arrived: float, *, num_prompt_tokens: int, max_tokens: int | None
    ) -> None:
        self._clock = clock
        self._arrived = arrived
        self._latest: dict[tuple[int, int], float] = {}
        self._num_cached: dict[int, int] = {}
        self._num_preemptions: dict[int, int] = {}
        self.times = RequestTimes(num_prompt_tokens=num_prompt_tokens, max_tokens=max_tokens)

    def note(self, prompt: int, output: RequestOutput) -> None:
        """Take what a prompt gained just now."""
        now = self._clock.now() - self._arrived
        times = self.times
        self._num_cached[prompt] = output.num_cached_tokens
        times.num_cached_tokens = sum(self._num_cached.values())
        times.queue_s = max(times.queue_s, output.queue_s)
        self._num_preemptions[prompt] = output.num_preemptions
        times.num_preemptions = sum(self._num_preemptions.values())
        for choice in output.choices:
            num_tokens = len(choice.token_ids)
            if num_tokens == 0:
                continue
            times.num_generation_tokens += num_tokens
            before = self._latest.get((prompt, choice.index))
            if before is not None:
                times.gaps_s.append((now - before, num_tokens))
            self._latest[prompt, choice.index] = now
            times.last_token_s = now
            if times.first_token_s is None:
                times.first_token_s = now
