"""The cluster's topics in the form in which group coordinators use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.groups.settings import TopicSeen, TopicsView
from tidelog.model.cluster import ClusterImage, Topic


class TopicsSeen:
    """A cached view of the topics that are not internal. The same object is returned until a name, id or number of
    partitions changes, regardless of leader changes."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._topics: Mapping[str, Topic] | None = None
        self._view: TopicsView = {}

    def __call__(self) -> TopicsView:
        """Returns id and number of partitions of each topic that is not internal, by name."""
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
