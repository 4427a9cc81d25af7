"""Tokenizers from GGUF metadata: the packaged model's against its own rule, others made here."""

import inspect
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers
from tokenizers.normalizers import NFC
from transformers import AutoTokenizer
from transformers.integrations import gguf as transformers_gguf

from headway.engine.gguf_header import read_header
from headway.engine.gguf_tokenizer import TokenType, read_gguf_tokenizer
from headway.engine.model_source import ModelFormat, ModelSource, resolve_model
from headway.engine.tokenizer import ModelTokenizer, Tokenizer, load_tokenizer
from headway.errors import ModelLoadError

SNIPPETS = [
    *(
        "a",
        "Z",
        "é",
        "ß",
        "中文",
        "ไทย",
        "😀",
        "👩‍👩‍👧",
        "🇩🇪",
        "e\u0301",
        "\u200b",
        "Ω",
        "ж",
        "½",
        "٣",
        "Ⅻ",
    ),
    *(" ", "  ", "     ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", " \n ", "\x00", "\x7f"),
    *(
        "0",
        "7",
        "12",
        "3.14",
        " 1",
        "1,000",
        "the ",
        "Don't",
        "I'LL",
        "'s",
        "'",
        "--",
        "!!!",
        "http://",
    ),
    *(
        "{",
        "}",
        "();",
        "def f(x):",
        "<|im_start|>",
        "<|im_end|>",
        "<|im",
        "|>",
        "_",
        "\\",
        "#",
        "@",
    ),
]


@cache
def packaged() -> Tokenizer:
    return load_tokenizer(resolve_model("smollm2-135m"))


@cache
def transformers_backend() -> tokenizers.Tokenizer:
    """What `transformers` makes of the packaged file."""
    path = resolve_model("smollm2-135m").path
    auto: Any = AutoTokenizer
    made: tokenizers.Tokenizer = auto.from_pretrained(
        path.parent, gguf_file=path.name
    ).backend_tokenizer
    return made


@cache
def corpus() -> list[str]:
    """Code, prose, random mixtures, and every character that Unicode assigns and UTF-8 can hold."""
    rng = random.Random(7)
    mixed = ["".join(rng.choices(SNIPPETS, k=rng.randint(1, 40))) for _ in range(4000)]
    code = [inspect.getsource(module) for module in (json, inspect, random, gguf)]
    points = [chr(p) for p in range(0x20000) if not 0xD800 <= p < 0xE000]
    blocks = ["".join(points[i : i + 256]) for i in range(0, len(points), 256)]
    return [*mixed, *code, *blocks, *(" ".join(block) for block in blocks), ""]


def test_smollm_encodes_by_the_rule_of_its_own_tokenizer_json() -> None:
    """`transformers` loses the rule's first part on the way through GGUF, so it is put back here.

    HuggingFaceTB/SmolLM2 tokenizer.json: Sequence[Digits(individual_digits), ByteLevel].
    """
    reference = tokenizers.Tokenizer.from_str(transformers_backend().to_str())
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    texts = corpus()
    for text, expected in zip(texts, reference.encode_batch_fast(texts), strict=True):
        assert packaged().encode(text) == expected.ids, text


def test_smollm_equals_transformers_where_there_are_no_digits() -> None:
    texts = [text for text in corpus() if not any(c.isnumeric() for c in text)]
    assert len(texts) > 1000
    for text, expected in zip(texts, transformers_backend().encode_batch_fast(texts), strict=True):
        assert packaged().encode(text) == expected.ids, text


def test_smollm_keeps_spaces_before_a_digit_together() -> None:
    tokens = [packaged().token_text(i) for i in packaged().encode("a  1\n\n12")]
    assert tokens == ["a", "  ", "1", "\n\n", "1", "2"]


def test_smollm_decodes_as_transformers_does() -> None:
    backend = transformers_backend()
    for text in corpus():
        ids = packaged().encode(text)
        for skip in (True, False):
            ours = packaged().decode(ids, skip_special_tokens=skip)
            assert ours == backend.decode(ids, skip_special_tokens=skip)


def test_smollm_facts() -> None:
    tokenizer = packaged()
    assert tokenizer.vocab_size == 49152
    assert tokenizer.bos_token_id == 1
    assert tokenizer.eos_token_ids == {2}
    assert tokenizer.max_token_bytes == 81
    assert tokenizer.encode("<|im_start|>user\n") == [1, 4093, 198]
    assert tokenizer.encode("hi") == tokenizer.encode("hi", add_special_tokens=False)


# The vocabulary has no token for these bytes: six control characters, and the first byte of
# planes 4 to 11, in which Unicode assigns nothing.
LOST = "\x04\x06\x13\x14\x16\x1d"
KEPT = st.one_of(
    st.characters(max_codepoint=0x3FFFF, exclude_categories=["Cs"], exclude_characters=LOST),
    st.characters(min_codepoint=0xC0000),
    st.sampled_from(SNIPPETS),
)


@settings(deadline=None)
@given(st.lists(KEPT, max_size=40).map("".join))
def test_smollm_round_trip_of_any_text(text: str) -> None:
    ids = packaged().encode(text)
    assert packaged().decode(ids, skip_special_tokens=False) == text
    state = packaged().detokenizer(skip_special_tokens=False)
    assert "".join(map(state.push, ids)) + state.finish() == text


def test_smollm_drops_exactly_the_bytes_that_it_has_no_token_for() -> None:
    lost = [chr(p) for p in range(0x80) if packaged().encode(chr(p)) == []]
    assert "".join(lost) == LOST


def byte_level(pre: str, **more: Any) -> dict[str, Any]:
    """Metadata of a small byte-level model, trained here on this package's own words."""
    raw = tokenizers.Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    raw.train_from_iterator(
        ["don't " * 9, "I'LL we're 123 456 " * 9, __doc__, *SNIPPETS * 3], trainer
    )
    state = json.loads(raw.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].__getitem__)
    extra = ["<bos>", "<|eot_id|>", "<think>", "[PAD7]"]
    kinds = [TokenType.CONTROL, TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNUSED]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*tokens, *extra],
        "tokenizer.ggml.token_type": [1] * len(tokens) + [int(kind) for kind in kinds],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in state["merges"]],
        "tokenizer.ggml.bos_token_id": len(tokens),
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def as_transformers(metadata: dict[str, Any]) -> tokenizers.Tokenizer:
    keys = {"model": "tokenizer_type", "pre": "pre_tokenizer_type"}
    short = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
    module: Any = transformers_gguf
    made: tokenizers.Tokenizer
    made, _ = module.convert_gguf_tokenizer("llama", {keys.get(k, k): v for k, v in short.items()})
    return made


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "tekken"])
def test_other_split_rules_as_transformers_has_them(pre: str) -> None:
    metadata = byte_level(pre)
    ours = ModelTokenizer(read_gguf_tokenizer(metadata))
    reference = as_transformers(metadata)
    texts = corpus()[:2000]
    if pre == "qwen2":
        # Qwen's own tokenizer.json composes characters first; a GGUF file does not say so.
        expected = reference.encode_batch_fast(
            [NFC().normalize_str(text) for text in texts], add_special_tokens=False
        )
    else:
        expected = reference.encode_batch_fast(texts, add_special_tokens=False)
    for text, encoding in zip(texts, expected, strict=True):
        assert ours.encode(text, add_special_tokens=False) == encoding.ids, text


def test_a_whole_word_of_the_vocabulary_needs_no_merges() -> None:
    metadata = byte_level("llama-bpe")
    metadata["tokenizer.ggml.tokens"].append("qzqzq")
    metadata["tokenizer.ggml.token_type"].append(1)
    last = len(metadata["tokenizer.ggml.tokens"]) - 1
    ours = ModelTokenizer(read_gguf_tokenizer(metadata))
    assert ours.encode("qzqzq", add_special_tokens=False) == [last]
    metadata["tokenizer.ggml.pre"] = "qwen2"
    assert len(ModelTokenizer(read_gguf_tokenizer(metadata)).encode("qzqzq")) == 5


@pytest.mark.parametrize(
    ("pre", "more", "begins"),
    [
        ("llama-bpe", {}, True),
        ("llama-bpe", {"add_bos_token": False}, False),
        ("qwen2", {}, False),
        ("qwen2", {"add_bos_token": True}, True),
    ],
)
def test_bos_is_added_where_the_file_or_the_rule_says_so(
    pre: str, more: dict[str, Any], begins: bool
) -> None:
    ours = ModelTokenizer(read_gguf_tokenizer(byte_level(pre, **more)))
    assert (ours.encode("hi")[0] == ours.bos_token_id) is begins
    assert ours.encode("hi", add_special_tokens=False)[0] != ours.bos_token_id


def test_kinds_of_tokens() -> None:
    metadata = byte_level("qwen2", add_eos_token=True, eos_token_id=3, eot_token_id=4)
    ours = ModelTokenizer(read_gguf_tokenizer(metadata))
    tokens = metadata["tokenizer.ggml.tokens"]
    bos, eot, think, pad = range(len(tokens) - 4, len(tokens))
    assert ours.encode("<bos>x<think>", add_special_tokens=False)[::2] == [bos, think]
    assert ours.decode([bos, think, eot, pad]) == "<think>"
    assert (
        ours.decode([bos, think, eot, pad], skip_special_tokens=False) == "<bos><think><|eot_id|>"
    )
    assert pad not in ours.encode("[PAD7]")
    assert ours.eos_token_ids == {3, 4, eot}
    assert ours.encode("x")[-1] == 3


def test_a_space_prefix_where_the_file_wants_one() -> None:
    ours = ModelTokenizer(read_gguf_tokenizer(byte_level("smollm", add_space_prefix=True)))
    assert ours.decode(ours.encode("hi")) == " hi"


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"model": "t5"}, "tokenizer.ggml.model: 't5'"),
        ({"model": None}, "tokenizer.ggml.model"),
        ({"pre": "mystery"}, "tokenizer.ggml.pre: 'mystery'"),
        ({"pre": None}, "tokenizer.ggml.pre"),
        ({"tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokens": []}, "tokenizer.ggml.tokens"),
        ({"tokens": [1, 2]}, "tokenizer.ggml.tokens"),
        ({"tokens": 7}, "tokenizer.ggml.tokens"),
        ({"token_type": [1]}, "tokenizer.ggml.token_type"),
        ({"merges": None}, "tokenizer.ggml.merges"),
        ({"merges": ["ab"]}, "tokenizer.ggml.merges: 'ab'"),
        ({"merges": ["nowhere found"]}, "tokenizer.ggml"),
        ({"bos_token_id": 10**6}, "tokenizer.ggml.bos_token_id"),
        ({"eos_token_id": -1}, "tokenizer.ggml.eos_token_id"),
        ({"eot_token_id": "x"}, "tokenizer.ggml.eot_token_id"),
    ],
)
def test_bad_metadata_is_refused_by_key(change: dict[str, Any], names: str) -> None:
    metadata = byte_level("qwen2") | {f"tokenizer.ggml.{k}": v for k, v in change.items()}
    with pytest.raises(ModelLoadError) as caught:
        read_gguf_tokenizer({k: v for k, v in metadata.items() if v is not None})
    assert str(caught.value).startswith(names)


def test_a_file_is_read_and_a_bad_one_refused_by_path(tmp_path: Path) -> None:
    def write(pre: str) -> ModelSource:
        path = tmp_path / f"{pre}.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        metadata = byte_level(pre)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(metadata["tokenizer.ggml.tokens"])
        writer.add_token_types(metadata["tokenizer.ggml.token_type"])
        writer.add_token_merges(metadata["tokenizer.ggml.merges"])
        writer.add_chat_template(
            [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]
        )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return ModelSource(pre, path, ModelFormat.GGUF)

    tokenizer = load_tokenizer(write("qwen2"))
    text = "Don't\n\n12 中"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    messages = [{"role": "user", "content": "x"}]
    assert tokenizer.render_chat(messages) == "A"
    assert tokenizer.render_chat(messages, tools=[{"type": "function"}]) == "B"
    bad = write("mystery")
    with pytest.raises(ModelLoadError, match=r"mystery\.gguf: tokenizer\.ggml\.pre"):
        load_tokenizer(bad)


def test_a_template_that_is_not_text_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"tokenizer\.chat_template"):
        read_gguf_tokenizer(byte_level("qwen2") | {"tokenizer.chat_template": 5})


def test_the_packaged_file_names_its_rule() -> None:
    metadata = read_header(resolve_model("smollm2-135m").path).metadata
    assert metadata["tokenizer.ggml.pre"] == "smollm"
