"""Which small tokenizers do the tests of text need, and how are they saved?"""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tokenizers
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

from headway.engine.model_source import ModelFormat, ModelSource
from headway.engine.tokenizer import Tokenizer, load_tokenizer

SPLIT = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LEARN_FROM = [
    "the cat's hat is that hat, and 123 more hats! ",
    "naïve café 中文 中文 😀😀",
    "\n\n  def f(x):",
]
TEXTS = [
    *LEARN_FROM,
    *(
        "",
        " ",
        "  two",
        "end ",
        "\n\n\t x",
        "0123456789",
        "e\u0301 é ﬁ Å",
        "👩‍👩‍👧 🇩🇪 ไทย",
        "\x00\x04\x7f",
    ),
    *(
        "<|im_end|>",
        "a<|im_end|>b <s>c</s>",
        "<extra>x<extra>",
        "▁a▁",
        "<0xE5>",
        "don't  1 22 333 4444",
    ),
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


@cache
def made(kind: str) -> Tokenizer:
    """Load a saved tokenizer; what is needed of its folder is in memory then."""
    with TemporaryDirectory() as folder:
        return load_tokenizer(save(KINDS[kind](), Path(folder)))


def with_parts(**parts: Any) -> tokenizers.Tokenizer:
    changed = byte_level()
    for name, part in parts.items():
        setattr(changed, name, part)
    return changed


def with_token(token: AddedToken) -> tokenizers.Tokenizer:
    changed = byte_level()
    changed.add_special_tokens([token])
    return changed
