"""The commands, one file a group. Importing this registers all of them."""

from warpsmith.app.chat.commands import files, general, look, search, settings, steer

__all__ = ["files", "general", "look", "search", "settings", "steer"]
