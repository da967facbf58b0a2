"""Tests of how a plan is run: on threads and on worker processes."""
