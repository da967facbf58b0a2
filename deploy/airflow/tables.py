"""Runs the tables of a file every hour: for Airflow 3, in its folder of DAGs.

A run adds what the archive has for the tables, so no earlier interval is run. docs/tables.md lists the exit codes: one
other than 0 is a failure here, also 1, when a table waits at a hole.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

RUN = (
    "/opt/tables/bin/tsctl tables run --file /etc/ts-uploader/tables.yaml --json"
    " --metrics-file /var/lib/prometheus/node-exporter/tables.prom"
)

with DAG(
    "tables",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):
    BashOperator(task_id="run", bash_command=RUN, retries=3, retry_delay=timedelta(minutes=5))
