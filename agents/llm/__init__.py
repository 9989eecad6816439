"""Asking a language model for a typed answer: servers, the ladder of output formats, accounts and kept replies."""
