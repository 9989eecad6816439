"""Learning from recorded outcomes."""
