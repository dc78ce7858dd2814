"""Loads of models: what may be loaded, its way to the coordinator, and the progress."""
