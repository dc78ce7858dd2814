"""The implementations for the CPU, one module an operation, and what their programs are made of."""
