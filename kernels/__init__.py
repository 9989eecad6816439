"""What a kernel is: problem, graph, regions, slots, families, devices. The lowest room of the house."""
