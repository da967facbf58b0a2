"""Ships segments to the store, and writes objects that help readers to plan."""
