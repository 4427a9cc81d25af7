"""How much service has each tenant of a tier had, and where does a newcomer start?

Accounts in virtual time: cost divided by weight. A tenant's *tag* is what it was served plus what
is reserved for its requests under way. The virtual time of the tier never moves back; an account at
or below it says nothing that a new one would not, so it is forgotten once its tenant is idle.
"""

from dataclasses import dataclass

from headway.core.sorted_items import SortedItems

MAX_IDLE_TENANTS = 4096
"""Beyond this many idle tenants, those that are least in debt are forgotten."""


@dataclass(slots=True)
class _Account:
    served: float
    reserved: float = 0.0
    num_reserved: int = 0
    waiting: bool = False


@dataclass(slots=True)
class _Reservation:
    account: _Account
    tenant: str
    amount: float


class ServiceLedger:
    """The tenants' accounts. Every change costs O(log tenants).

    Reservations count in the tag but do not move the virtual time. Otherwise a prediction of
    10 000 tokens, refunded down to 100, would leave a newcomer 9 900 behind who made it.
    """

    def __init__(self) -> None:
        self.virtual_time = 0.0
        self._most_served = 0.0
        self._accounts: dict[str, _Account] = {}
        self._reserved: dict[str, _Reservation] = {}
        self._idle: SortedItems[str] = SortedItems()  # by service
        self._sequence = 0

    def __len__(self) -> int:
        """Return how many tenants are remembered."""
        return len(self._accounts)

    def tag(self, tenant: str) -> float:
        """Return where the tenant stands in the order of service: the lowest tag goes next."""
        account = self._account(tenant)
        return account.served + account.reserved

    def advance(self, first: str | None) -> None:
        """Move the virtual time up to the service of `first`, who goes next; None: nobody waits.

        After a lull everybody starts level with the tenant that was served most.
        """
        served = self._most_served if first is None else self._account(first).served
        self.virtual_time = max(self.virtual_time, served)
        while (idle := self._idle.peek()) and (
            idle[0] <= self.virtual_time or len(self._idle) > MAX_IDLE_TENANTS
        ):
            self._idle.pop()
            del self._accounts[idle[2]]

    def begin_waiting(self, tenant: str) -> None:
        """Lift a tenant that had nothing queued to the virtual time: idling earns nothing."""
        account = self._account(tenant)
        account.served = max(account.served, self.virtual_time)
        account.waiting = True
        self._settle(tenant, account)

    def end_waiting(self, tenant: str) -> None:
        """Note that the tenant has nothing queued any more."""
        account = self._accounts[tenant]
        account.waiting = False
        self._settle(tenant, account)

    def charge(self, tenant: str, amount: float) -> None:
        """Count service; a negative amount is a refund."""
        account = self._account(tenant)
        account.served += amount
        self._most_served = max(self._most_served, account.served)
        self._settle(tenant, account)

    def reserve(self, request_id: str, tenant: str, amount: float) -> None:
        """Count a request's prediction until `release`. Raises ValueError for a second one."""
        if request_id in self._reserved:
            raise ValueError(f"{request_id} has a reservation")
        account = self._account(tenant)
        self._reserved[request_id] = _Reservation(account, tenant, amount)
        account.reserved += amount
        account.num_reserved += 1
        self._settle(tenant, account)

    def draw(self, request_id: str, amount: float) -> float:
        """Count service of a request as far as its reservation reaches; return what is left over.

        The tag stays as it is, so this costs O(1).
        """
        reservation = self._reserved.get(request_id)
        if reservation is None:
            return amount
        drawn = min(amount, reservation.amount)
        reservation.amount -= drawn
        account = reservation.account
        account.reserved -= drawn
        account.served += drawn
        if account.served > self._most_served:
            self._most_served = account.served
        return amount - drawn

    def release(self, request_id: str) -> str | None:
        """Drop the rest of a request's reservation; return its tenant, or None if it had none."""
        reservation = self._reserved.pop(request_id, None)
        if reservation is None:
            return None
        account, tenant = reservation.account, reservation.tenant
        account.num_reserved -= 1
        # Sums of floats do not cancel exactly; an empty sum is exactly 0.
        account.reserved = account.reserved - reservation.amount if account.num_reserved else 0.0
        self._settle(tenant, account)
        return tenant

    def _account(self, tenant: str) -> _Account:
        if tenant not in self._accounts:
            self._accounts[tenant] = _Account(served=self.virtual_time)
        return self._accounts[tenant]

    def _settle(self, tenant: str, account: _Account) -> None:
        """Keep an account in use, park an idle one that is in debt, forget any other."""
        if account.waiting or account.num_reserved:
            self._idle.remove(tenant)
        elif account.served > self.virtual_time:
            self._sequence += 1
            self._idle.push(tenant, account.served, self._sequence)
        else:
            self._idle.remove(tenant)
            del self._accounts[tenant]

    def check_integrity(self) -> None:
        """Raise AssertionError naming what is off. Linear; for tests."""
        total = sum(account.num_reserved for account in self._accounts.values())
        assert total == len(self._reserved), "a reservation is lost"
        for tenant, account in self._accounts.items():
            in_use = account.waiting or account.num_reserved > 0
            assert in_use != (tenant in self._idle), f"{tenant} is both in use and idle, or neither"
        self._idle.check_integrity()
