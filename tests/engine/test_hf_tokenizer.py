"""Tokenizers of Hugging Face folders made here, against `transformers`; bad files by name."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders

from headway.engine.model_source import ModelSource
from headway.engine.tokenizer import load_tokenizer
from headway.errors import InvalidRequestError, ModelLoadError
from tests.engine.small_tokenizers import (
    KINDS,
    TEXTS,
    byte_level,
    edit,
    save,
    transformers_of,
    with_parts,
)


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> ModelSource:
    """One saved tokenizer of each kind."""
    return save(KINDS[request.param](), tmp_path)


def test_encodes_and_decodes_as_transformers_does(source: ModelSource) -> None:
    ours, reference = load_tokenizer(source), transformers_of(source.path)
    for text in TEXTS:
        for special in (True, False):
            ids = ours.encode(text, add_special_tokens=special)
            assert ids == reference.encode(text, add_special_tokens=special), text
            for skip in (True, False):
                expected = reference.decode(ids, skip_special_tokens=skip)
                assert ours.decode(ids, skip_special_tokens=skip) == expected
                state = ours.detokenizer(skip_special_tokens=skip)
                assert "".join(map(state.push, ids)) + state.finish() == expected


def test_renders_chats_as_transformers_does(source: ModelSource) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    expected = transformers_of(source.path).apply_chat_template(messages, tokenize=False)
    assert load_tokenizer(source).render_chat(messages) == expected == "<s>hi</s><s>yo</s>"


def test_the_text_of_an_added_token_is_its_own(tmp_path: Path) -> None:
    """Letters of an added token are not bytes, though GPT-2's renaming uses some of them."""
    raw = byte_level()
    raw.add_tokens([AddedToken("<é>", normalized=False)])
    tokenizer = load_tokenizer(save(raw, tmp_path))
    assert tokenizer.decode(tokenizer.encode("a<é>é")) == "a<é>é"


@pytest.mark.parametrize(
    ("files", "more"),
    [
        ({}, set()),
        ({"generation_config": {"eos_token_id": 7}}, {7}),
        ({"generation_config": {"eos_token_id": [7, 9]}, "config": {"eos_token_id": 8}}, {7, 8, 9}),
        ({"config": {"eos_token_id": None}}, set()),
    ],
)
def test_all_ends_of_text_are_known(tmp_path: Path, files: Any, more: set[int]) -> None:
    """</s> from tokenizer_config.json and <|im_end|>, a control token, always belong to them."""
    tokenizer = load_tokenizer(save(byte_level(), tmp_path, **files))
    assert tokenizer.eos_token_ids == {2, 3} | more
    assert tokenizer.bos_token_id == 1


@pytest.mark.parametrize("bad", ["x", 1.5, True, -1, [1, "x"], {"a": 1}])
def test_a_wrong_end_of_text_is_refused(tmp_path: Path, bad: Any) -> None:
    source = save(byte_level(), tmp_path, generation_config={"eos_token_id": bad})
    with pytest.raises(ModelLoadError, match="generation_config"):
        load_tokenizer(source)


@pytest.mark.parametrize("bos", [True, False])
def test_tokenizer_json_alone_says_what_surrounds_a_text(tmp_path: Path, bos: bool) -> None:
    source = save(byte_level(bos=bos), tmp_path)
    edit(tmp_path, add_bos_token=not bos, add_eos_token=True)
    ids = load_tokenizer(source).encode("hat")
    assert ids == transformers_of(tmp_path).encode("hat")
    assert (ids[0] == 1, ids[-1] == 2) == (bos, False)


def test_a_token_that_only_the_config_declares(tmp_path: Path) -> None:
    source = save(byte_level(), tmp_path)
    size = load_tokenizer(source).vocab_size
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    token = {"content": "<new>", "special": True, **flags}
    edit(tmp_path, added_tokens_decoder={str(size): token})
    tokenizer = load_tokenizer(source)
    assert tokenizer.encode("<new>", add_special_tokens=False) == [size]
    assert tokenizer.encode("<new>") == transformers_of(tmp_path).encode("<new>")
    edit(tmp_path, added_tokens_decoder={str(size + 5): token})
    with pytest.raises(ModelLoadError, match="cannot have id"):
        load_tokenizer(source)


def test_truncation_and_padding_left_in_a_file_do_not_cut_prompts(tmp_path: Path) -> None:
    raw = byte_level()
    raw.enable_truncation(4)
    raw.enable_padding(length=16)
    source = save(byte_level(), tmp_path)
    raw.save(str(tmp_path / "tokenizer.json"))
    assert len(load_tokenizer(source).encode("0123456789" * 4)) > 4
    assert len(load_tokenizer(source).encode("a")) == 2


def test_where_a_chat_template_may_lie(tmp_path: Path) -> None:
    source = save(byte_level(), tmp_path)
    messages = [{"role": "user", "content": "x"}]

    def shown(**kwargs: Any) -> str:
        return load_tokenizer(source).render_chat(messages, **kwargs)

    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(InvalidRequestError, match="no chat template"):
        shown()
    named = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]
    edit(tmp_path, chat_template=named)
    assert (shown(), shown(tools=[{}])) == ("A", "B")
    edit(tmp_path, chat_template="C")
    assert shown() == "C"
    (tmp_path / "chat_template.json").write_text('{"chat_template": "D"}')
    assert shown() == "D"
    (tmp_path / "chat_template.jinja").write_text("E{{ bos_token }}")
    assert shown() == "E<s>"
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("F")
    assert (shown(), shown(tools=[{}])) == ("E<s>", "F")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "{"),
        ("tokenizer_config.json", "["),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", '{"chat_template": 5}'),
        ("tokenizer_config.json", '{"chat_template": [{"name": "x"}]}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {}}}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": []}'),
        ("chat_template.json", "nonsense"),
        ("generation_config.json", "\x00"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, name: str, content: str | None) -> None:
    source = save(byte_level(), tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(ModelLoadError, match=name.replace(".", r"\.")):
        load_tokenizer(source)


def test_a_file_that_is_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    source = save(byte_level(), tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelLoadError, match=r"chat_template\.jinja"):
        load_tokenizer(source)


@pytest.mark.parametrize(
    "decoder", [None, decoders.WordPiece(), decoders.Sequence([decoders.Strip("x", 1, 0)])]
)
def test_an_unknown_decoder_is_refused(tmp_path: Path, decoder: Any) -> None:
    with pytest.raises(ModelLoadError, match="decoder"):
        load_tokenizer(save(with_parts(decoder=decoder), tmp_path))
