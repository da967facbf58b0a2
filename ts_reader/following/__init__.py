"""Continues from commit to commit: positions, snapshots of the commits, and the plan between two positions."""
