"""Runs cubins on an NVIDIA GPU."""
