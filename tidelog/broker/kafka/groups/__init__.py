"""The calls about consumer groups, one file for each kind of question.

Each call is a function of the listener's parts, the call, its request (kio's) and its caller, and returns a tree of
kio's. Rights and bounds are those of HTTP: `Read` on the group for its members, `Describe` and `Delete` for operators,
and a right on each topic that is named.
"""
