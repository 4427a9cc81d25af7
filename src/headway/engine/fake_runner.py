"""What runs where there is no model?

`FakeRunner` draws the next token from all tokens before it, so a sequence's output is a pure
function of its prompt, and it keeps a KV pool that remembers, for each position of each block, all
the tokens up to there. Reading a block that another sequence has overwritten, that was never
copied, or that a stale prefix match points to, is an error at once.
"""

from collections.abc import Mapping, Sequence
from zlib import crc32

from headway.engine.runner import SampledToken, SequenceSlice, StepResult

_NOTHING = -1


class FakeRunner:
    """A deterministic `ModelRunner`.

    `scripts` maps a prompt to the output that follows it; other prompts continue pseudo-randomly.
    A sequence fails, as with NaN logits, when its newest token is in `poison`. Step number
    `dies_at_step` (from 1) raises RuntimeError, and so does KV that is not what it should be.
    """

    def __init__(
        self,
        *,
        vocab_size: int = 257,
        max_model_len: int = 4096,
        num_blocks: int = 12,
        block_size: int = 16,
        scripts: Mapping[tuple[int, ...], tuple[int, ...]] | None = None,
        poison: frozenset[int] = frozenset(),
        dies_at_step: int | None = None,
    ) -> None:
        self.vocab_size = vocab_size
        self.max_model_len = max_model_len
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_steps = 0
        self._scripts = {} if scripts is None else dict(scripts)
        self._poison = poison
        self._dies_at_step = dies_at_step
        self._kv = [[_NOTHING] * block_size for _ in range(num_blocks)]

    def execute(
        self, slices: Sequence[SequenceSlice], copies: Sequence[tuple[int, int]]
    ) -> StepResult:
        """See `ModelRunner`. Raises RuntimeError naming the block and position that is wrong."""
        self.num_steps += 1
        if self.num_steps == self._dies_at_step:
            raise RuntimeError(f"step {self.num_steps} was told to die")
        copied = {destination: list(self._kv[source]) for source, destination in copies}
        for destination, content in copied.items():
            self._kv[destination] = content
        histories = [_history(computed) for computed in slices]
        written: set[tuple[int, int]] = set()
        for computed, history in zip(slices, histories, strict=True):
            self._write(computed, history, written)
        result = StepResult()
        for computed, history in zip(slices, histories, strict=True):
            self._read(computed, history)
            if computed.token_ids[computed.end - 1] in self._poison:
                result.failed[computed.sequence_id] = "the logits are not finite"
            elif computed.sample:
                result.sampled[computed.sequence_id] = self._draw(computed, history[-1])
        return result

    def _write(
        self, computed: SequenceSlice, history: list[int], written: set[tuple[int, int]]
    ) -> None:
        if not 0 <= computed.start < computed.end <= len(computed.token_ids):
            raise RuntimeError(f"{computed.sequence_id}: nothing or too much to compute")
        for position in range(computed.start, computed.end):
            block, offset = self._place(computed, position)
            if (block, offset) in written:
                raise RuntimeError(f"block {block} is written twice at {offset}")
            written.add((block, offset))
            self._kv[block][offset] = history[position]

    def _read(self, computed: SequenceSlice, history: list[int]) -> None:
        for position in range(computed.end):
            block, offset = self._place(computed, position)
            if self._kv[block][offset] != history[position]:
                found = f"block {block} holds other tokens at position {position}"
                raise RuntimeError(f"{computed.sequence_id}: {found}")

    def _place(self, computed: SequenceSlice, position: int) -> tuple[int, int]:
        index, offset = divmod(position, self.block_size)
        return computed.block_table[index], offset

    def _draw(self, computed: SequenceSlice, history: int) -> SampledToken:
        params = computed.params
        if params.temperature > 0:
            history = crc32(computed.seed.to_bytes(16, "little", signed=True), history)
        token_id = self._scripted(computed)
        if token_id is None:
            token_id = history % self.vocab_size
        while token_id in computed.banned_token_ids:
            token_id = (token_id + 1) % self.vocab_size
        if params.logprobs is None:
            return SampledToken(token_id)
        others = ((token_id + step) % self.vocab_size for step in range(params.logprobs))
        top = tuple((other, -0.5 - rank) for rank, other in enumerate(others))
        return SampledToken(token_id, -0.5, top)

    def _scripted(self, computed: SequenceSlice) -> int | None:
        prompt = tuple(computed.token_ids[: computed.num_prompt_tokens])
        script = self._scripts.get(prompt, ())
        num_output = len(computed.token_ids) - computed.num_prompt_tokens
        return script[num_output] if num_output < len(script) else None


def _history(computed: SequenceSlice) -> list[int]:
    """Return for each position a number that stands for all tokens up to there."""
    history, value = [], 0
    for token_id in computed.token_ids[: computed.end]:
        value = crc32(token_id.to_bytes(8, "little"), value)
        history.append(value)
    return history
