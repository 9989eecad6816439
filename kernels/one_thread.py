"""The lock of what a process has once: torch's generators and tracer, warnings, the modules of the user."""

import threading

one_thread = threading.RLock()
"""Held while values are drawn from seeded generators and while a module is traced: all of that is global to the
process, and torch's tracer fails where another thread enters it."""
