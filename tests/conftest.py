"""Which settings do all property tests share?

How long an example takes says nothing about what it shows, and depends on what else the machine
does; so there is no deadline, and no complaint that drawing examples is slow.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("headway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headway")
