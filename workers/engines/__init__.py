"""Engines: devices, their identity in a key, and the realization of binaries on them."""
