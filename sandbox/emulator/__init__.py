"""Runs the PTX that NVRTC emits on a CPU, checks every access and counts transactions."""
