"""Are many prompts answered in their order, with their own parameters?"""

import pytest

from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.llm import LLM
from headway.engine.sampling_params import SamplingParams
from headway.errors import InvalidRequestError

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)


def llm(runner: FakeRunner | None = None) -> LLM:
    """Return offline calls on a small engine."""
    runner = FakeRunner(num_blocks=64) if runner is None else runner
    return LLM(LLMEngine.from_parts(runner, ByteTokenizer()))


def test_answers_come_in_the_order_of_the_prompts() -> None:
    """Text and tokens are the same prompt; lengths differ, so they end in another order."""
    prompts = ["a long prompt " * 10, "short", "middle" * 5]
    each = [SamplingParams(temperature=0.0, max_tokens=length) for length in (9, 2, 5)]
    answers = llm().generate(prompts, each)
    assert [bytes(a.prompt_token_ids).decode() for a in answers] == prompts
    as_tokens = llm().generate([list(prompt.encode()) for prompt in prompts], each)
    assert [a.completions for a in answers] == [a.completions for a in as_tokens]


def test_one_prompt_in_each_form() -> None:
    """A text, its tokens, and a list of one are one prompt."""
    forms = ("hello", list(b"hello"), ["hello"], [list(b"hello")])
    answers = [llm().generate(form, GREEDY) for form in forms]
    assert all(len(answer) == 1 for answer in answers)
    assert len({answer[0].completions for answer in answers}) == 1


def test_several_answers_to_one_prompt() -> None:
    """By index, each with text and reason."""
    params = SamplingParams(n=3, seed=1, max_tokens=4, ignore_eos=True)
    [answer] = llm().generate("hello", params)
    assert [c.index for c in answer.completions] == [0, 1, 2]
    assert {c.finish_reason for c in answer.completions} == {"length"}
    assert all(len(c.token_ids) == 4 for c in answer.completions)


def test_a_chat_is_rendered_by_the_template() -> None:
    """The template's text is the prompt."""
    answers = llm().chat([{"role": "user", "content": "hi"}], GREEDY)
    [same] = llm().generate("user: hi\nassistant: ", GREEDY)
    assert [a.completions for a in answers] == [same.completions]
    two = llm().chat([[{"role": "user", "content": "hi"}], [{"role": "user", "content": "you"}]])
    assert len(two) == 2


def test_a_prompt_that_never_fits_leaves_nothing_behind() -> None:
    """Those before it are withdrawn, and the next call works."""
    calls = llm(FakeRunner(num_blocks=4))
    with pytest.raises(InvalidRequestError):
        calls.generate(["fits", "x" * 100], GREEDY)
    assert not calls.engine.has_unfinished()
    with pytest.raises(ValueError, match="shorter"):
        calls.generate(["one", "two"], [GREEDY])
    assert not calls.engine.has_unfinished()
    assert len(calls.generate("fits", GREEDY)) == 1


def test_nobody_elses_outputs_are_taken_away() -> None:
    """Whoever added a request by hand takes its outputs by hand."""
    one = llm()
    one.engine.add_request("mine", [1, 2, 3], GREEDY)
    with pytest.raises(ValueError, match="other requests"):
        one.generate("hello", GREEDY)
    while one.engine.has_unfinished():
        one.engine.step()
    assert len(one.generate("hello", GREEDY)) == 1
