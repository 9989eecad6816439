"""Recorded tuning tables: every configuration of a space with its time, read from files of any tuner or of our own."""
