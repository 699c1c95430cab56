"""A checker for simulated and for real runs: from a history of clients' operations and their results it decides whether
the run was correct.

A history is a list of operations (`operations`), which a `Recorder` collects and which has a form in lines of JSON.
`judge` looks for every anomaly that a log can have, after Jepsen's Kafka workload and Adya's phenomena, and compares
what each replica holds in the end with what was acknowledged.
"""

from tidelog.checker.operations import Op, decode, encode
from tidelog.checker.recorder import Recorder
from tidelog.checker.verdict import Verdict, judge

__all__ = ["Op", "Recorder", "Verdict", "decode", "encode", "judge"]
