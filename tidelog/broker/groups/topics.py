"""The cluster's topics, as consumer groups see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.groups.settings import TopicSeen, TopicsView
from tidelog.model.cluster import ClusterImage, Topic


class TopicsSeen:
    """A view of the topics that users own, made anew when somebody asks after the image's topics have changed. As long
    as names, ids and numbers of partitions are the same, so is the object, whoever leads what."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._topics: Mapping[str, Topic] | None = None
        self._view: TopicsView = {}

    def __call__(self) -> TopicsView:
        """The users' topics, by name."""
        topics = self._image().topics
        # Images share what has not changed, so the same mapping means the same topics, and costs no comparison.
        if topics is not self._topics:
            self._topics = topics
            view = {
                name: TopicSeen(topic.topic_id, len(topic.partitions))
                for name, topic in topics.items()
                # Nobody subscribes to the brokers' own topics: with `.*` a group would read the log that it writes by
                # its commits.
                if not topic.is_internal
            }
            # The old object stays if nothing that groups see has changed: coordinators compare by identity.
            if view != self._view:
                self._view = view
        return self._view
