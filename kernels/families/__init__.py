"""Kernel families: each one Python file plus one device-code template; `registry` lists them."""
