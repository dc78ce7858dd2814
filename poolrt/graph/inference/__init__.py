"""Inference: operation descriptors, and with them shapes and data types, from a graph's kinds, operands and attributes."""
