"""Reorders between engines: described for two, transferred on a stream of one, computed on either."""
