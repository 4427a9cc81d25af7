"""headway: request-level quality of service for LLM serving."""

from typing import Any

__version__ = "0.1.0"

__all__ = ["LLM", "LLMEngine", "SamplingParams", "__version__"]


def __getattr__(name: str) -> Any:
    """Load the engine's names on first use, so that the base install needs no torch."""
    if name in {"LLM", "LLMEngine", "SamplingParams"}:
        from headway import engine

        return getattr(engine, name)
    raise AttributeError(f"module 'headway' has no attribute {name!r}")
