"""Plans: a graph made ready as data, and what executes it on the engines of a process."""
