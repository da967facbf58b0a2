"""The dashboard and the alerts."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


PROMETHEUS = CHECKOUT / "deploy" / "prometheus"


ALERTS = PROMETHEUS / "alerts.yml"


DASHBOARD = CHECKOUT / "deploy" / "grafana" / "dashboard.json"


def alert_names() -> list[str]:
    return re.findall(r"^ +- alert: (\w+)$", ALERTS.read_text(), re.MULTILINE)
