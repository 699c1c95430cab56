"""The replicas of this broker, kept in line with the metadata: roles, retention, removal of directories.

Only this room imports both the commit protocols (`isr`, `paxos`) and the metadata image.
"""
