"""The active controller at work: decides commands in groups, has their records agreed on, answers their askers.

The shell lives here; the pure core (commands, decisions, records, image) is `tidelog.controller`.
"""
