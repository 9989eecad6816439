"""What a candidate may hold: its source, its PTX, its cubin."""
