"""The checks of `tsctl verify`, and their findings."""
