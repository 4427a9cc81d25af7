"""How does an answer end, what is told about it, and what is refused?"""

from typing import Any

import pytest

from headway.engine.byte_tokenizer import EOS_TOKEN_ID, ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.sampling_params import SamplingParams
from headway.errors import ConfigError, EngineDeadError, InvalidRequestError
from tests.engine.tiny import (
    BULK,
    CRITICAL,
    Tiny,
    alone,
    prompt_tokens,
    request,
)

# -- ends and failures ------------------------------------------------------------------------


def test_one_failure_ends_one_request() -> None:
    """NaN logits of one request are its error; the others go on."""
    scripts = {prompt_tokens(20, seed=3): (7, 250), prompt_tokens(20, seed=4): tuple(range(10))}
    tiny = Tiny(FakeRunner(scripts=scripts, poison=frozenset([250])))
    tiny.add(request("bad", 20, 10, prompt_seed=3))
    good = request("good", 20, 10, prompt_seed=4)
    tiny.add(good)
    tiny.run()
    assert tiny.finish_reasons("bad") == ["error"]
    assert tiny.tokens("bad") == (7, 250)
    assert tiny.whole("bad").choices[0].error == "the logits are not finite"
    assert len(tiny.tokens("good")) == 10


def test_a_dead_runner_is_a_dead_engine() -> None:
    """What the runner raises is raised; afterwards nothing is taken."""
    tiny = Tiny(FakeRunner(dies_at_step=2))
    tiny.add(request("r", 20, 10))
    tiny.step()
    with pytest.raises(RuntimeError, match="told to die"):
        tiny.engine.step()
    with pytest.raises(EngineDeadError):
        tiny.engine.step()
    with pytest.raises(EngineDeadError):
        tiny.engine.add(request("s", 20, 10))


def scripted(text: str, **params: Any) -> tuple[str, str, object, int]:
    """Run one request whose output is `text`; return text, finish and stop reason, tokens."""
    prompt = prompt_tokens(8)
    script = (*text.encode(), EOS_TOKEN_ID)
    engine = LLMEngine.from_parts(FakeRunner(scripts={prompt: script}), ByteTokenizer())
    engine.add_request(
        "r", prompt, SamplingParams(**({"temperature": 0.0, "max_tokens": 30} | params))
    )
    tiny_outputs = []
    while engine.has_unfinished():
        tiny_outputs += engine.step()
    choices = [choice for output in tiny_outputs for choice in output.choices]
    last = choices[-1]
    joined = "".join(choice.text for choice in choices)
    return joined, str(last.finish_reason), last.stop_reason, tiny_outputs[-1].num_output_tokens


def test_each_way_to_stop() -> None:
    """End of text, stop string, stop token, length; and what is shown of each."""
    assert scripted("héllo") == ("héllo", "stop", None, 7)
    assert scripted("hello", max_tokens=3) == ("hel", "length", None, 3)
    assert scripted("hello world", stop=("o w",)) == ("hell", "stop", "o w", 7)
    included = scripted("hello world", stop=("o w",), include_stop_str_in_output=True)
    assert included == ("hello w", "stop", "o w", 7)
    assert scripted("hello", stop_token_ids=(108,)) == ("he", "stop", 108, 3)
    assert scripted("hello", stop=("lo!",)) == ("hello", "stop", None, 6)
    assert scripted("hell", stop=("l",), max_tokens=4, min_tokens=3) == ("hel", "stop", "l", 4)
    assert scripted("é", max_tokens=1) == ("\ufffd", "length", None, 1)


def test_min_tokens_and_ignore_eos_keep_it_going() -> None:
    """End of text is not drawn before `min_tokens`, and not obeyed with `ignore_eos`."""
    assert scripted("hi", min_tokens=2)[3] == 3
    assert scripted("hi", min_tokens=5)[3] >= 5
    assert scripted("hi", ignore_eos=True, max_tokens=9)[1:] == ("length", None, 9)


def test_logprobs_are_passed_on() -> None:
    """One entry for each token, as many alternatives as asked."""
    tiny = Tiny()
    tiny.add(request("r", 8, 4, logprobs=2))
    tiny.add(request("none", 8, 4))
    tiny.run()
    logprobs = tiny.whole("r").choices[0].logprobs
    assert logprobs is not None
    assert [entry.token_id for entry in logprobs] == list(tiny.tokens("r"))
    assert all(len(entry.top) == 2 for entry in logprobs)
    assert tiny.whole("none").choices[0].logprobs is None


@pytest.mark.parametrize(
    ("prompt", "params", "more", "param"),
    [
        ((), {}, {}, "prompt"),
        ((257,), {}, {}, "prompt"),
        ((-1,), {}, {}, "prompt"),
        ((1,), {"logit_bias": {257: 1.0}}, {}, "logit_bias"),
        ((1,), {"stop_token_ids": (900,)}, {}, "stop_token_ids"),
        ((1,), {"max_tokens": 192}, {}, "max_tokens"),
        ((1,), {"max_tokens": None, "min_tokens": 192}, {}, "min_tokens"),
        ((1,), {}, {"tier": "vip"}, "tier"),
        ((1,), {}, {"tier": 3}, "tier"),
        ((1,), {}, {"weight": 0.0}, "weight"),
        ((1,), {}, {"weight": float("nan")}, "weight"),
        ((1,), {}, {"deadline_s": -1.0}, "deadline_s"),
    ],
)
def test_bad_requests_are_refused_by_field(
    prompt: tuple[int, ...], params: dict[str, Any], more: dict[str, Any], param: str
) -> None:
    """And the next request works."""
    tiny = Tiny()
    with pytest.raises(InvalidRequestError) as refused:
        tiny.engine.add_request("bad", prompt, SamplingParams(**params), **more)
    assert refused.value.param == param
    tiny.add(request("good", 10, 3))
    tiny.run()


def test_an_id_in_use_is_refused() -> None:
    """Until its request has ended."""
    tiny = Tiny()
    tiny.add(request("r", 10, 3))
    with pytest.raises(InvalidRequestError) as refused:
        tiny.engine.add(request("r", 10, 3))
    assert refused.value.param == "request_id"
    tiny.run()
    tiny.add(request("r", 10, 3))
    tiny.run()


def test_settings_that_cannot_be_are_refused_by_name() -> None:
    """Unknown names too: a setting without effect is an error."""
    for settings_, path in (
        ({"max_num_seq": 3}, "max_num_seq"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"block_size": True}, "block_size"),
        ({"scheduling_policy": "lottery"}, "scheduling_policy"),
    ):
        with pytest.raises(ConfigError) as refused:
            LLMEngine("smollm2-135m", **settings_)
        assert refused.value.path == path


def test_fcfs_serves_by_arrival() -> None:
    """The same engine with one tier: an urgent request waits for a slot."""
    tiny = Tiny(scheduling_policy="fcfs")
    for i in range(2):
        tiny.add(request(f"b{i}", 20, 20, BULK, prompt_seed=i))
    tiny.step()
    tiny.add(request("urgent", 10, 2, CRITICAL, prompt_seed=9))
    for _ in range(15):
        tiny.step()
    assert tiny.tokens("urgent") == ()
    assert tiny.engine.stats().num_waiting == (1, 0, 0)
    tiny.run()
    assert tiny.engine.stats().num_preemptions == 0


def test_g10_the_same_requests_give_the_same_run() -> None:
    """G10: draws without a seed are seeded by the engine."""

    def run() -> tuple[int, ...]:
        tiny = Tiny()
        tiny.add(request("r", 10, 20, temperature=1.0))
        tiny.run()
        return tiny.tokens("r")

    assert run() == run()


def test_alone_is_what_it_says() -> None:
    """The reference itself: pure in the prompt, different for different prompts."""
    assert alone(request("a", 30, 20)) == alone(request("b", 30, 20))
    assert alone(request("a", 30, 20)) != alone(request("a", 31, 20))


def test_the_wait_for_a_slot_and_the_preemptions_are_told() -> None:
    tiny = Tiny(max_num_seqs=1, scheduling_policy="fcfs")
    for name in ("first", "second"):
        tiny.add(request(name, 20, 4, rank=BULK))
    tiny.run()
    first, second = tiny.whole("first"), tiny.whole("second")
    assert first.queue_s == 0.0
    assert second.queue_s >= 0.04
    assert (first.num_preemptions, second.num_preemptions) == (0, 0)


def test_preemptions_are_counted_by_request() -> None:
    tiny = Tiny(max_num_seqs=1)
    tiny.add(request("bulk", 20, 8, rank=BULK))
    tiny.step()
    tiny.add(request("urgent", 4, 2, rank=CRITICAL))
    tiny.run()
    assert tiny.whole("bulk").num_preemptions == 1
    assert tiny.whole("urgent").num_preemptions == 0
