"""Verbose lines about creations and executions: how they are switched on, written, timed and worded."""
