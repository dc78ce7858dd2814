"""Inference of operation descriptors, and so of shapes and data types, from kinds, operands and attributes."""
