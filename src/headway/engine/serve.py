"""How does the engine run as a process, and how does it stop?

It says what it loads, measures itself, prints the latency targets that follow, and then listens,
so that `/health` answers 200 only when it can serve. The first SIGTERM drains, the second does not.
"""

import asyncio
import logging
import os
from contextlib import ExitStack
from pathlib import Path

import uvloop

from headway.config import EngineConfig
from headway.core.tier import Tiers
from headway.engine.async_engine import AsyncEngine
from headway.engine.engine import LLMEngine
from headway.engine.generation import ServerOptions
from headway.engine.server import build_app
from headway.engine.step_log import step_log
from headway.errors import ConfigError
from headway.garbage import collect_rarely
from headway.wire.listen import graceful_server, open_socket

DRAIN_S = 30.0
"""How long requests in progress get to finish after SIGTERM."""
CLOSE_S = 2.0
"""How long their connections get to close after that."""

_log = logging.getLogger(__name__)


def run_engine(config: EngineConfig, tiers: Tiers) -> None:
    """Load the model and serve it until a signal.

    Raises ModelLoadError, and ConfigError also when the address is taken.
    """
    # torch is heavy, and only this process needs it.
    import torch

    torch.set_num_threads(
        len(os.sched_getaffinity(0)) if config.threads is None else config.threads
    )
    _log.info("loading %s", config.model)
    engine = LLMEngine(
        config.model,
        max_num_seqs=config.max_num_seqs,
        max_model_len=config.max_model_len,
        enable_chunked_prefill=config.enable_chunked_prefill,
        enable_prefix_caching=config.enable_prefix_caching,
        block_size=config.block_size,
        num_kv_blocks=config.num_kv_blocks,
        kv_cache_bytes=config.kv_cache_bytes,
        max_num_batched_tokens=config.max_num_batched_tokens,
        dtype=config.dtype,
        scheduling_policy=config.scheduling_policy,
        efficiency=config.efficiency,
        min_efficiency=config.min_efficiency,
        tiers=tiers,
    )
    for line in describe(engine):
        _log.info("%s", line)
    options = ServerOptions(
        model_name=_model_name(config),
        tiers=tiers,
        max_body_bytes=config.max_body_bytes,
        max_num_queued_reqs=config.max_num_queued_reqs,
    )
    collect_rarely()
    with ExitStack() as stack:
        if config.step_log is not None:
            engine.on_step = stack.enter_context(step_log(Path(config.step_log)))
        uvloop.run(serve_engine(AsyncEngine(engine), config, options))


def describe(engine: LLMEngine) -> list[str]:
    """Return lines that say what was loaded, how fast it is, and what that promises."""
    runner = engine.runner
    tokens = runner.num_blocks * runner.block_size
    lines = [f"KV cache of {runner.num_blocks} blocks, {tokens} tokens"]
    if engine.predictor is not None:
        time = engine.predictor.coefficients
        lines.append(
            f"an iteration takes {1e3 * time.base_s:.1f} ms and {1e3 * time.token_s:.2f} ms "
            "for each token"
        )
    for tier, limits in zip(engine.options.tiers.all, engine.limits.tiers, strict=False):
        target = limits.target
        if target.ttft_s is not None and target.tpot_s is not None:
            lines.append(
                f"tier {tier.name}: TTFT {target.ttft_s:.2f} s, TPOT {1e3 * target.tpot_s:.0f} ms"
            )
    most = engine.limits.max_num_batched_tokens
    if not engine.limits.enable_chunked_prefill and most < runner.max_model_len:
        lines.append(
            f"chunked prefill is off: prompts of more than {most} tokens, max_num_batched_tokens, "
            "are iterations of their own, and no floor counts for them"
        )
    return lines


def _model_name(config: EngineConfig) -> str:
    if config.served_model_name is not None:
        return config.served_model_name
    return Path(config.model).name.removesuffix(".gguf")


async def serve_engine(
    engine: AsyncEngine, config: EngineConfig, options: ServerOptions, *, drain_s: float = DRAIN_S
) -> None:
    """Serve an engine that is ready until a signal has been obeyed. Raises ConfigError."""
    try:
        listener = open_socket(config.host, config.port)
    except OSError as error:
        reason = f"cannot listen on {config.host}:{config.port}: {error.strerror}"
        raise ConfigError("engine.port", reason) from error
    loop = asyncio.get_running_loop()
    drain: list[asyncio.Task[None]] = []

    def begin_drain() -> None:
        """Take nobody new; who is not done in time is told so before the connection closes."""
        drain.append(loop.create_task(engine.stop(drain_s)))

    server = graceful_server(
        build_app(engine, options),
        drain_s=drain_s + CLOSE_S,
        on_exit=lambda: loop.call_soon_threadsafe(begin_drain),
    )
    try:
        _log.info("listening on port %d", listener.getsockname()[1])
        await server.serve(sockets=[listener])
    finally:
        listener.close()
        await engine.stop()
