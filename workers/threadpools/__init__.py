"""Threadpools: the threads that a CPU stream computes on."""
