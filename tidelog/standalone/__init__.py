"""A replicated log by itself: replicas without brokers, topics or records, as Mesos' log was used (`tidelog log`).

Each replica is a process with a directory. They elect a leader among them, who appends; everybody may read. The parts
are those of a cluster's metadata log: engine, election, disk and voters are the same code. What is here is how such a
log begins, who may join it, and what is asked of it from outside.
"""
