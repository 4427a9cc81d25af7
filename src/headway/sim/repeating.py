"""When are the next steps of an engine all alike, and how are many of them booked at once?

The engine's scheduler with a short cut for virtual time. While all that runs are decodes and nobody
waits, each step is one more token of each; a simulation need not plan it to know that.
"""

from collections.abc import Iterable

from headway.core.predictor import StepFeatures
from headway.core.step import Item
from headway.engine.request import FinishReason
from headway.engine.runner import SequenceSlice
from headway.engine.sampling_params import SamplingParams
from headway.engine.scheduler import Scheduler
from headway.engine.sequence import Sequence

NO_PARAMS = SamplingParams()
NOTHING: frozenset[int] = frozenset()


class RepeatingScheduler(Scheduler):
    """A `Scheduler` that can be told of steps which it did not plan."""

    def steady(self) -> tuple[Sequence, ...]:
        """Return all that run, if each is a decode and nobody waits or rests; else nobody."""
        idle = len(self._running) == len(self._sequences)
        running = tuple(self._running.values()) if idle else ()
        most = self._max_preemptions
        return running if all(s.decodes and s.preemptions < most for s in running) else ()

    def _slice(self, item: Item) -> SequenceSlice:
        """Nobody computes it, so nobody asks where its blocks are or what may be drawn."""
        sequence_id, num_tokens = item.sequence_id, item.num_tokens
        sequence = self._sequences[sequence_id]
        tokens, start = sequence.token_ids, sequence.num_computed
        end, num_prompt = start + num_tokens, sequence.num_prompt_tokens
        sample = end == len(tokens)
        values = (sequence_id, tokens, num_prompt, start, end, (), sample, NO_PARAMS, 0, NOTHING)
        return tuple.__new__(SequenceSlice, values)

    def learn(self, features: StepFeatures, elapsed_s: float) -> None:
        """Let the predictor learn from the time of a step that is booked later."""
        assert self._predictor is not None, "simulated steps are bounded in time"
        predicted_s = self._predictor.predict(features)
        self._stats.count_prediction(elapsed_s, predicted_s, self._predictor.safety)
        self._predictor.observe(features, elapsed_s)

    def repeat(self, num_steps: int, end: float, ending: Iterable[Sequence] = ()) -> None:
        """Book, while all are `steady`, steps of one token for each, the last of which ended `end`.

        The tokens are 0, and end nobody but those of `ending`.
        """
        self._step += num_steps
        self._stats.count_decodes(num_steps, len(self._running))
        for sequence_id, sequence in self._running.items():
            start = sequence.num_computed
            sequence.num_computed = start + num_steps
            self.kv.grow(sequence_id, start, sequence.num_computed)
            sequence.token_ids.extend([0] * num_steps)
            self.kv.commit(sequence_id, sequence.token_ids, sequence.num_computed)
            sequence.last_step, sequence.latest_token_s = self._step, end
            cost = self._lines[sequence.rank].charge_decodes(sequence, num_steps)
            self._books.serve(sequence.rank, cost)
        for sequence in ending:
            self.finish(sequence, FinishReason.STOP)
        self._books.settle(self._running.values(), self._step)
