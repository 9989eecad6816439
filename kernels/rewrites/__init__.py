"""Exact rewrites: other graphs that compute the same for all parameters and inputs."""
