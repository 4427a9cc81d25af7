"""How does a server say that it is well?"""

from typing import Literal

from msgspec import Struct


class Health(Struct, frozen=True):
    """The body of `/health` and `/ready` with status 200."""

    status: Literal["ok"] = "ok"
