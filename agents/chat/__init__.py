"""The chat policy: prompts, reply models and rounds in which language models play the roles."""
