"""Who decides: roles, observations and policies."""
