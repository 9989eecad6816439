"""What an agent can do: compile, verify, time, compare with baselines, judge, export."""
