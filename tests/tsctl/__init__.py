"""The Spark data source: what a query shows, what it asks of the store, and what it says when it cannot."""
