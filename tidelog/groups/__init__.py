"""Consumer groups: pure functions and values. Who may own what, and where a group stands.

A `Shard` is the state of one partition of `__consumer_offsets`: its groups, and the REST consumers of those groups.
Whoever leads the partition owns one, and this is all that it does with it:

    decide.decide(shard, request, view, settings, now) -> Decision(records, answer)
        What follows from a request of `model/groups.py`. Changes nothing; raises the `TidelogError` of the request. The
        records go to the log, as one batch, and at once to `shard.apply`; the answer is given when they, and what it
        was decided on, are committed. `coordinator` in answers is -1: the shell knows its own node id.
    decide.has_news(shard, heartbeat) -> bool
        For long polls: would this heartbeat, decided again, tell its member something?
    shard.apply(record)
        The only thing that changes a shard; for what was decided here, and what is replayed from the log.
    shard.live_records()
        Everything, as records, to be copied forward in the log. May be read in pieces, with other decisions applied in
        between: append what was read before what is decided next. `shard.live_count` says how many there are.
    records.encode(record) -> (key, value | None);  records.decode(key, value) -> record
        Bytes in the log. `decode` raises `UnknownGroupRecord`.
    upkeep.expelled(shard, members, view, now), upkeep.with_topics(shard, view, now),
    upkeep.expired(shard, view, settings, now) -> records
        By the clock: who was not heard of; whenever the cluster's topics change; every retention check interval.
    sessions.Sessions.of(shard, settings, now_s), .follow(shard, group, member_id, settings, now_s) after each heartbeat
        that was applied, .next_s() and .expired(now_s) -> members for `upkeep.expelled`
        Deadlines: sessions, and rebalance timeouts. Soft state: anew after each load.

    decide_classic.decide_join(shard, joiner, ...), decide_sync, decide_leave, decide_silence -> Turn
        Of classic groups, whose members assign (`classic/`). Phases and waits are not in the log, so a turn has the
        group as it will be, beside records and answers. Write the records, set `shard.groups[name].classic`, and give
        the answers when all is committed. `decide_heartbeat` and `decide_commit` change no phase.
    classic.deadlines.ClassicDeadlines.of(shard, now_s), .heard, .follow, .pop(now_s) -> what `decide_silence` is for

`TopicsView` names the topics that may be subscribed to (not the brokers' own) with id and size; `Now` is one moment on
the wall clock, for what is kept, and on the monotonic one.

How a group works is written in docs/groups.md; `reconcile.py` has the core of it.
"""
