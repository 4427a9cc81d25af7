"""Is a stop searched in each answer alone, and never in the prompt? (C2)"""

import pytest

from headway.engine.byte_tokenizer import EOS_TOKEN_ID, ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.sampling_params import SamplingParams

PROMPT = b"one ###END two"


def answers(runner: FakeRunner, *, n: int, stop: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return text and finish reason of each choice."""
    engine = LLMEngine.from_parts(runner, ByteTokenizer())
    params = SamplingParams(n=n, seed=3, temperature=1.0, max_tokens=40, stop=stop, ignore_eos=True)
    engine.add_request("r", tuple(PROMPT), params)
    texts, reasons = [""] * n, [""] * n
    while engine.has_unfinished():
        for output in engine.step():
            for choice in output.choices:
                texts[choice.index] += choice.text
                if choice.finish_reason is not None:
                    reasons[choice.index] = choice.finish_reason.value
    return list(zip(texts, reasons, strict=True))


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stop_in_one_choice_leaves_the_other(stopped: int) -> None:
    whole = answers(FakeRunner(), n=2, stop=())
    text, other = whole[stopped][0], whole[1 - stopped][0]
    stop = next(text[at : at + 3] for at in range(5, 30) if text[at : at + 3] not in other)
    now = answers(FakeRunner(), n=2, stop=(stop,))
    assert now[stopped] == (text[: text.index(stop)], "stop")
    assert now[1 - stopped] == whole[1 - stopped]


def test_a_stop_in_the_prompt_stops_nothing() -> None:
    script = (*b"END three", EOS_TOKEN_ID)
    engine = LLMEngine.from_parts(FakeRunner(scripts={PROMPT_IDS: script}), ByteTokenizer())
    params = SamplingParams(temperature=0.0, max_tokens=40, stop=("###END", "two"))
    engine.add_request("r", PROMPT_IDS, params)
    outputs = []
    while engine.has_unfinished():
        outputs += engine.step()
    assert "".join(c.text for output in outputs for c in output.choices) == "END three"


PROMPT_IDS = tuple(PROMPT + b" ###")
