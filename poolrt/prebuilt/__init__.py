"""Making the prebuilt kernels of the package: the networks that they are for, and the file of `poolrt cache prebuild`."""
