"""Engines: devices, what identifies them in a key, and how they realize binaries."""
