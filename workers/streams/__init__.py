"""Streams: in-order execution on an engine, and the attributes that they are made with."""
