"""Memory that kernels address: private buffers and views of the shared arena."""
