"""A drill: a sample of the archive is restored into a throw-away broker, read back and compared (docs/restore.md).

It uses the steps of `tsctl restore`: `run.py` calls them in their order. `broker.py` is the throw-away broker,
`sample.py` what is restored, `comparing.py` the comparison, `report.py` its result and `metrics.py` its metrics.
"""
