"""What every tokenizer does: threads, single tokens, and ids and text that are none."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.model_source import resolve_model
from headway.engine.tokenizer import Tokenizer, load_tokenizer
from headway.errors import InvalidRequestError
from tests.engine.small_tokenizers import TEXTS, made


def test_encoding_lets_other_threads_run() -> None:
    """While megabytes are encoded, a thread that counts goes on counting (D4)."""
    tokenizer = load_tokenizer(resolve_model("smollm2-135m"))
    text = "The quick brown fox jumps over 13 lazy dogs. " * 40_000
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    ids = tokenizer.encode(text)
    after = counted[0]
    stop.set()
    thread.join()
    assert len(ids) > 400_000
    assert after - before > 1000


def test_threads_share_a_tokenizer() -> None:
    tokenizer = load_tokenizer(resolve_model("smollm2-135m"))
    texts = [f"{text} {n}" for n in range(30) for text in TEXTS]
    expected = [tokenizer.encode(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenizer.encode, texts)) == expected


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\ud83d \ude00"])
@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), made("byte-level")])
def test_half_a_surrogate_pair_is_a_client_error(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        tokenizer.encode(text)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), made("SentencePiece")])
@pytest.mark.parametrize("token_id", [-1, 10**6])
def test_unknown_ids_stand_for_nothing(tokenizer: Tokenizer, token_id: int) -> None:
    assert tokenizer.token_bytes(token_id) == b""
    assert tokenizer.token_text(token_id) == ""
    assert tokenizer.decode([token_id]) == ""


def test_single_tokens_as_bytes_and_text() -> None:
    tokenizer = made("SentencePiece")
    byte, special = tokenizer.encode("<0xE5>é</s>", add_special_tokens=False)[-2:]
    assert tokenizer.token_bytes(byte) == "é".encode()[1:]
    assert tokenizer.token_text(byte) == "\ufffd"
    assert tokenizer.token_text(special) == "</s>"


def test_the_byte_tokenizer() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("é<eos>") == list("é<eos>".encode())
    assert tokenizer.decode([104, 105, 256]) == "hi"
    assert tokenizer.decode([104, 105, 256], skip_special_tokens=False) == "hi<eos>"
    assert (tokenizer.vocab_size, tokenizer.bos_token_id) == (257, None)
    assert tokenizer.eos_token_ids == {256}
