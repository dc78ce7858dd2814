"""The operations of a graph by family, which `poolrt.Graph` puts together."""
