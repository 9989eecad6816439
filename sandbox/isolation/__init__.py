"""Layers that keep a process of ours from harming the machine, and profiles made of them (docs/safety.md)."""
