"""Implementations made of other primitives, for every kind of engine."""
