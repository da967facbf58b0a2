"""What a query's options and filters ask for."""
