"""Rewards: pure functions from measured outcomes to numbers, made anew in every group."""
