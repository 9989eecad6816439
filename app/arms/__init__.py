"""Policies side by side on the same problems, at equal budgets."""
