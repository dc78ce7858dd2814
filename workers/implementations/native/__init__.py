"""The implementations for the CPU, one module an operation, and the parts of their programs."""
