"""Lookup of topics by id. A topic that is deleted and created again has a new id."""

from __future__ import annotations

from tidelog.model.cluster import ClusterImage, Topic


class TopicIds:
    """An index by id of the topics in the newest metadata that was looked up."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._topics: dict[str, Topic] = {}

    def find(self, image: ClusterImage, topic_id: str) -> Topic | None:
        """Returns the topic with this id (32 hexadecimal digits); None if no topic has it."""
        if image is not self._image:
            self._image = image
            self._topics = {topic.topic_id: topic for topic in image.topics.values()}
        return self._topics.get(topic_id)
