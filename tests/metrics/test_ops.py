"""The files in `ops/` ask for metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from nexo.telemetry.families import FAMILIES, Family

OPS = Path(__file__).parents[2] / "ops"
METRIC = re.compile(r"\b(?:nexo|process)_[a-z_]+\b")
LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)\s*\"")


def expressions() -> list[tuple[str, str]]:
    dashboard = json.loads((OPS / "grafana/nexo.json").read_text(encoding="utf-8"))
    found = [
        (f"panel {panel['title']}", target["expr"])
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
    found += [
        (f"variable {each['name']}", each["query"]["query"])
        for each in dashboard["templating"]["list"]
        if each["type"] == "query"
    ]
    alerts = yaml.safe_load((OPS / "prometheus/alerts.yml").read_text(encoding="utf-8"))
    found += [
        (f"alert {rule['alert']}", rule["expr"])
        for group in alerts["groups"]
        for rule in group["rules"]
    ]
    return found


def family_of(metric: str) -> Family | None:
    found = FAMILIES.get(metric)
    if found is not None:
        return found if found.kind != "histogram" else None
    for suffix in ("_bucket", "_sum", "_count"):
        whole = FAMILIES.get(metric.removesuffix(suffix))
        if metric.endswith(suffix) and whole is not None and whole.kind == "histogram":
            return whole
    return None


@pytest.mark.parametrize(("where", "expression"), expressions(), ids=lambda text: str(text)[:40])
def test_every_metric_and_label_exists(where: str, expression: str) -> None:
    metrics = METRIC.findall(expression)
    assert metrics, f"{where} asks for no metric"
    families = []
    for metric in metrics:
        family = family_of(metric)
        assert family is not None, f"{where} asks for {metric}, which is not told"
        families.append(family)
    known = {label for family in families for label in (*family.labels, "le")}
    for label in LABEL.findall(expression):
        assert label in known, f"{where} asks for the label {label}"


def test_the_check_can_fail() -> None:
    with pytest.raises(AssertionError, match="nexo_no_such_thing"):
        test_every_metric_and_label_exists("here", "rate(nexo_no_such_thing[5m])")
    with pytest.raises(AssertionError, match="the label quue"):
        test_every_metric_and_label_exists("here", 'nexo_queue_depth{quue="a"}')
    assert family_of("nexo_commit_seconds") is None, "a histogram has no samples of its own name"
