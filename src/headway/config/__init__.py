"""Settings: one `headway.yaml`, checked as a whole before anything starts."""

from headway.config.load import load_config
from headway.config.schema import (
    Config,
    EngineConfig,
    GatewayConfig,
    KeyConfig,
    NamedTierConfig,
    NodeConfig,
    TierConfig,
)

__all__ = [
    "Config",
    "EngineConfig",
    "GatewayConfig",
    "KeyConfig",
    "NamedTierConfig",
    "NodeConfig",
    "TierConfig",
    "load_config",
]
