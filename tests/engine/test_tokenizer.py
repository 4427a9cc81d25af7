"""Tokenizers of Hugging Face folders made here, against `transformers`; and the size bound (D4)."""

import json
import sys
import threading
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.model_source import ModelFormat, ModelSource, resolve_model
from headway.engine.text_size import UNBOUNDED, max_bytes_per_token
from headway.engine.tokenizer import Tokenizer, load_tokenizer
from headway.errors import InvalidRequestError, ModelLoadError

SPLIT = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LEARN_FROM = ["the cat's hat is that hat, and 123 more hats! ", "naïve café 中文 中文 😀😀", "\n\n  def f(x):"]
TEXTS = [
    *LEARN_FROM,
    *("", " ", "  two", "end ", "\n\n\t x", "0123456789", "e\u0301 é ﬁ Å", "👩‍👩‍👧 🇩🇪 ไทย", "\x00\x04\x7f"),
    *("<|im_end|>", "a<|im_end|>b <s>c</s>", "<extra>x<extra>", "▁a▁", "<0xE5>", "don't  1 22 333 4444"),
]
CHAT = "{% for m in messages %}{{ bos_token }}{{ m.content }}{{ eos_token }}{% endfor %}"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def byte_level(*, nfc: bool = False, bos: bool = True) -> tokenizers.Tokenizer:
    """A small tokenizer of the kind that Llama 3 and Qwen have."""
    made = tokenizers.Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC() if nfc else None
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    train(made, alphabet=pre_tokenizers.ByteLevel.alphabet())
    if bos:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair=None, special_tokens=[("<s>", 1)]
        )
    return made


def sentencepiece() -> tokenizers.Tokenizer:
    """A small tokenizer of the kind that Llama 2 and Mistral have."""
    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    train(made, alphabet=list("abcdefgh ▁"), more=[f"<0x{byte:02X}>" for byte in range(256)])
    state = json.loads(made.to_str())
    # A trainer can add byte tokens only as special ones, which real models do not have.
    state["added_tokens"] = [t for t in state["added_tokens"] if not t["content"].startswith("<0x")]
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def train(made: tokenizers.Tokenizer, alphabet: list[str], more: list[str] | None = None) -> None:
    special = ["<unk>", "<s>", "</s>", "<|im_end|>", *(more or [])]
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        special_tokens=special,
        show_progress=False,
    )
    made.train_from_iterator([text for text in LEARN_FROM for _ in range(9)], trainer)
    made.add_tokens([AddedToken("<extra>", normalized=False)])


def save(made: tokenizers.Tokenizer, folder: Path, **files: Any) -> ModelSource:
    """Save as `transformers` does, then write JSON `files` beside it or over it."""
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=made, chat_template=CHAT, **SPECIAL).save_pretrained(folder)
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return ModelSource("made", folder, ModelFormat.HF)


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def transformers_of(folder: Path) -> Any:
    auto: Any = AutoTokenizer
    return auto.from_pretrained(folder)


KINDS = {
    "byte-level": byte_level,
    "with NFC": lambda: byte_level(nfc=True),
    "without BOS": lambda: byte_level(bos=False),
    "SentencePiece": sentencepiece,
}


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


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_byte_level_round_trip(text: str) -> None:
    for special in (True, False):
        ids = BYTE_LEVEL.encode(text, add_special_tokens=special)
        assert BYTE_LEVEL.decode(ids, skip_special_tokens=not special) == "<s>" * special + text
        assert len(text.encode()) <= len(ids) * BYTE_LEVEL.max_token_bytes


@given(text=st.text(st.sampled_from("ι\u1fbe\u0308\u0301\u0344\u212aKÅ\u1100\u1161\u11a8각é"), max_size=30))
def test_the_size_bound_holds_where_text_is_composed(text: str) -> None:
    ids = COMPOSING.encode(text, add_special_tokens=False)
    assert COMPOSING.decode(ids) == unicodedata.normalize("NFC", text)
    assert len(text.encode()) <= len(ids) * COMPOSING.max_token_bytes


@given(text=st.text(alphabet="ab ▁é😀\n<s>", max_size=30))
def test_sentencepiece_size_bound_and_round_trip(text: str) -> None:
    ids = SPACED.encode(text, add_special_tokens=False)
    assert len(text.encode()) <= len(ids) * SPACED.max_token_bytes
    if "<s>" not in text:
        assert SPACED.decode(ids) == text.replace("▁", " ")


def load_made(made: tokenizers.Tokenizer, folder: Path) -> Tokenizer:
    return load_tokenizer(save(made, folder))


@pytest.fixture(scope="module", autouse=True)
def _made(tmp_path_factory: pytest.TempPathFactory) -> None:
    global BYTE_LEVEL, COMPOSING, SPACED
    BYTE_LEVEL = load_made(byte_level(), tmp_path_factory.mktemp("a"))
    COMPOSING = load_made(byte_level(nfc=True), tmp_path_factory.mktemp("b"))
    SPACED = load_made(sentencepiece(), tmp_path_factory.mktemp("c"))
