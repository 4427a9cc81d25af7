"""Are the settings in vLLM's additional_config read, and wrong ones named?"""

from typing import Any

import pytest

from headway.errors import ConfigError
from headway.vllm_plugin.settings import Settings, read_settings


@pytest.mark.parametrize("config", [{}, {"other": 1}, None, object(), {"headway": {}}])
def test_nothing_said_means_the_defaults(config: Any) -> None:
    assert read_settings(config) == Settings()


def test_tiers_are_changed_by_name() -> None:
    given = {"tiers": {"bulk": {"floor": 0.1}, "critical": {"gap_s": None, "preemptible": True}}}
    settings = read_settings({"headway": {**given, "efficiency": 0.9}})
    critical, normal, bulk = settings.tiers.all
    assert (bulk.floor, critical.preemptible, critical.target.gap_s) == (0.1, True, None)
    assert critical.target.ttft_s == 0.5
    assert normal == Settings().tiers.by_rank(1)
    assert settings.efficiency == 0.9


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ([], "headway"),
        ({"nope": 1}, "headway.nope"),
        ({"tiers": []}, "headway.tiers"),
        ({"tiers": {"gold": {}}}, "headway.tiers.gold"),
        ({"tiers": {"bulk": 1}}, "headway.tiers.bulk"),
        ({"tiers": {"bulk": {"rank": 0}}}, "headway.tiers.bulk.rank"),
        ({"tiers": {"bulk": {"floor": "x"}}}, "headway.tiers.bulk.floor"),
        ({"tiers": {"bulk": {"floor": 2.0}}}, "tiers[2].floor"),
        ({"tiers": {"bulk": {"tpot_s": 0}}}, "headway.tiers.bulk.tpot_s"),
        ({"tiers": {"bulk": {"tpot_s": 10**400}}}, "headway.tiers.bulk.tpot_s"),
        ({"tiers": {"bulk": {"preemptible": 1}}}, "headway.tiers.bulk.preemptible"),
        ({"max_preemptions": 0}, "headway.max_preemptions"),
        ({"max_preemptions": True}, "headway.max_preemptions"),
        ({"efficiency": 1}, "headway.efficiency"),
        ({"efficiency": 0.5}, "headway.min_efficiency"),
        ({"ttft_share": "x"}, "headway.ttft_share"),
    ],
)
def test_what_is_wrong_is_named(given: Any, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings({"headway": given})
    assert caught.value.path == path
