"""Is what expires first known at any time, whoever came and left in between?"""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.expiry import Expiry

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "remove"]),
        st.integers(0, 12),
        st.integers(0, 2),
        st.integers(0, 6),
    )
)


@given(OPERATIONS)
def test_it_agrees_with_the_least_of_all(operations: list[tuple[str, int, int, int]]) -> None:
    expiry = Expiry(3)
    model: dict[str, tuple[float, int, int]] = {}
    for number, (operation, name, lane, at) in enumerate(operations):
        request_id = f"r{name}"
        if operation == "add" and request_id not in model:
            # Mostly later than those before, as limits of one tier are.
            when = number / 2 + at
            expiry.add(request_id, lane, when)
            model[request_id] = (when, number, lane)
        elif operation == "remove":
            _, _, joined = model.pop(request_id, (0.0, 0, lane))
            expiry.remove(request_id, joined)
        expiry.check_integrity()
        assert len(list(expiry)) == len(model)
        first = min(model, key=lambda each: model[each][:2], default=None)
        assert first == (None if expiry.first is None else expiry.first[2])


def test_of_two_at_the_same_time_the_one_added_first_is_first() -> None:
    expiry = Expiry(2)
    expiry.add("b", 1, 5.0)
    expiry.add("a", 0, 5.0)
    assert expiry.first is not None
    assert expiry.first[2] == "b"


def test_one_with_a_sooner_deadline_overtakes_its_line() -> None:
    expiry = Expiry(1)
    for number in range(100):
        expiry.add(f"r{number}", 0, 60.0 + number)
    expiry.add("urgent", 0, 1.0)
    assert expiry.first == (1.0, 101, "urgent")
    expiry.remove("urgent", 0)
    assert expiry.first == (60.0, 1, "r0")
