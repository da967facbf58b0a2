"""A new operator, who has the pages of `docs/` and nothing else."""
