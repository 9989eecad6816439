"""The search with a person in the loop: a prompt, its commands, and what they show."""
