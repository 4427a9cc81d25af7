"""How is an engine started by hand?"""

from headway.cli.logs import log_to_stderr
from headway.cli.ports import bindable_port
from headway.cli.settings import (
    ConfigOption,
    HostOption,
    ModelOption,
    PolicyOption,
    PortOption,
    SetOption,
    load,
)


def engine(
    config: ConfigOption = None,
    host: HostOption = None,
    port: PortOption = None,
    model: ModelOption = None,
    policy: PolicyOption = None,
    settings: SetOption = None,
) -> None:
    """Run the embedded engine alone, as a node."""
    options = {
        "engine.host": host,
        "engine.port": port,
        "engine.model": model,
        "engine.scheduling_policy": policy,
    }
    loaded = load(config, settings, options)
    bindable_port(loaded.engine.host, loaded.engine.port, "engine.port")
    # Needs torch, which a gateway's machine may lack.
    from headway.engine.serve import run_engine

    log_to_stderr("engine")
    run_engine(loaded.engine, loaded.tiers)
