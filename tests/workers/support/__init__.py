"""What is supported: a problem for every odd shape and layout of each cell, and the page of all cells."""
