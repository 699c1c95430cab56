"""The active controller's code with I/O: decides commands in groups, appends their records to the metadata log, and
answers.

The pure part (commands, decisions, records, image) is `tidelog.controller`.
"""
