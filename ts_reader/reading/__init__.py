"""From a plan to rows. Loads what decodes; the agent does not import it."""
