"""Kernels: generators of native code, and OpenCL sources with their build."""
