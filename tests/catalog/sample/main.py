"""Stands for a workload: the tests start it, nothing more."""
