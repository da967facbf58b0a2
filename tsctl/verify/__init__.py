"""Is everything there? The checks of `tsctl verify`, and what they find."""
