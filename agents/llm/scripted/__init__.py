"""A scripted model server on loopback: real HTTP, any dialect, faults on demand."""

from warpsmith.agents.llm.scripted.faults import Fault
from warpsmith.agents.llm.scripted.players import FirstLegal, Incoming, Player, RandomLegal, Turn
from warpsmith.agents.llm.scripted.server import DIALECTS, Dialect, Recorded, ScriptedServer

__all__ = [
    "DIALECTS",
    "Dialect",
    "Fault",
    "FirstLegal",
    "Incoming",
    "Player",
    "RandomLegal",
    "Recorded",
    "ScriptedServer",
    "Turn",
]
