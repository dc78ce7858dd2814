"""Cross-engine reorders: described for two engines, executed on a stream of one, computed on either."""
