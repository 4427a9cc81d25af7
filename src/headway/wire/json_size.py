"""Does a body consist of so many pieces that reading it would hold up everybody?

Decoding costs little per byte and much per value: five megabytes of text take milliseconds, five
megabytes of `[],` half a second, all of it in one call. So the pieces are counted before: commas,
and for more, colons and brackets, outside of strings, each count being one fast pass over the
bytes. Up to the first mistake in the JSON the count is exact, and there the decoder stops.
"""

from headway.errors import InvalidRequestError

MAX_WEIGHT = 2**18
"""Most weight of a body; a prompt of about as many token ids."""
BRACKET_WEIGHT = 4
"""What a bracket or a colon counts; a comma counts 1. Objects and lists cost more than numbers."""
MAX_UNCOUNTED_BYTES = MAX_WEIGHT // BRACKET_WEIGHT
"""A body of this size cannot be too heavy."""


def check_weight(body: bytes) -> None:
    """Raise InvalidRequestError when reading `body` would take too many values."""
    if len(body) > MAX_UNCOUNTED_BYTES and weight_of(body) > MAX_WEIGHT:
        text = f"The body holds too many values; a list of {MAX_WEIGHT} numbers is the most"
        raise InvalidRequestError(text, code="too_many_values")


def weight_of(body: bytes) -> int:
    """Return the weight of a JSON text, or some number above `MAX_WEIGHT` for a heavier one."""
    # What is escaped inside strings goes first, so that every quote left begins or ends one.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    num_strings = plain.count(b'"') // 2
    if num_strings > MAX_WEIGHT:
        # A comma, a colon or a bracket stands between any two.
        return num_strings
    outside = b"".join(plain.split(b'"')[::2])
    commas = outside.count(b",")
    others = len(outside) - len(outside.translate(None, b":[]{}"))
    return commas + BRACKET_WEIGHT * others
