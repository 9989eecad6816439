"""Where device code runs: the CUDA launcher process, the PTX emulator, worker processes."""
