"""Graphs of primitives: building them, importing them, and making them ready for an engine."""
