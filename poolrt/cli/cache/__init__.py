"""`poolrt cache`: inspect, bound, verify, export and clear the shared kernel cache."""
