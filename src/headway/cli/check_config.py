"""Is a configuration file right, and what does it amount to?"""

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.settings import SetOption, find_file, overrides
from headway.config import Config, load_config
from headway.config.describe import SECTIONS, markdown_table
from headway.core.tier import Tier
from headway.errors import ConfigError

FileArgument = Annotated[
    Path | None, typer.Argument(help="Configuration file; ./headway.yaml if it is there.")
]


def check_config(
    file: FileArgument = None,
    settings: SetOption = None,
    reference: bool = typer.Option(False, "--reference", help="Print every setting instead."),
) -> None:
    """Check a configuration file and print what it amounts to."""
    if reference:
        for name, schema in SECTIONS.items():
            typer.echo(f"## `{name}`\n\n{markdown_table(schema)}\n")
        return
    found = find_file(file)
    if found is None:
        raise ConfigError("headway.yaml", "no such file here; name one")
    config = load_config(found, overrides(settings, {}))
    typer.echo(f"{found}: good")
    typer.echo(describe(config))


def describe(config: Config) -> str:
    """Return the configuration in a few lines, without secrets."""
    gateway, engine = config.gateway, config.engine
    lines = [f"gateway  {gateway.host}:{gateway.port}, policy {gateway.policy}"]
    if config.nodes:
        lines += [f"node     {node.name} at {node.url}" for node in config.nodes]
    else:
        lines.append(f"engine   {engine.model}, at most {engine.max_num_seqs} sequences at once")
    lines += [f"tier     {describe_tier(tier)}" for tier in config.tiers.all]
    if config.open_mode:
        lines.append("keys     none: open mode, on loopback only")
    for key in config.keys:
        lines.append(f"key      {key.tenant}, up to {key.highest_tier}, weight {key.weight:g}")
    return "\n".join(lines)


def describe_tier(tier: Tier, *, targets: bool = True) -> str:
    """Return what a tier promises, in one line; its latency targets only where they are known."""
    parts = [f"floor {tier.floor:.0%}"] if tier.floor else []
    if targets and tier.target.ttft_s is not None:
        parts.append(f"first token within {tier.target.ttft_s:g} s")
    if tier.queue_timeout_s is None:
        parts.append("waits for as long as it takes")
    else:
        parts.append(f"waits at most {tier.queue_timeout_s:g} s")
    return f"{tier.name}: {', '.join(parts)}"
