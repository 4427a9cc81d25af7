"""Does the fake runner notice what it is there to notice?"""

import pytest

from headway.engine.fake_runner import FakeRunner
from headway.engine.runner import SequenceSlice
from headway.engine.sampling_params import SamplingParams
from tests.engine.tiny import prompt_tokens

TOKENS = prompt_tokens(40)


def part(start: int, end: int, table: tuple[int, ...], name: str = "a") -> SequenceSlice:
    """Return a slice of 40 tokens."""
    return SequenceSlice(
        sequence_id=name,
        token_ids=TOKENS,
        num_prompt_tokens=40,
        start=start,
        end=end,
        block_table=table,
        sample=end == 40,
        params=SamplingParams(temperature=0.0),
        seed=0,
    )


def test_chunks_do_not_change_the_answer() -> None:
    """In one step or in three, in any blocks."""
    whole = FakeRunner().execute([part(0, 40, (0, 1, 2))], [])
    runner = FakeRunner()
    runner.execute([part(0, 10, (5, 3, 7))], [])
    runner.execute([part(10, 33, (5, 3, 7))], [])
    assert runner.execute([part(33, 40, (5, 3, 7))], []).sampled == whole.sampled


def test_a_block_that_was_never_written_is_noticed() -> None:
    """A phantom prefix hit."""
    with pytest.raises(RuntimeError, match="other tokens at position 0"):
        FakeRunner().execute([part(16, 40, (0, 1, 2))], [])


def test_a_block_of_somebody_else_is_noticed() -> None:
    """The same tokens after another beginning are not the same KV."""
    runner = FakeRunner()
    runner.execute([part(0, 32, (0, 1, 2))], [])
    other = part(0, 16, (0, 1, 2), "b")._replace(token_ids=prompt_tokens(40, seed=1))
    runner.execute([other], [])
    with pytest.raises(RuntimeError, match="block 0 holds other tokens"):
        runner.execute([part(32, 40, (0, 1, 2))], [])


def test_two_writers_of_one_block_are_noticed() -> None:
    """A shared block that was not copied first."""
    runner = FakeRunner()
    runner.execute([part(0, 39, (0, 1, 2))], [])
    with pytest.raises(RuntimeError, match="written twice"):
        runner.execute([part(39, 40, (0, 1, 2)), part(39, 40, (0, 1, 2), "b")], [])
    result = runner.execute([part(39, 40, (0, 1, 2)), part(39, 40, (0, 1, 5), "b")], [(2, 5)])
    assert result.sampled["a"] == result.sampled["b"]


def test_nothing_to_compute_is_noticed() -> None:
    """A slice computes at least one token that exists."""
    for start, end in ((5, 5), (6, 5), (0, 41)):
        with pytest.raises(RuntimeError, match="nothing or too much"):
            FakeRunner().execute([part(start, end, (0, 1, 2))], [])


def test_seeds_matter_only_when_sampling() -> None:
    """And banned tokens are not drawn."""

    def draw(temperature: float, seed: int, banned: frozenset[int] = frozenset()) -> int:
        drawn = part(0, 40, (0, 1, 2))
        params = SamplingParams(temperature=temperature)
        drawn = drawn._replace(params=params, seed=seed, banned_token_ids=banned)
        return FakeRunner().execute([drawn], []).sampled["a"].token_id

    assert draw(0.0, 1) == draw(0.0, 2)
    assert len({draw(1.0, seed) for seed in range(8)}) > 1
    assert draw(0.0, 1, frozenset([draw(0.0, 1)])) != draw(0.0, 1)
