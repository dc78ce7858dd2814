"""OpenCL kernels: their sources, and how a creator builds them."""
