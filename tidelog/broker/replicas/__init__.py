"""The replicas of this broker, kept in line with the metadata: roles, retention, removal of directories.

The room joins the commit protocols (`isr`, `paxos`) to the image; no other room knows both.
"""
