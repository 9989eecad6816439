"""Where a graph is cut: regions, library calls and what lies between them."""
