"""Does the documentation tell what the schema says, and does the example load?"""

from pathlib import Path

import pytest

from headway.config import load_config
from headway.config.describe import SECTIONS, markdown_table, settings
from headway.config.source import read_yaml
from headway.core.tier import Tiers

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "headway.yaml"
ENVIRON = {"HEADWAY_KEY_SHOP": "shop-secret", "HEADWAY_KEY_NIGHTLY": "nightly-secret"}


@pytest.mark.parametrize("section", SECTIONS)
def test_documentation_has_exactly_the_settings_of_each_section(section: str) -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    documented = text.partition(f"## `{section}`\n")[2].partition("\n## ")[0]
    assert markdown_table(SECTIONS[section]) in documented


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_says_what_it_means(section: str) -> None:
    for setting in settings(SECTIONS[section]):
        assert setting.meaning.endswith("."), setting
        assert setting.default, setting


def test_example_names_every_setting_and_keeps_the_defaults() -> None:
    raw = read_yaml(EXAMPLE)
    for section in ("gateway", "engine"):
        assert list(raw[section]) == [s.name for s in settings(SECTIONS[section])]
    tier_keys = {key for tier in raw["tiers"] for key in tier}
    assert tier_keys == {s.name for s in settings(SECTIONS["tiers[]"])}
    assert {key for item in raw["keys"] for key in item} == {
        s.name for s in settings(SECTIONS["keys[]"])
    }
    config, defaults = load_config(EXAMPLE, environ=ENVIRON), load_config(None)
    assert config.gateway == defaults.gateway
    assert config.engine == defaults.engine
    assert config.tiers == Tiers()
    assert [key.key for key in config.keys] == list(ENVIRON.values())
    assert not config.open_mode


def test_repr_of_a_key_does_not_show_the_secret() -> None:
    config = load_config(EXAMPLE, environ=ENVIRON)
    assert "shop" in repr(config)
    assert "secret" not in repr(config)
