"""Small per-role policies over choice slots: one categorical a slot, given what was chosen before it."""
