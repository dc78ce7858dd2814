"""Native kernels: their generators, and in `compiler` what creators compile them with."""
