"""How does the list of models look?"""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType


class ModelCard(Struct, frozen=True):
    """One model that is served."""

    id: str
    created: int
    owned_by: str
    object: Literal["model"] = "model"
    max_model_len: int | UnsetType = UNSET
    """vLLM's: the longest prompt and answer together, in tokens."""


class ModelList(Struct, frozen=True):
    """`GET /v1/models`."""

    data: list[ModelCard]
    object: Literal["list"] = "list"
