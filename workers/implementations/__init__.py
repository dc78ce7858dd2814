"""Implementations: the descriptors that each accepts, the layouts it chooses, its programs and their cost. Part of keys."""
