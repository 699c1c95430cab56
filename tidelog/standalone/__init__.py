"""A standalone log: a replicated log without brokers, topics or records, as Mesos' log was used (`tidelog log`).

Each replica is a process with a directory. They elect a leader among them, which appends; everybody may read. The parts
are those of a cluster's metadata log: engine, election, disk and voters are the same code. This package adds how such a
log begins, how a replica joins it, and the requests of other programs.
"""
