"""Do the faults that others met with their prefix caches stay away from ours?

B1, B4 and B5 of the field's bug reports, on the size they are stated for: 12 blocks of 16 tokens,
two slots, chunks of 16.
"""

from random import Random

import pytest

from headway.errors import OutOfBlocksError
from headway.kv.cache import KVCache

from .mirrored_cache import MirroredCache

SIZE, NUM_BLOCKS, CHUNK, SLOTS = 16, 12, 16, 2


def tiny() -> MirroredCache:
    return MirroredCache(KVCache(NUM_BLOCKS, SIZE))


def run(cache: MirroredCache, request_id: str, namespace: str, token_ids: list[int]) -> int:
    """Compute all tokens in chunks and leave. Returns how many were cached."""
    cached = cache.admit(request_id, namespace, token_ids)
    while cache.requests[request_id].num_computed < len(token_ids):
        assert cache.grow(request_id, CHUNK)
        cache.step()
        cache.check()
    cache.free(request_id)
    return cached


def prompt(first: int, num_tokens: int) -> list[int]:
    return list(range(first, first + num_tokens))


def test_b1_a_hit_looked_up_before_the_refusal_is_not_trusted_after_it() -> None:
    """P is cached, R1 = P + 4 blocks refused, P evicted, R1 admitted with the old match."""
    cache = tiny()
    p = prompt(0, 5 * SIZE)
    run(cache, "p", "a", p)
    for name, first in (("x", 1000), ("y", 2000)):
        cache.admit(name, "a", prompt(first, 6 * SIZE))
        assert cache.grow(name, 3 * SIZE)
    cache.step()
    r1 = p + prompt(500, 4 * SIZE)
    stale = cache.match("a", r1)
    assert (stale.num_tokens, stale.num_evictable) == (5 * SIZE, 5)
    cached = cache.admit("r1", "a", r1, known=stale)
    assert cached == 5 * SIZE
    assert not cache.grow("r1", 4 * SIZE), "x and y hold what it lacks"
    cache.free("r1")
    for name in ("x", "y"):
        assert cache.grow(name, 3 * SIZE), "evicts P"
    cache.step()
    for name in ("x", "y"):
        cache.free(name)
    assert cache.admit("r1", "a", r1, known=stale) == 0
    while cache.requests["r1"].num_computed < len(r1):
        assert cache.grow("r1", CHUNK)
        cache.step()
        cache.check()
    cache.free("r1")
    cache.check_idle()


class Interleaving:
    """Random arrivals, refusals, evictions, aborts and preemptions, with two slots."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cache = tiny()
        self.waiting: list[tuple[str, str, list[int]]] = []
        self.num_arrived = self.num_refused = self.num_cached = 0

    def arrive(self) -> None:
        """One of three heads in one of two namespaces, with lengths around the block edges."""
        self.num_arrived += 1
        head = prompt(1000 * self.random.randrange(3), self.random.choice((16, 48, 96)))
        tail = prompt(self.random.randrange(10**6), self.random.choice((1, 15, 16, 17, 33, 80)))
        namespace = self.random.choice("ab")
        self.waiting.append((f"r{self.num_arrived}", namespace, head + tail))

    def admit(self) -> None:
        """Admit the oldest; when its first chunk does not fit, take that back in full."""
        if not self.waiting or len(self.cache.requests) == SLOTS:
            return
        request_id, namespace, token_ids = self.waiting[0]
        self.num_cached += self.cache.admit(request_id, namespace, token_ids)
        if self.cache.grow(request_id, CHUNK):
            del self.waiting[0]
        else:
            self.num_refused += 1
            self.cache.free(request_id)

    def step(self) -> None:
        """Plan a chunk or an output token for each; whoever gets no block preempts another."""
        for request_id in list(self.cache.requests):
            request = self.cache.requests.get(request_id)
            if request is None:
                continue
            if request.num_computed == len(request.token_ids):
                request.token_ids = [*request.token_ids, self.random.randrange(100)]
            while not self.cache.grow(request_id, CHUNK):
                self.num_refused += 1
                victim = next((v for v in self.cache.requests if v != request_id), request_id)
                self.preempt(victim)
                if victim == request_id:
                    break
            self.cache.check()
        self.cache.step()

    def preempt(self, request_id: str) -> None:
        """Take the blocks; its tokens wait to be computed again."""
        request = self.cache.requests[request_id]
        self.waiting.insert(0, (request_id, request.namespace, request.token_ids))
        self.cache.free(request_id)

    def leave(self) -> None:
        """End or abort one, in whatever state it is."""
        if self.cache.requests:
            self.cache.free(self.random.choice(list(self.cache.requests)))

    def preempt_one(self) -> None:
        if self.cache.requests:
            self.preempt(self.random.choice(list(self.cache.requests)))

    def run(self, num_events: int) -> None:
        events = (self.arrive, self.admit, self.step, self.step, self.leave, self.preempt_one)
        for _ in range(num_events):
            self.random.choices(events, weights=(4, 8, 10, 10, 1, 1))[0]()
            self.cache.check()
        for request_id in list(self.cache.requests):
            self.cache.free(request_id)
        self.cache.check_idle()


def test_b1_two_hundred_interleavings_leave_no_residue() -> None:
    """`MirroredCache` asserts content and books at each event; the counts show it had to."""
    refused = cached = 0
    for seed in range(200):
        interleaving = Interleaving(seed)
        interleaving.run(90)
        refused += interleaving.num_refused
        cached += interleaving.num_cached
    assert refused > 200
    assert cached > 200 * SIZE


def test_b4_one_tenant_hits_and_the_other_never_does_g11() -> None:
    cache = tiny()
    secret = prompt(0, 64)
    assert run(cache, "a1", "A", secret) == 0
    assert run(cache, "a2", "A", secret) == 48
    for number, namespace in enumerate(("B", "", "A ", "a", "A\0", "AA", "\u0391")):
        assert cache.match(namespace, secret).num_evictable == 0
        assert run(cache, f"b{number}", namespace, secret) == 0
    cache.check_idle()


def test_b4_a_block_shared_within_a_namespace_is_never_in_a_table_of_another() -> None:
    cache = tiny()
    secret = prompt(0, 33)
    for number, namespace in enumerate("AABB"):
        cache.admit(f"r{number}", namespace, secret)
        assert cache.grow(f"r{number}", 33)
        cache.step()
    blocks = {name: set(cache.kv.block_table(name)) for name in cache.requests}
    assert len(blocks["r0"] & blocks["r1"]) == len(blocks["r2"] & blocks["r3"]) == 2
    assert not (blocks["r0"] | blocks["r1"]) & (blocks["r2"] | blocks["r3"])


def test_b5_the_same_prompt_again_at_once_in_a_pool_almost_full() -> None:
    """Of 12 blocks others hold 4 and P keeps 8: the growth for P's end must not evict P's head."""
    cache = tiny()
    p = prompt(0, 8 * SIZE)
    cache.admit("other", "a", prompt(5000, 4 * SIZE))
    assert cache.grow("other", 3 * SIZE + 1)
    cache.step()
    assert run(cache, "p1", "a", p) == 0
    assert cache.kv.num_free == 0
    assert run(cache, "p2", "a", p) == 7 * SIZE
    assert cache.match("a", [*p, 7]).num_tokens == 8 * SIZE


def test_b5_a_request_never_evicts_the_blocks_it_hits() -> None:
    """All that is available is what it hits and one more: it gets that one, or is refused."""
    cache = tiny()
    p = prompt(0, 5 * SIZE)
    run(cache, "p", "a", p)
    cache.admit("other", "b", prompt(5000, 7 * SIZE))
    assert cache.grow("other", 6 * SIZE)
    cache.step()
    longer = p + prompt(900, 2 * SIZE)
    assert cache.admit("r", "a", longer) == 5 * SIZE
    hit = cache.kv.block_table("r")
    assert not cache.grow("r", 2 * SIZE)
    assert cache.grow("r", SIZE)
    assert cache.kv.block_table("r")[:5] == hit
    cache.step()
    cache.check()


def test_b5_an_abort_keeps_the_full_blocks_that_were_computed() -> None:
    cache = tiny()
    p = prompt(0, 4 * SIZE)
    cache.admit("r", "a", [*p, *prompt(800, 20)])
    for _ in range(4):
        cache.grow("r", CHUNK)
        cache.step()
    cache.grow("r", 10)
    cache.step()
    cache.free("r")
    assert run(cache, "again", "a", [*p, *prompt(800, 20)]) == 4 * SIZE


def test_b5_an_abort_between_plan_and_forward_keeps_what_was_computed_before() -> None:
    cache = tiny()
    p = prompt(0, 4 * SIZE)
    cache.admit("r", "a", p)
    cache.grow("r", 2 * CHUNK)
    cache.step()
    cache.grow("r", 2 * CHUNK)
    cache.free("r")
    cache.forward()
    assert cache.match("a", p).num_tokens == 2 * SIZE
    cache.check_idle()


def test_b5_the_next_turn_of_a_chat_finds_the_turn_before_with_its_answer() -> None:
    cache = tiny()
    turn_1 = prompt(0, 37)
    cache.admit("turn-1", "a", list(turn_1))
    cache.grow("turn-1", 37)
    cache.step()
    for token in prompt(600, 30):
        request = cache.requests["turn-1"]
        request.token_ids = [*request.token_ids, token]
        assert cache.grow("turn-1", 1)
        cache.step()
    cache.free("turn-1")
    turn_2 = turn_1 + prompt(600, 30) + prompt(700, 20)
    assert run(cache, "turn-2", "a", turn_2) == 4 * SIZE


def test_b5_a_preempted_request_resumes_from_its_own_blocks() -> None:
    cache = tiny()
    p = prompt(0, 6 * SIZE + 5)
    cache.admit("r", "a", p)
    assert cache.grow("r", len(p))
    cache.step()
    cache.free("r")
    cache.admit("critical", "b", prompt(3000, 8 * SIZE))
    assert cache.grow("critical", 8 * SIZE)
    cache.step()
    cache.free("critical")
    assert run(cache, "r", "a", p) == 4 * SIZE, "only the tail that was needed is lost"


def test_an_admission_is_undone_by_free_without_residue() -> None:
    """Pin, fail to grow, free: twenty times over, nothing is gained or lost."""
    cache = tiny()
    p = prompt(0, 5 * SIZE)
    run(cache, "p", "a", p)
    cache.admit("hog", "b", prompt(4000, 8 * SIZE))
    assert cache.grow("hog", 7 * SIZE)
    cache.step()
    for _ in range(20):
        cached = cache.admit("r", "a", [*p, 1])
        assert cached == 5 * SIZE
        with pytest.raises(OutOfBlocksError):
            cache.kv.grow("r", cached, cached + 1)
        cache.free("r")
        cache.check()
    assert cache.kv.num_cached == 5
