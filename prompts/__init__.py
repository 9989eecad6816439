"""The words that chat models are given, one template a role."""
