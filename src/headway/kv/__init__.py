"""Which blocks of KV memory does each request hold, and which are kept for reuse?

The KV cache is memory for `num_blocks` blocks of `block_size` tokens each. This package only keeps
the books, so it runs without a model: `KVCache` gives each resident request a block table, shares
the blocks of equal prefixes within one namespace, copies a shared block before it is written, and
keeps full blocks findable after their request left, until the space is wanted. The runner holds the
memory itself, carries out the copies that are owed, and then computes.
"""

from headway.kv.block_pool import BlockPool
from headway.kv.block_table import BlockTable
from headway.kv.cache import KVCache
from headway.kv.copies import OwedCopies
from headway.kv.prefix_cache import PrefixCache, PrefixMatch, block_key, root_key
from headway.kv.shared_blocks import SharedBlocks

__all__ = [
    "BlockPool",
    "BlockTable",
    "KVCache",
    "OwedCopies",
    "PrefixCache",
    "PrefixMatch",
    "SharedBlocks",
    "block_key",
    "root_key",
]
