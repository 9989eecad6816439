"""Training of open-weight language models on the decisions that they made."""
