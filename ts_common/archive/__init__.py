"""The stored archive and its meaning: keys, objects, catalog, view, plan. Imports no driver and no decoder."""
