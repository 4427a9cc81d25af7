"""The gateway's metrics without a gateway."""

from headway.core.outcome import Outcome
from headway.metrics.gateway import BoundedLabels, GatewayMetrics, Histogram, NodeReading, Reading

READING = Reading(
    queue_depth=(1, 2),
    queue_tokens=(10, 20),
    wait_estimates=(5, 10),
    waits_within_p90=(4, 9),
    nodes=(NodeReading(name="n0", up=True, limit=8, inflight=(3, 4)),),
    desired_replicas=2,
)


def metrics(top_tenants: int = 2) -> GatewayMetrics:
    return GatewayMetrics(
        ("critical", "bulk"),
        top_tenants=top_tenants,
        models=lambda: frozenset({"m"}),
        read=lambda: READING,
    )


def finish(one: GatewayMetrics, *, tenant: str | None, model: str | None) -> None:
    one.finished(
        Outcome.COMPLETED,
        rank=1,
        tenant=tenant,
        model=model,
        e2e_s=1.0,
        prompt_tokens=3,
        output_tokens=4,
    )


def test_a_tenant_keeps_its_label_and_the_rest_share_one() -> None:
    labels = BoundedLabels(2)
    assert [labels.label(t) for t in ("a", "b", "c", "a", "d", "b")] == [
        *("a", "b", "other", "a", "other", "b")
    ]


def test_a_bucket_holds_what_is_at_most_its_bound() -> None:
    histogram = Histogram("h", "text", ("tier",), (1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 99.0):
        histogram.observe(("x",), value)
    samples = {(s.name, s.labels.get("le")): s.value for s in histogram.collect().samples}
    assert samples[("h_bucket", "1.0")] == 2
    assert samples[("h_bucket", "2.0")] == 4
    assert samples[("h_bucket", "+Inf")] == samples[("h_count", None)] == 5
    assert samples[("h_sum", None)] == 104.0


def test_gauges_come_from_the_reading() -> None:
    page = metrics().render().decode()
    for line in (
        'headway_queue_depth{tier="bulk"} 2.0',
        'headway_queue_tokens{tier="critical"} 10.0',
        'headway_node_up{node="n0"} 1.0',
        'headway_node_limit{node="n0"} 8.0',
        "headway:desired_replicas 2.0",
        'headway_inflight{node="n0",tier="bulk"} 4.0',
    ):
        assert line in page.splitlines()


def test_labels_are_bounded() -> None:
    one = metrics()
    for index in range(100):
        finish(one, tenant=f"t{index}", model=f"model{index}")
    finish(one, tenant=None, model=None)
    finish(one, tenant="t0", model="m")
    page = one.render().decode()
    rows = [line for line in page.splitlines() if line.startswith("headway_requests_total")]
    assert len(rows) == 5
    assert any(
        'model="unknown"' in row and 'tenant="other"' in row and "98.0" in row for row in rows
    )
    assert any('model="none"' in row and 'tenant="none"' in row for row in rows)
