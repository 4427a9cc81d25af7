"""Does a body consist of so many pieces that reading it would hold up everybody?

Decoding costs little per byte and much per value: five megabytes of text take milliseconds, five
megabytes of `[],` half a second, all of it in one call. So the pieces are counted before: commas,
and for more, colons and brackets, outside of strings, in fast passes over the bytes. Up to the
first mistake in the JSON the count is exact, and there the decoder stops.
"""

from headway.errors import InvalidRequestError

MAX_WEIGHT = 2**18
"""Most weight of a body; a prompt of about as many token ids."""
BRACKET_WEIGHT = 4
"""What a bracket or a colon counts; a comma counts 1. Objects and lists cost more than numbers."""
_CHUNK_BYTES = 64 * 1024
MAX_UNCOUNTED_BYTES = MAX_WEIGHT // BRACKET_WEIGHT
"""A body of this size cannot be too heavy."""


def check_weight(body: bytes) -> None:
    """Raise InvalidRequestError when reading `body` would take too many values."""
    if len(body) > MAX_UNCOUNTED_BYTES and weight_of(body) > MAX_WEIGHT:
        text = f"The body holds too many values; a list of {MAX_WEIGHT} numbers is the most"
        raise InvalidRequestError(text, code="too_many_values")


def weight_of(body: bytes) -> int:
    """Return the weight of a JSON text, or some number above `MAX_WEIGHT` for a heavier one."""
    weight, num_quotes, start = 0, 0, 0
    while start < len(body) and weight <= MAX_WEIGHT:
        chunk = body[start : start + _CHUNK_BYTES]
        if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2:
            chunk = body[start : start + _CHUNK_BYTES + 1]
        start += len(chunk)
        # What is escaped goes first, so that every quote left begins or ends a string.
        parts = chunk.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        # Whether a string goes on from before: an odd number of quotes is open.
        outside = b"".join(parts[num_quotes % 2 :: 2])
        others = len(outside) - len(outside.translate(None, b":[]{}"))
        weight += outside.count(b",") + BRACKET_WEIGHT * others
        num_quotes += len(parts) - 1
        # Between any two strings stands one of them, or it is no JSON.
        weight = max(weight, num_quotes // 2 - 1)
    return weight
