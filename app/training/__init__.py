"""The commands `train` and `rollout`: their settings, who judges, and what they show."""
