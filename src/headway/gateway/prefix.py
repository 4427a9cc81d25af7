"""Which requests begin alike, so that a node which has served one has the start of the next?

The key stands for the first bytes of the prompt in the name of its cache salt, which is the
tenant's own: no two tenants ever share one (G11).
"""

from hashlib import blake2b

from headway.wire.chat import ChatCompletionRequest
from headway.wire.completions import CompletionRequest

PREFIX_BYTES = 1024
"""About 280 tokens. Prompts that share less than this are not worth moving for."""
SHORTEST_BYTES = 256
TOKEN_BYTES = 4


def prefix_key(request: ChatCompletionRequest | CompletionRequest, salt: str) -> str | None:
    """Return the key of what the prompt begins with; None when it is too short to matter.

    Of a chat it is what its turns have in common: everything up to the first message of the user.
    """
    if isinstance(request, ChatCompletionRequest):
        start = _chat_start(request)
    else:
        prompt = request.prompts[0]
        if isinstance(prompt, str):
            start = prompt[:PREFIX_BYTES].encode()
        else:
            ids = prompt[: PREFIX_BYTES // TOKEN_BYTES]
            start = b"".join(token.to_bytes(TOKEN_BYTES, "little") for token in ids)
    if len(start) < SHORTEST_BYTES:
        return None
    return blake2b(start[:PREFIX_BYTES], key=salt.encode(), digest_size=16).hexdigest()


def _chat_start(request: ChatCompletionRequest) -> bytes:
    parts: list[bytes] = []
    size = 0
    for message in request.messages:
        part = f"{message.role}\0{message.text[:PREFIX_BYTES]}\0".encode()
        parts.append(part)
        size += len(part)
        if message.role == "user" or size >= PREFIX_BYTES:
            break
    return b"".join(parts)
