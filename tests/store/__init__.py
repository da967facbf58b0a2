"""Tests of the object stores."""
