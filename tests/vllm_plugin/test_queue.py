"""Does whoever waits aside for its grammar come forward in time?"""

from headway.vllm_plugin.queue import MAX_TRIED
from tests.vllm_plugin.double import BLOCKED, BULK, CRITICAL, READY, FakeVllm


def test_the_urgent_do_not_wait_until_all_others_were_asked() -> None:
    """Anybody can send thousands of requests whose grammars take long."""
    engine = FakeVllm()
    for number in range(20 * MAX_TRIED):
        engine.add(f"slow{number}", BULK, status=BLOCKED)
    request = engine.add("urgent", CRITICAL, status=BLOCKED)
    engine.step()
    request.status = READY
    assert engine.step() == {"urgent": 8}


def test_of_one_tier_each_is_asked_in_turn() -> None:
    engine = FakeVllm()
    requests = [engine.add(f"r{number}", BULK, status=BLOCKED) for number in range(3 * MAX_TRIED)]
    engine.step()
    requests[-1].status = READY
    scheduled = [engine.step() for _ in range(3)]
    assert any(requests[-1].request_id in step for step in scheduled)
    for request in requests[:-1]:
        engine.abort(request.request_id)
    engine.run()
    assert len(engine.waiting) == 0
