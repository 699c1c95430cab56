from tidelog.model.cluster import Topic
from tidelog.model.ids import TopicId


def test_a_topic_commits_in_sync_and_in_total_order_unless_it_was_created_otherwise() -> None:
    plain = Topic("t", TopicId("id"), {}, ())
    assert (plain.commit_protocol, plain.commit_order) == ("isr", "total")
    by_key = Topic("t", TopicId("id"), {"commit.protocol": "paxos", "commit.order": "key"}, ())
    assert (by_key.commit_protocol, by_key.commit_order) == ("paxos", "key")
