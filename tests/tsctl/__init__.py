"""Tests of `tsctl`: its commands, its checks of an archive, and its report."""
