"""Training data in the forms that trainers read."""
