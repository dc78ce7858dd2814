"""What notebooks show: tables of a pool, and the progress of a load."""
