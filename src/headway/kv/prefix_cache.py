"""Which block already holds the KV of these tokens?

KV depends on every token before it, so a full block is known by a key that covers its own tokens,
all earlier ones, and the namespace of the tenant: a chain of hashes, one per block. The hash is
cryptographic because a tenant who finds two prompts with one key reads another's cache (G11).
"""

from array import array
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain, islice

KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """What `KVCache.match` found; pass it back as `known` and its keys are not hashed again."""

    num_tokens: int
    """Length of the longest cached prefix: whole blocks, and less than all tokens."""
    num_evictable: int
    """How many of its blocks have no holder: pinning it lowers `num_available` by this."""
    namespace: str = field(default="", repr=False, compare=False)
    token_ids: Sequence[int] = field(default=(), repr=False, compare=False)
    keys: tuple[bytes, ...] = field(default=(), repr=False, compare=False)
    blocks: tuple[int, ...] = field(default=(), repr=False, compare=False)


def root_key(namespace: str) -> bytes:
    """Return the key before the first block. No two namespaces share one, nor a block's key."""
    name = namespace.encode("utf-8", "surrogatepass")
    return blake2b(name, digest_size=KEY_BYTES, person=b"kv namespace").digest()


def block_key(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Return the key of the block of `token_ids` that follows the block whose key is `parent`."""
    content = parent + array("q", token_ids).tobytes()
    return blake2b(content, digest_size=KEY_BYTES, person=b"kv block").digest()


class PrefixCache:
    """Keys of full, computed blocks. A key has one block and a block has one key."""

    def __init__(self, block_size: int) -> None:
        """Start empty. `block_size` is in tokens."""
        self._block_size = block_size
        self._block_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    def __contains__(self, block: int) -> bool:
        """Return whether `block` can be found."""
        return block in self._key_of

    @property
    def blocks(self) -> Set[int]:
        """All blocks that can be found."""
        return self._key_of.keys()

    def keys_after(
        self, known: Sequence[bytes], namespace: str, token_ids: Sequence[int]
    ) -> Iterator[bytes]:
        """Yield the keys of the full blocks of `token_ids` that follow those of `known`.

        Lazy, so that looking up a prompt that is not cached hashes one block of it.
        """
        parent = known[-1] if known else root_key(namespace)
        size = self._block_size
        for start in range(len(known) * size, len(token_ids) - size + 1, size):
            parent = block_key(parent, token_ids[start : start + size])
            yield parent

    def find(
        self,
        namespace: str,
        token_ids: Sequence[int],
        max_blocks: int,
        known: PrefixMatch | None = None,
    ) -> list[tuple[bytes, int]]:
        """Return (key, block) of the longest findable prefix, at most `max_blocks` of them."""
        # The keys of this very sequence object stay right: a request's tokens are only appended to.
        hashed: tuple[bytes, ...] = ()
        if known is not None and known.token_ids is token_ids and known.namespace == namespace:
            hashed = known.keys
        keys = chain(hashed, self.keys_after(hashed, namespace, token_ids))
        found = []
        for key in islice(keys, max_blocks):
            block = self._block_of.get(key)
            if block is None:
                break
            found.append((key, block))
        return found

    def insert(self, keys: Sequence[bytes], blocks: Sequence[int]) -> None:
        """Make each block findable by its key; a key that has a block already keeps that one.

        Raises ValueError, and changes nothing, when a block is known under another key.
        """
        for key, block in zip(keys, blocks, strict=True):
            if self._key_of.get(block, key) != key:
                raise ValueError(f"block {block} holds other tokens")
        for key, block in zip(keys, blocks, strict=True):
            if key not in self._block_of:
                self._block_of[key] = block
                self._key_of[block] = key

    def forget(self, block: int) -> None:
        """Make `block` unfindable, before its content changes. Nothing happens if it is not."""
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._block_of[key]

    def check_integrity(self) -> None:
        """Raise AssertionError that names a key and block which do not point at each other."""
        if len(self._block_of) != len(self._key_of):
            raise AssertionError(f"{len(self._block_of)} keys for {len(self._key_of)} blocks")
        for block, key in self._key_of.items():
            if self._block_of.get(key) != block:
                raise AssertionError(
                    f"block {block} and its key {key.hex()[:8]} do not point at each other"
                )
