"""Loads of models: what may be loaded, and its way to the coordinator."""
