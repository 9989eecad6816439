"""Checkpoints in SQLite that stay small: compressed, and without what a later checkpoint makes superfluous."""

from __future__ import annotations

import zlib
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

_MARK = "zlib+"
"""What the type of compressed data begins with; checkpoints without it are read as they are."""
_WORTH = 256
"""Bytes below which compressing gains nothing."""


class CompressedSerializer(SerializerProtocol):
    """LangGraph's own serialiser with zlib behind it: the state says much the same again at every superstep."""

    def __init__(self) -> None:
        self._inner = JsonPlusSerializer()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Type and bytes of a value."""
        kind, data = self._inner.dumps_typed(obj)
        return (kind, data) if len(data) < _WORTH else (_MARK + kind, zlib.compress(data, 6))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value of type and bytes, compressed or not."""
        kind, packed = data
        if kind.startswith(_MARK):
            kind, packed = kind.removeprefix(_MARK), zlib.decompress(packed)
        return self._inner.loads_typed((kind, packed))


class LeanSaver(AsyncSqliteSaver):
    """Forgets what the nodes of a superstep wrote once the checkpoint behind it holds all of it: that is of use only
    for taking up a superstep that was broken off. Going back to an older checkpoint runs its next node again."""

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint; in the same transaction the writes that led to it go."""
        before = config["configurable"]
        if before.get("checkpoint_id"):
            await self.setup()
            key = (str(before["thread_id"]), before.get("checkpoint_ns", ""), before["checkpoint_id"])
            async with self.lock:
                await self.conn.execute(
                    "DELETE FROM writes WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?", key
                )
        return await super().aput(config, checkpoint, metadata, new_versions)
