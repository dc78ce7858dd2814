"""OpenCL implementations of the operations: pure descriptions, one file an operation."""
