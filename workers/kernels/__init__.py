"""Kernel sources and compilers, one folder an engine kind."""
