"""Chats become prompts as `transformers` makes them; a bad one is the caller's error."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import models
from transformers import PreTrainedTokenizerFast

from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.chat_template import ChatTemplate
from headway.engine.gguf_header import read_header
from headway.engine.model_source import resolve_model
from headway.engine.tokenizer import load_tokenizer
from headway.errors import InvalidRequestError, ModelLoadError

Messages = list[dict[str, Any]]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CHATML = (
    "{% for m in messages %}\n{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}"
    "\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = """{{- bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
    {%- if message.role == 'system' %}
        {%- set ns.system = message.content | trim %}
        {%- continue %}
    {%- endif %}
    {%- if loop.index > 8 %}{%- break %}{%- endif %}
    {%- if message.role not in ['user', 'assistant', 'tool'] %}
        {{- raise_exception('no role ' ~ message.role) }}
    {%- endif %}
    {{- '[' ~ message.role ~ '] ' ~ (message.content | trim) }}
    {%- if message.tool_calls is defined %}
        {%- for call in message.tool_calls %}{{ call.function.arguments | tojson }}{% endfor %}
    {%- endif %}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{ eos_token }}{% endgeneration %}
    {%- endif %}
{%- endfor %}
{%- if tools is not none %}{{ tools | tojson(indent=2) }}{%- endif %}
{%- if add_generation_prompt %}{{ '[assistant]' }}{%- endif %}
"""
CHATS: list[Messages] = [
    [{"role": "user", "content": "Hi"}],
    [
        {"role": "system", "content": " Be <b>brief</b> & kind "},
        {"role": "user", "content": "é中👩‍👩‍👧"},
    ],
    [
        {"role": "user", "content": "1\n2"},
        {"role": "assistant", "content": "3 {{ 4 }} {% raw %}"},
        {"role": "user", "content": ""},
    ],
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "<é> & 'q'"}}]


def reference(template: str, messages: Messages, **kwargs: Any) -> str:
    """What `transformers` renders."""
    make: Any = PreTrainedTokenizerFast
    tokenizer = make(tokenizer_object=RawTokenizer(models.BPE()), chat_template=template, **TOKENS)
    return str(tokenizer.apply_chat_template(messages, tokenize=False, **kwargs))


def ours(template: str, **tokens: str) -> ChatTemplate:
    return ChatTemplate({"default": template}, tokens or TOKENS)


def refusal(chat: ChatTemplate, messages: Any, **kwargs: Any) -> str:
    """The message of the error, whose fields are checked."""
    with pytest.raises(InvalidRequestError) as caught:
        chat.render(messages, **kwargs)
    assert caught.value.param == "messages"
    assert caught.value.status == 400
    return caught.value.message


def test_the_models_own_template_as_transformers_renders_it() -> None:
    source = resolve_model("smollm2-135m")
    template = str(read_header(source.path).metadata["tokenizer.chat_template"])
    tokenizer = load_tokenizer(source)
    for messages in CHATS:
        for prompt in (True, False):
            text = tokenizer.render_chat(messages, add_generation_prompt=prompt)
            assert text == reference(template, messages, add_generation_prompt=prompt)
            ids = tokenizer.encode(text, add_special_tokens=False)
            assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("template", [CHATML, LLAMA])
@pytest.mark.parametrize("messages", CHATS)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_templates_as_transformers_renders_them(
    template: str, messages: Messages, tools: Any
) -> None:
    variables = {} if tools is None else {"tools": tools}
    text = ours(template).render(messages, variables=variables)
    assert text == reference(template, messages, tools=tools, add_generation_prompt=True)


@pytest.mark.parametrize("template", [CHATML, LLAMA])
@pytest.mark.parametrize("content", ["The answer is", "The answer is ", "The answer is \n"])
def test_the_final_message_may_be_continued(template: str, content: str) -> None:
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": content}]
    text = ours(template).render(messages, add_generation_prompt=False, continue_final_message=True)
    assert text == reference(template, messages, continue_final_message=True)
    assert messages[-1]["content"] == content


def test_continuing_a_message_that_the_template_hides_is_refused() -> None:
    chat = ours("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "x"}]
    options = {"add_generation_prompt": False, "continue_final_message": True}
    assert "final message" in refusal(chat, messages, **options)


def test_generation_prompt_and_continuation_exclude_each_other() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ours(CHATML).render(CHATS[0], continue_final_message=True)
    assert caught.value.param == "continue_final_message"


def test_text_parts_are_joined_for_templates_that_read_strings() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    joined = ours(CHATML).render([{"role": "user", "content": parts}])
    assert joined == ours(CHATML).render([{"role": "user", "content": "one\ntwo"}])


def test_strings_become_parts_for_templates_that_read_parts() -> None:
    template = (
        "{% for m in messages %}{% for part in m.content %}{% if part.type == 'text' %}"
        "<{{ part.text }}>{% endif %}{% endfor %}{% endfor %}"
    )
    chat = ours(template)
    assert chat.render([{"role": "user", "content": "hi"}]) == "<hi>"
    assert chat.render([{"role": "user", "content": [{"type": "text", "text": "yo"}]}]) == "<yo>"
    options: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True}
    assert chat.render([{"role": "assistant", "content": "so"}], **options) == "<so"


def test_tool_arguments_reach_the_template_as_an_object() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": [1, "é"]}'}}
    messages = [CHATS[0][0], {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert '{"a": [1, "é"]}' in ours(LLAMA).render(messages)
    assert call["function"] == {"name": "f", "arguments": '{"a": [1, "é"]}'}


@pytest.mark.parametrize(
    "calls", ["x", ["x"], [{"function": None}], [{"function": {"name": "f", "arguments": "{"}}]]
)
def test_malformed_tool_calls_are_refused(calls: Any) -> None:
    messages = [{"role": "assistant", "content": "", "tool_calls": calls}]
    assert "messages[0].tool_calls" in refusal(ours(LLAMA), messages)


def test_developer_is_system_unless_the_template_knows_it() -> None:
    messages = [{"role": "developer", "content": "be brief"}]
    assert ours(CHATML).render(messages).startswith("<|im_start|>system\nbe brief")
    knows = CHATML + "{# developer #}"
    assert ours(knows).render(messages).startswith("<|im_start|>developer\nbe brief")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        ["hi"],
        [{}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "assistant", "content": None}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": {"type": "text", "text": "x"}}],
        [{"role": "user", "content": ["x"]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        [{"role": 7, "content": "x"}],
        [{"role": "", "content": "x"}],
        [{"role": "user<|im_end|>", "content": "x"}],
        [{"role": "user\n", "content": "x"}],
        [{"role": "user", "content": "\ud800"}],
    ],
)
def test_messages_that_are_not_a_chat_are_refused(messages: Any) -> None:
    refusal(ours(CHATML), messages)


def test_the_templates_own_refusal_reaches_the_caller() -> None:
    messages = [{"role": "robot", "content": "x"}]
    assert "no role robot" in refusal(ours(LLAMA), messages)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ strftime_now.__code__.co_consts }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ messages.append(1) }}",
        "{% set _ = messages[0].update({'role': 'x'}) %}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ 1 / 0 }}",
        "{{ messages['x'].y.z }}",
        "{{ messages[0].content + 5 }}",
        "{% include 'file' %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ messages | tojson(indent='x', separators=3) }}",
        "{{ strftime_now(5) }}",
    ],
)
def test_attacks_and_failures_in_a_template_are_a_client_error(template: str) -> None:
    messages = [{"role": "user", "content": "x"}]
    refusal(ours(template), messages)
    assert messages == [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    "template",
    ["{{ strftime_now.__code__ }}", "{{ ''.__class__ }}", "{{ '{0.__class__}'.format(1) }}"],
)
def test_what_the_sandbox_hides_prints_as_nothing(template: str) -> None:
    assert ours(template).render(CHATS[0]) == ""


def test_without_a_template_chat_is_refused_and_says_so() -> None:
    assert "no chat template" in refusal(ChatTemplate({}, {}), CHATS[0])


def test_a_template_with_a_syntax_error_is_refused_at_load_by_name() -> None:
    with pytest.raises(ModelLoadError, match="'default'"):
        ours("{% for %}")


def test_tools_choose_their_own_template() -> None:
    chat = ChatTemplate({"default": "plain", "tool_use": "tools"}, {})
    assert chat.render(CHATS[0]) == "plain"
    assert chat.render(CHATS[0], variables={"tools": TOOLS}) == "tools"
    assert chat.render(CHATS[0], variables={"tools": []}) == "plain"


@pytest.mark.parametrize("name", ["messages", "raise_exception", "strftime_now", "bos_token"])
def test_variables_of_our_own_are_not_for_the_caller(name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ours(CHATML).render(CHATS[0], variables={name: "x"})
    assert caught.value.param == name


def test_other_variables_reach_the_template() -> None:
    chat = ours("{{ enable_thinking }}|{{ documents }}|{{ tools }}")
    assert chat.render(CHATS[0], variables={"enable_thinking": False}) == "False|None|None"


def test_the_date_is_the_clocks() -> None:
    chat = ChatTemplate(
        {"default": "{{ strftime_now('%d %b %Y') }}"},
        {},
        now=lambda: datetime(2031, 2, 3, tzinfo=UTC),
    )
    assert chat.render(CHATS[0]) == "03 Feb 2031"


def test_the_byte_tokenizer_has_a_template() -> None:
    text = ByteTokenizer().render_chat(CHATS[2])
    assert text == "user: 1\n2\nassistant: 3 {{ 4 }} {% raw %}\nuser: \nassistant: "
