"""Runs of models in a client: prepared and single ones, their rings, entries, inputs and outputs."""
