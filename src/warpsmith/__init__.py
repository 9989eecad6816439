"""Warpsmith turns PyTorch modules into fast CUDA kernels that are checked on every step."""

__version__ = "0.1.0"
