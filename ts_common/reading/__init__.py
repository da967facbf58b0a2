"""From a plan to rows. Loads numba; the agent does not import it."""
