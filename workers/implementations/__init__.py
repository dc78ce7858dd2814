"""Implementations: what each accepts, the layouts it chooses, the program it describes and what that costs. Part of every key."""
