"""The dashboard's panels of drills, in a real Prometheus."""

import json
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from dev.local.ports import LOOPBACK
from dev.local.prometheus import PrometheusServer
from dev.local.waiting import wait_for
from tests.http_servers import serving
from tests.monitoring.files import DASHBOARD
from tests.tsctl.drill.test_report import comparison, report_of
from ts_common.model import TopicPartition
from tsctl.drill.metrics import GAUGES, values_of

SECONDS = 60


class _Text(SimpleHTTPRequestHandler):
    """Serves the files of a directory, as node_exporter its text files."""

    def guess_type(self, path: object) -> str:
        del path
        return "text/plain; version=0.0.4"


def test_each_panel_of_drills_shows_the_metrics_of_one(tmp_path: Path) -> None:
    """For a drill without a finding, whose file Prometheus scrapes; and no gauge of a drill lacks a panel."""
    report = report_of(restored_bytes=100, planned_bytes=100)
    report.add(TopicPartition("orders", 0), "read_uncommitted", 0, 9, comparison(9, report.began))
    GAUGES.write(tmp_path / "drill.prom", report.cluster, values_of(report, failed=False), pytest.fail)
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [each["expr"] for panel in panels for each in panel.get("targets", ()) if "ts_drill_" in each["expr"]]
    assert {family.name for family in GAUGES.families() if not any(family.name in each for each in queries)} == set()
    with serving(partial(_Text, directory=tmp_path)) as port:
        jobs = [
            {
                "job_name": "drill",
                "scrape_interval": "1s",
                "metrics_path": "/drill.prom",
                "static_configs": [{"targets": [f"{LOOPBACK}:{port}"]}],
            }
        ]
        (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
        prometheus = PrometheusServer(tmp_path, tmp_path)
        prometheus.start()
        try:

            def empty() -> list[str]:
                return [each for each in queries if not prometheus.query(each.replace("$cluster", ".+"))]

            wait_for(lambda: not empty(), "every query to find something", SECONDS, state=empty)
        finally:
            prometheus.kill()
