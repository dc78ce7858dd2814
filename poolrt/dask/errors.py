"""Errors of clusters: what only a cluster can do wrong. A graph's and a kernel's own errors reach the client as they are."""

from __future__ import annotations

from poolrt.errors import PoolError


class ClusterError(PoolError, RuntimeError):
    """A cluster, or a batch on it, failed. ``message`` says what failed and what to do."""


class SettingsClash(ClusterError):
    """A process uses the cache with other settings already. Raised when a plugin is registered."""


class KeysDiffer(ClusterError):
    """Workers that share a Redis have different signing keys, so that they share nothing. Raised when a plugin is registered."""
