"""Graphs executed in the process that built them, without a pool."""
