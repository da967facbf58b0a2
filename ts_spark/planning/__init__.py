"""On the driver: from a query to splits."""
