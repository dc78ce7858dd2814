"""The compiler of kernels: a part of Python, lowered from syntax trees to LLVM."""
