"""A launch plan worked out from the kernels' own text, as far as that says anything."""
