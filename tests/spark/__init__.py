"""The Spark data source: the rows of a query, its requests to the store, and its errors."""
