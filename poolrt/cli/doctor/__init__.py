"""`poolrt doctor`: check this machine, its libraries, Redis and OpenCL drivers."""
