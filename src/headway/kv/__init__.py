"""Which blocks of KV memory does each request hold, and which are kept for reuse?

The KV cache is memory for `num_blocks` blocks of `block_size` tokens each. This package only keeps
the books, so it runs without a model: `KVCache` gives each resident request a block table, shares
the blocks of equal prefixes within one namespace, copies a shared block before it is written, and
keeps full blocks findable after their request left, until the space is wanted. The runner holds the
memory itself, carries out the copies that are owed, and then computes.
"""
