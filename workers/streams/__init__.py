"""Streams: in-order execution on an engine, and their attributes."""
