"""The stored archive and its meaning: keys, objects, catalog, view and plan. Imports no driver and no numba."""
