"""How much service has each tenant of a tier had, and where does a newcomer start?

Accounts in virtual time: cost divided by weight. A tenant's *tag* is what it was served plus what
is reserved for its requests under way. The virtual time of the tier never moves back; an account at
or below it says nothing that a new one would not, so it is forgotten once its tenant is idle.
"""

from dataclasses import dataclass, field

from headway.core.sorted_items import SortedEntries, SortedItems

MIN_WEIGHT, MAX_WEIGHT = 1e-3, 1e3
"""Service counts as cost over weight. A tiny weight drives the virtual time up, and sums of floats
that are further apart lose what the heavy are charged, and with it the order of all others."""
MAX_IDLE_TENANTS = 4096
"""Beyond this many idle tenants, those that are least in debt are forgotten."""


Queued = tuple[float, int, str, "Account", float]
"""A waiting request: key, number of its arrival, id, whose it is, and its cost by weight."""


@dataclass(slots=True, eq=False)
class Account:
    """One tenant's service, and what it has waiting."""

    tenant: str
    served: float
    reserved: float = 0.0
    num_reserved: int = 0
    line: SortedEntries[Queued] = field(default_factory=SortedEntries)
    """What it has waiting."""
    place: "Place | None" = None
    """Where it stands among the tenants that have something waiting; None: it has nothing."""


Place = tuple[float, int, Account]
"""A tag, the number of the arrival of its next request, and whose they are."""


class ServiceLedger:
    """The tenants' accounts. A change compares O(log tenants) of them.

    Reservations count in the tag but do not move the virtual time. Otherwise a prediction of
    10 000 tokens, refunded down to 100, would leave a newcomer 9 900 behind who made it.
    """

    def __init__(self) -> None:
        self.virtual_time = 0.0
        self._most_served = 0.0
        self._accounts: dict[str, Account] = {}
        self._reserved: dict[str, tuple[Account, float]] = {}
        self._idle: SortedItems[str] = SortedItems()  # by service

    def __len__(self) -> int:
        """Return how many tenants are remembered."""
        return len(self._accounts)

    def account(self, tenant: str) -> Account:
        """Return the tenant's account; a new one starts at the virtual time."""
        account = self._accounts.get(tenant)
        if account is None:
            account = self._accounts[tenant] = Account(tenant, self.virtual_time)
        return account

    def advance(self, first: Place | None) -> None:
        """Move the virtual time up to the service of who is `first` in line; None: nobody waits.

        After a lull everybody starts level with the tenant that was served most.
        """
        served = self._most_served if first is None else first[2].served
        if served > self.virtual_time:
            self.virtual_time = served
        while (idle := self._idle.first) and idle[0] <= self.virtual_time:
            self._forget(idle[2])

    def begin_waiting(self, account: Account) -> None:
        """Lift a tenant that had nothing queued to the virtual time: idling earns nothing."""
        if account.served < self.virtual_time:
            account.served = self.virtual_time
        self._idle.remove(account.tenant)

    def charge(self, account: Account, amount: float) -> None:
        """Count service; a negative amount is a refund."""
        account.served += amount
        if account.served > self._most_served:
            self._most_served = account.served
        self.rest(account)

    def reserve(self, request_id: str, tenant: str, amount: float) -> Account:
        """Count a request's prediction until `release`. Raises ValueError for a second one."""
        if request_id in self._reserved:
            raise ValueError(f"{request_id} has a reservation")
        account = self.account(tenant)
        self._reserved[request_id] = (account, amount)
        self._idle.remove(tenant)
        account.reserved += amount
        account.num_reserved += 1
        return account

    def draw(self, request_id: str, amount: float) -> float:
        """Count service of a request as far as its reservation reaches; return what is left over.

        The tag stays as it is, so this costs O(1).
        """
        reservation = self._reserved.get(request_id)
        if reservation is None:
            return amount
        account, left = reservation
        drawn = amount if amount < left else left
        self._reserved[request_id] = (account, left - drawn)
        account.reserved -= drawn
        served = account.served = account.served + drawn
        if served > self._most_served:
            self._most_served = served
        return amount - drawn

    def release(self, request_id: str, served: float = 0.0) -> Account | None:
        """Replace the rest of a request's reservation by what it was `served`.

        Returns whose it was, or None, having changed nothing, when it had none.
        """
        reservation = self._reserved.pop(request_id, None)
        if reservation is None:
            return None
        account, left = reservation
        account.num_reserved -= 1
        # Sums of floats do not cancel exactly; an empty sum is exactly 0.
        account.reserved = account.reserved - left if account.num_reserved else 0.0
        self.charge(account, served)
        return account

    def rest(self, account: Account) -> None:
        """Keep an account in use, put aside an idle one that is in debt, forget any other."""
        if account.num_reserved or account.line.first:
            return
        if account.served > self.virtual_time:
            self._idle.push(account.tenant, account.served, 0)
            if len(self._idle) > MAX_IDLE_TENANTS and self._idle.first is not None:
                self._forget(self._idle.first[2])
        else:
            self._forget(account.tenant)

    def _forget(self, tenant: str) -> None:
        self._idle.remove(tenant)
        del self._accounts[tenant]

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        total = sum(account.num_reserved for account in self._accounts.values())
        assert total == len(self._reserved), "a reservation is lost"
        for tenant, account in self._accounts.items():
            in_use = account.num_reserved > 0 or account.line.first is not None
            assert in_use != (tenant in self._idle), f"{tenant} is both in use and idle, or neither"
        self._idle.check_integrity()
