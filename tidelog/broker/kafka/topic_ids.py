"""Topics by their ids: what clients name them by in newer versions, so that one that was made anew is another one."""

from __future__ import annotations

from tidelog.model.cluster import ClusterImage, Topic


class TopicIds:
    """The topics of the newest image that was asked about."""

    def __init__(self) -> None:
        self._image: ClusterImage | None = None
        self._topics: dict[str, Topic] = {}

    def find(self, image: ClusterImage, topic_id: str) -> Topic | None:
        """Returns a topic by the 32 hexadecimal digits of its id; None if there is none."""
        if image is not self._image:
            self._image = image
            self._topics = {topic.topic_id: topic for topic in image.topics.values()}
        return self._topics.get(topic_id)
