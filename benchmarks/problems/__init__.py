"""Problems of the benchmark of single operations, by family."""
