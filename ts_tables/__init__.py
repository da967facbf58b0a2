"""Tables made of archived topics: each record once.

::

    from ts_tables import Tables

    tables = Tables("tables.yaml")
    tables.create("backup.orders")
    tables.run("backup.orders")
"""

from ts_tables.status import PartitionStatus, TableStatus
from ts_tables.tables import Tables

__all__ = ["PartitionStatus", "TableStatus", "Tables"]
