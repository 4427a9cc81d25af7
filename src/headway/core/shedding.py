"""Which tenants does an overloaded tier turn away?

Random refusals hurt each task of each tenant; refusing whole tenants lets the others finish theirs
(DAGOR, SoCC'18). A *level* falls while the tier's requests wait longer than its TTFT target, and
rises slowly once they do not. A tenant is turned away when its hash stands above the level; the
hashes rotate, so that it is not always the same one.
"""

from hashlib import blake2b

INTERVAL_S = 1.0
DECREASE = 0.95
"""Factor on the level for each interval in which the mean wait was above the target."""
INCREASE_PER_S = 0.01
MIN_LEVEL = 0.05
EPOCH_S = 3600.0
"""How long the tenants keep their places."""


class Level:
    """The share of tenants, from `MIN_LEVEL` to 1, of which a tier takes everything."""

    def __init__(self, target_s: float) -> None:
        self.value = 1.0
        self._target_s = target_s
        self._since: float | None = None
        self._waited_s = 0.0
        self._count = 0

    def waited(self, wait_s: float, now: float) -> None:
        """Count a wait in the queue that ended with a dispatch."""
        self._waited_s += wait_s
        self._count += 1
        if self._since is None:
            self._since = now
        if now - self._since >= INTERVAL_S:
            self._move(self._waited_s / self._count, now)

    def lull(self, now: float) -> None:
        """Nothing waits: what time has passed since the last interval was no overload."""
        if self._count and self._since is not None and now - self._since >= INTERVAL_S:
            self._move(self._waited_s / self._count, self._since + INTERVAL_S)
        if self._count == 0:
            self._move(0.0, now)

    def turns_away(self, tenant: str, now: float) -> bool:
        """Return whether the tenant stands above the level."""
        return self.value < 1.0 and _place(tenant, int(now // EPOCH_S)) >= self.value

    def _move(self, mean_s: float, now: float) -> None:
        elapsed_s = 0.0 if self._since is None else max(0.0, now - self._since)
        if mean_s > self._target_s:
            self.value = max(MIN_LEVEL, DECREASE * self.value)
        else:
            self.value = min(1.0, self.value + INCREASE_PER_S * elapsed_s)
        self._since, self._waited_s, self._count = now, 0.0, 0


def _place(tenant: str, epoch: int) -> float:
    """Return where the tenant stands in [0, 1) during the epoch, the same in every process."""
    digest = blake2b(f"{epoch}:{tenant}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
