"""The controller's shell: one decision at a time, durable before it is applied, applied before it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tidelog.broker.controller.metadata_log import MetadataLog
from tidelog.broker.controller.records import MetadataRecord
from tidelog.broker.controller.state import apply
from tidelog.model.cluster import ClusterImage

Decision = Callable[[ClusterImage], Sequence[MetadataRecord]]


class Controller:
    """Owns the cluster image of this broker."""

    def __init__(self, log: MetadataLog) -> None:
        self._log = log
        self._turn = asyncio.Lock()
        self.image = ClusterImage("")

    def replay(self) -> None:
        """Brings the image up to the end of the log. Raises `MetadataDamaged`."""
        for position, record in self._log.replay():
            self.image = apply(self.image, record, position)

    def preview(self, decide: Decision) -> ClusterImage:
        """What the image would be after a decision that is not taken. Raises what `decide` raises."""
        image = self.image
        for i, record in enumerate(decide(image)):
            image = apply(image, record, image.position + i)
        return image

    async def submit(self, decide: Decision) -> ClusterImage:
        """Decides on the current image, makes the records durable, applies them; returns the image after them.

        Raises what `decide` raises: nothing has changed then. If the log cannot say whether a decision is durable, an
        indefinite error is raised and the image stays; the log is offline, so no later decision can contradict it.
        """
        async with self._turn:
            records = decide(self.image)
            if records:
                position = await self._log.append(records)
                for i, record in enumerate(records):
                    self.image = apply(self.image, record, position + i)
            return self.image
