"""What happened to a request, and who may know?

The last requests are remembered, in memory, for `GET /v1/qos/explain/{id}`. An id is our own, as
the answer's `id` holds it, or the one that the client sent. Only the tenant that a request belongs
to learns of it; for everybody else it does not exist.
"""

from collections import OrderedDict

from headway.gateway.access_log import Record

REMEMBERED = 10_000
_ANSWER_PREFIXES = ("chatcmpl-", "cmpl-")


class ExplainRing:
    """The last `size` requests that ended with a known tenant."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._by_client_id: OrderedDict[tuple[str, str], str] = OrderedDict()

    def __len__(self) -> int:
        """Return how many requests are remembered."""
        return len(self._records)

    def add(self, record: Record) -> None:
        """Remember a request; the oldest beyond the size is forgotten."""
        if record.tenant is None:
            return
        self._records[record.id] = record
        self._by_client_id[record.tenant, record.client_id] = record.id
        for ids in (self._records, self._by_client_id):
            if len(ids) > self._size:
                ids.popitem(last=False)

    def find(self, tenant: str, id: str) -> Record | None:
        """Return the tenant's request of that id; of several with one client id, the latest."""
        for prefix in _ANSWER_PREFIXES:
            id = id.removeprefix(prefix)
        record = self._records.get(self._by_client_id.get((tenant, id), id))
        return record if record is not None and record.tenant == tenant else None
