"""How do gateway and engine run together under one command?"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.check_config import describe_tier
from headway.cli.ports import bindable_port
from headway.cli.settings import (
    ConfigOption,
    HostOption,
    ModelOption,
    PolicyOption,
    SetOption,
    find_file,
    overrides,
)
from headway.cli.supervisor import ChildSpec, Supervisor
from headway.config import Config, load_config
from headway.errors import ConfigError

NODE_NAME = "embedded"
_DRAIN_MARGIN_S = 15.0
"""Beyond `drain_s`: telling what is cut off, and closing connections."""
_ENGINE_STOP_S = 35.0
"""Beyond what the engine gives its own requests, which the gateway has drained by then."""

ServePortOption = Annotated[
    int | None, typer.Option("--port", envvar="PORT", help="Port to listen on; 0: any free.")
]


def serve(
    config: ConfigOption = None,
    host: HostOption = None,
    port: ServePortOption = None,
    model: ModelOption = None,
    policy: PolicyOption = None,
    settings: SetOption = None,
) -> int:
    """Run the gateway, and the embedded engine unless nodes are configured."""
    file = find_file(config)
    options = {
        "gateway.host": host,
        "gateway.port": port,
        "gateway.policy": policy,
        "engine.model": model,
        "engine.scheduling_policy": policy,
    }
    loaded = load_config(file, overrides(settings, options))
    if loaded.nodes and model is not None:
        raise ConfigError("--model", "without effect: the file configures nodes of its own")
    gateway_port = bindable_port(loaded.gateway.host, loaded.gateway.port, "gateway.port")
    common = [f"--config={file}"] if file is not None else []
    common += [f"--set={pair}" for pair in settings or ()]
    chosen: dict[str, object] = {**options, "gateway.port": gateway_port}
    specs = []
    if not loaded.nodes:
        engine_port = _engine_port(loaded, gateway_port)
        chosen["engine.port"] = engine_port
        url = f"http://{_url_host(loaded.engine.host)}:{engine_port}"
        chosen["nodes"] = [{"name": NODE_NAME, "url": url}]
        specs.append(_child("engine", common, chosen, url, _ENGINE_STOP_S))
    url = f"http://{_url_host(loaded.gateway.host)}:{gateway_port}"
    stop_s = loaded.gateway.drain_s + _DRAIN_MARGIN_S
    specs.append(_child("gateway", common, chosen, url, stop_s))
    typer.echo(f"headway: starting {' and '.join(spec.name for spec in specs)} ...")
    supervisor = Supervisor(specs, say=_say, on_ready=lambda: typer.echo(banner(loaded, url, file)))
    return asyncio.run(supervisor.run())


def banner(config: Config, url: str, file: Path | None) -> str:
    """Return what is said once everything can serve."""
    lines = [
        "",
        f"headway is ready on {url} (policy {config.gateway.policy})",
        "  settings: " + (str(file) if file is not None else "the defaults, no file"),
    ]
    # The embedded engine measures which targets this machine can keep, and has just printed them.
    known = bool(config.nodes)
    lines += [f"  tier {describe_tier(tier, targets=known)}" for tier in config.tiers.all]
    if not known:
        lines.append("  latency targets: what the engine measured here, in its lines above")
    authorization = ""
    if config.open_mode:
        lines.append(
            "  OPEN MODE: no API keys, so everyone on this machine may use every tier. "
            "Set `keys` before anybody else can reach it."
        )
    else:
        authorization = " -H 'Authorization: Bearer YOUR_KEY'"
    lines += [
        "",
        f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json'{authorization} \\",
        "    -H 'X-Priority: critical' \\",
        f'    -d \'{{"model": "{_model_name(config)}", "messages": '
        '[{"role": "user", "content": "Say hello."}]}\'',
        "",
    ]
    return "\n".join(lines)


def _model_name(config: Config) -> str:
    return "MODEL" if config.nodes else config.engine.public_name


def _engine_port(config: Config, gateway_port: int) -> int:
    host, port = config.engine.host, config.engine.port
    if port == gateway_port:
        port = 0
    try:
        return bindable_port(host, port, "engine.port")
    except ConfigError:
        # Another headway on this machine; only our own gateway needs to know the port.
        return bindable_port(host, 0, "engine.port")


def _child(
    name: str, common: list[str], chosen: Mapping[str, object], url: str, stop_timeout_s: float
) -> ChildSpec:
    # JSON is YAML, and quotes what a file name may hold.
    given = {key: value for key, value in chosen.items() if value is not None}
    settings = [f"--set={key}={json.dumps(value)}" for key, value in given.items()]
    return ChildSpec(
        name=name,
        argv=(sys.executable, "-m", "headway", name, *common, *settings),
        health_url=f"{url}/health",
        stop_timeout_s=stop_timeout_s,
    )


def _url_host(host: str) -> str:
    """Return where this machine reaches a server that listens on `host`."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{reachable}]" if ":" in reachable else reachable


def _say(message: str) -> None:
    sys.stderr.write(f"headway: {message}\n")
    sys.stderr.flush()
