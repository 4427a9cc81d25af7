"""Are tiers found by each of their names, and are impossible ones refused by key?"""

from dataclasses import replace
from pathlib import Path

import pytest

from headway.core.tier import DEFAULT_TIERS, Tier, Tiers, node_priority
from headway.errors import ConfigError

CRITICAL, NORMAL, BULK = DEFAULT_TIERS


@pytest.mark.parametrize(
    ("name", "tier"),
    [
        ("critical", CRITICAL),
        ("high", CRITICAL),
        ("normal", NORMAL),
        ("medium", NORMAL),
        ("bulk", BULK),
        ("low", BULK),
        ("HIGH ", None),
        ("high,bulk", None),
        ("0", None),
        ("", None),
    ],
)
def test_a7_names_mean_one_tier_or_none_never_the_top_one(name: str, tier: Tier | None) -> None:
    assert Tiers().by_name(name) is tier


@pytest.mark.parametrize(
    ("value", "tier"),
    [
        ("priority", CRITICAL),
        ("fast", CRITICAL),
        ("scale", CRITICAL),
        ("default", NORMAL),
        ("flex", BULK),
        ("auto", None),
        ("critical", None),
    ],
)
def test_service_tiers_of_openai(value: str, tier: Tier | None) -> None:
    assert Tiers().by_service_tier(value) is tier


def test_what_is_answered_is_what_openai_would_answer() -> None:
    assert [tier.service_tier for tier in DEFAULT_TIERS] == ["priority", "default", "flex"]
    assert replace(NORMAL, service_tiers=()).service_tier == "normal"


@pytest.mark.parametrize(
    ("priority", "tier"),
    [(-100, CRITICAL), (-1, CRITICAL), (0, NORMAL), (1, BULK), (999_999_999_999, BULK)],
)
def test_vllm_priorities_run_the_same_way(priority: int, tier: Tier) -> None:
    assert Tiers().by_priority(priority) is tier


def test_a_tiers_own_priority_means_that_tier() -> None:
    assert [Tiers().by_priority(node_priority(rank)) for rank in range(3)] == list(DEFAULT_TIERS)


def test_ranks_outside_do_not_exist() -> None:
    assert len(Tiers()) == 3
    assert Tiers().by_rank(2) is BULK
    for rank in (-1, 3):
        with pytest.raises(IndexError):
            Tiers().by_rank(rank)


def tiers_of(count: int) -> tuple[Tier, ...]:
    """Return plain tiers without floors."""
    return tuple(Tier(name=f"t{rank}", rank=rank) for rank in range(count))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_two_to_four_tiers_are_accepted(count: int) -> None:
    assert len(Tiers(tiers_of(count))) == count


@pytest.mark.parametrize(
    ("tiers", "path", "reason"),
    [
        (tiers_of(1), "tiers", "2 to 4 tiers, got 1"),
        (tiers_of(5), "tiers", "2 to 4 tiers, got 5"),
        ((CRITICAL, replace(NORMAL, rank=2)), "tiers[1].rank", "must be 1"),
        ((replace(CRITICAL, floor=-0.1), NORMAL), "tiers[0].floor", "from 0 to below 1"),
        ((CRITICAL, replace(NORMAL, floor=1.0)), "tiers[1].floor", "from 0 to below 1"),
        ((CRITICAL, replace(NORMAL, floor=float("nan"))), "tiers[1].floor", "from 0 to below 1"),
        ((replace(CRITICAL, reserve=1.5), NORMAL), "tiers[0].reserve", "from 0 to below 1"),
        ((CRITICAL, replace(NORMAL, queue_timeout_s=0.0)), "tiers[1].queue_timeout_s", "above 0"),
        ((CRITICAL, replace(NORMAL, max_queued=0)), "tiers[1].max_queued", "at least 1"),
        (
            (CRITICAL, replace(NORMAL, max_queued_tokens=0)),
            "tiers[1].max_queued_tokens",
            "at least 1",
        ),
        ((CRITICAL, replace(NORMAL, name="high")), "tiers[1].name", "named twice"),
        ((CRITICAL, replace(NORMAL, service_tiers=("fast",))), "tiers", "claimed twice"),
        (
            (CRITICAL, replace(NORMAL, floor=0.5), replace(BULK, floor=0.5)),
            "tiers",
            "floors add up to 1",
        ),
        (
            (replace(CRITICAL, reserve=0.5), replace(NORMAL, reserve=0.5), BULK),
            "tiers",
            "reserves add up to 1",
        ),
    ],
)
def test_what_cannot_be_scheduled_is_refused_by_key(
    tiers: tuple[Tier, ...], path: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        Tiers(tiers)
    assert refused.value.path == path


def test_the_defaults_are_those_of_the_documented_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
    rows = {
        cells[0].strip(): [cell.strip() for cell in cells[1:4]]
        for line in page.splitlines()
        if line.startswith("| ") and len(cells := line.strip("|").split("|")) == 4
    }
    for column, tier in enumerate(DEFAULT_TIERS):
        assert rows["tier"][column] == tier.name
        assert rows["rank"][column] == str(tier.rank)
        names = ", ".join((tier.name, *tier.aliases))
        assert rows["`X-Priority`"][column] == names
        assert rows["`service_tier` asked"][column] == ", ".join(tier.service_tiers)
        assert rows["`service_tier` answered"][column] == tier.service_tier
        assert rows["floor"][column] == f"{tier.floor:.0%}"
        assert rows["time limit in the queue"][column] == (
            "none" if tier.queue_timeout_s is None else f"{tier.queue_timeout_s:g} s"
        )
        assert rows["most requests queued"][column] == f"{tier.max_queued:,}"
        assert rows["most tokens queued"][column] == f"{tier.max_queued_tokens:,}"
        assert rows["reserve"][column] == f"{tier.reserve:.0%}"
        assert rows["may be preempted"][column] == ("yes" if tier.preemptible else "no")
        assert rows["price factor"][column] == f"{tier.price_factor}"
        target = tier.target
        promised = [
            "none" if seconds is None else f"{seconds:g} s"
            for seconds in (target.ttft_s, target.tpot_s, target.gap_s)
        ]
        assert rows["TTFT / TPOT / longest gap"][column] == " / ".join(promised)
