"""How did a request end?

Every request ends in exactly one `Outcome`. It is the metric label, decides the HTTP status, and is
the ledger line and the log line. *Rejected*: it never joined the queue. *Evicted*: it was queued
and then removed. *Failed*: it had been sent to a node.
"""

from enum import StrEnum


class Outcome(StrEnum):
    """The one way in which a request ended."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    REJECTED_INVALID = "rejected-invalid"
    REJECTED_UNAUTHENTICATED = "rejected-unauthenticated"
    REJECTED_FORBIDDEN = "rejected-forbidden"
    REJECTED_NOT_FOUND = "rejected-not-found"
    REJECTED_SATURATED = "rejected-saturated"
    REJECTED_NO_ENDPOINTS = "rejected-no-endpoints"
    REJECTED_SHUTTING_DOWN = "rejected-shutting-down"
    EVICTED_SATURATED = "evicted-saturated"
    EVICTED_TTL_EXPIRED = "evicted-ttl-expired"
    EVICTED_NO_ENDPOINTS = "evicted-no-endpoints"
    EVICTED_SHUTTING_DOWN = "evicted-shutting-down"
    FAILED_NODE = "failed-node"
    FAILED_TIMEOUT = "failed-timeout"
