"""headway's own engine: paged KV, continuous batching, quality of service at every iteration."""

from headway.engine.async_engine import AsyncEngine
from headway.engine.byte_tokenizer import ByteTokenizer
from headway.engine.engine import LLMEngine
from headway.engine.fake_runner import FakeRunner
from headway.engine.llm import LLM
from headway.engine.options import EngineOptions
from headway.engine.request import (
    Choice,
    Completion,
    EngineRequest,
    FinishReason,
    Generation,
    RequestOutput,
)
from headway.engine.sampling_params import SamplingParams
from headway.engine.stats import EngineStats

__all__ = [
    "LLM",
    "AsyncEngine",
    "ByteTokenizer",
    "Choice",
    "Completion",
    "EngineOptions",
    "EngineRequest",
    "EngineStats",
    "FakeRunner",
    "FinishReason",
    "Generation",
    "LLMEngine",
    "RequestOutput",
    "SamplingParams",
]
