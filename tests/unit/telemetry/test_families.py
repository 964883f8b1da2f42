"""The text format, read back by Prometheus' own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from nexo.telemetry.families import FAMILIES, QUEUE_DEPTH, WAIT, header, histogram, sample
from nexo.telemetry.meters import Histogram


def test_samples_come_back() -> None:
    text = header(QUEUE_DEPTH) + sample(QUEUE_DEPTH, 3, "orders") + sample(QUEUE_DEPTH, 0.25, "b")
    (family,) = text_string_to_metric_families(text)
    assert (family.name, family.type) == ("nexo_queue_depth", "gauge")
    assert [(each.labels, each.value) for each in family.samples] == [
        ({"queue": "orders"}, 3.0),
        ({"queue": "b"}, 0.25),
    ]


def test_hostile_labels_stay_labels() -> None:
    name = 'a"} 1\n\\n{'
    (family,) = text_string_to_metric_families(header(QUEUE_DEPTH) + sample(QUEUE_DEPTH, 1, name))
    assert family.samples[0].labels == {"queue": name}


def test_a_histogram_comes_back() -> None:
    values = Histogram((0.5, 2.0))
    values.add(0.1, 2)
    values.add(1.0)
    values.add(9.0)
    (family,) = text_string_to_metric_families(header(WAIT) + histogram(WAIT, values, "orders"))
    found = {
        (each.name.removeprefix(WAIT.name), each.labels.get("le")): each.value
        for each in family.samples
    }
    assert found == {
        ("_bucket", "0.5"): 2.0,
        ("_bucket", "2.0"): 3.0,
        ("_bucket", "+Inf"): 4.0,
        ("_sum", None): 10.2,
        ("_count", None): 4.0,
    }


def test_names_follow_prometheus_rules() -> None:
    for name, family in FAMILIES.items():
        assert (family.kind == "counter") == name.endswith("_total"), name
        assert family.help.endswith("."), name
