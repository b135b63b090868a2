"""The Grafana dashboard asks only for what is exported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest

from howdah.job import Job
from howdah.observe.prometheus import Metrics
from howdah.observe.sampler import ConsumerLag, ConsumerPosition, LogPosition, Queue, QueueDepth
from howdah.outcome import Ack, Outcome
from howdah.postgres.database import Database
from observe.scraping import samples, status

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "howdah.json"
NAME = re.compile(r"\bhowdah_[a-z_]+")


def test_every_metric_of_the_dashboard_is_exported_and_every_exported_one_is_shown(monkeypatch: Any) -> None:
    monkeypatch.setattr(QueueDepth, "queues", [Queue("mail", 1, 2, 3, 4.0)])
    standing = LogPosition(9, 8, 0.5, [ConsumerPosition("Billing", 1, 2.0, False, False, False, 0)])
    monkeypatch.setattr(ConsumerLag, "latest", standing)
    database = Database("postgresql://")
    metrics = Metrics(status(leads=lambda: True), QueueDepth(database), ConsumerLag(database, dead=30.0))
    job = Job(1, "mail", "send", 1, 5, 1, b"{}", waited=0.1)
    metrics.on_event("job.claim", {"jobs": [job]})
    metrics.on_event("job.ack", {"acks": [Ack(job, Outcome.OK, 10)]})
    metrics.on_event("pg.connect", {"role": "ack", "again": True})
    metrics.on_event("table.reset", {"table": "uploads", "reset": 1, "failed": 1})
    metrics.on_event("hook.fail", {"kind": "uploads", "hook": "after_execute", "error": ValueError()})
    batch = {"consumer": "Billing", "part": 0, "events": 1, "position": 8, "seconds": 0.1}
    metrics.on_event("consumer.batch", batch)
    metrics.on_event("consumer.fail", {**batch, "failures": 1, "error": ValueError(), "delay": 1.0})
    exported = {name for name, _ in samples(generate_latest(metrics).decode())}

    asked = {name for query in _queries(json.loads(DASHBOARD.read_text())) for name in NAME.findall(query)}
    assert asked <= exported
    families = {re.sub("_(bucket|sum|count)$", "", name) for name in exported}
    assert families == {re.sub("_(bucket|sum|count)$", "", name) for name in asked}


def test_panels_have_a_place_and_an_id_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def _queries(dashboard: dict[str, Any]) -> list[str]:
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    variables = [each["definition"] for each in dashboard["templating"]["list"] if "definition" in each]
    return panels + variables
