"""Core of consumer groups: pure functions and values that decide group requests.

A `Shard` is the state of one partition of `__consumer_offsets`: its groups, and the REST consumers of those groups. The
coordinator that leads the partition owns one shard, and uses it as follows:

    decide.decide(shard, request, view, settings, now) -> Decision(records, answer)
        Decides a request of `model/groups.py`. Changes nothing; raises the `TidelogError` of the request. The caller
        appends the records to the log as one batch, applies them at once with `shard.apply`, and gives the answer when
        they, and all earlier records, are committed. `coordinator` in answers is -1: the caller fills in its node id.
    decide.has_news(shard, heartbeat) -> bool
        For long polls: whether this heartbeat, decided again, would tell its member something new.
    shard.apply(record)
        The only way to change a shard, for records decided here and for records replayed from the log.
    shard.live_records()
        All live records, to be copied forward in the log. They may be read in pieces while other decisions are applied:
        append those read before the ones decided next. `shard.live_count` is their number.
    records.encode(record) -> (key, value | None);  records.decode(key, value) -> record
        Log bytes of a record and back. `decode` raises `UnknownGroupRecord`.
    upkeep.expelled(shard, members, view, now), upkeep.with_topics(shard, view, now),
    upkeep.expired(shard, view, settings, now) -> records
        Records for expired sessions; after a change of the cluster's topics; and at each retention check.
    sessions.Sessions.of(shard, settings, now_s), .follow(shard, group, member_id, settings, now_s) after each applied
        heartbeat, .next_s() and .expired(now_s) -> members for `upkeep.expelled`
        Deadlines of sessions and rebalance timeouts. They are not in the log: they begin anew after each load.

    decide_classic.decide_join(shard, joiner, ...), decide_sync, decide_leave, decide_silence -> Turn
        For classic groups, whose members assign (`classic/`). Phases and waiting requests are not in the log, so a turn
        (one decision) has the changed copy of the group beside records and answers. Write the records, set
        `shard.groups[name].classic`, and give the answers when all is committed. `decide_heartbeat` and `decide_commit`
        change no phase.
    classic.deadlines.ClassicDeadlines.of(shard, now_s), .heard, .follow, .pop(now_s) -> input of `decide_silence`

`TopicsView` has id and number of partitions of the topics that may be subscribed to (all but internal ones). `Now` is a
time by the wall clock, for records, and by the monotonic clock, for deadlines.

docs/groups.md describes how a group works; `reconcile.py` is the core of it.
"""
