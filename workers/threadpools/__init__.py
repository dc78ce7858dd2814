"""Threadpools: what a CPU stream computes on."""
