"""How is a gateway started by hand?"""

from headway.cli.logs import log_to_stderr
from headway.cli.ports import bindable_port
from headway.cli.settings import (
    ConfigOption,
    HostOption,
    PolicyOption,
    PortOption,
    SetOption,
    load,
)
from headway.errors import ConfigError


def gateway(
    config: ConfigOption = None,
    host: HostOption = None,
    port: PortOption = None,
    policy: PolicyOption = None,
    settings: SetOption = None,
) -> None:
    """Run the gateway alone, in front of the configured nodes."""
    options = {"gateway.host": host, "gateway.port": port, "gateway.policy": policy}
    loaded = load(config, settings, options)
    if not loaded.nodes:
        raise ConfigError("nodes", "none configured; `headway serve` brings its own engine")
    bindable_port(loaded.gateway.host, loaded.gateway.port, "gateway.port")
    # Loaded by this command alone: the others start sooner without it.
    from headway.gateway.serve import run_gateway

    log_to_stderr("gateway")
    run_gateway(loaded)
