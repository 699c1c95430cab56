"""Benchmark of authentication and authorization: CPU time to verify a request's token and to check its user's rights
with many ACLs.

It calls the brokers' code directly, without a broker, and reports the CPU time of one call. `acl_check` is the cost of
a repeated check, whose result is cached; `acl_lookup` that of a first check, which searches the ACLs by an index;
`acl_definition` that of comparing every ACL with the request, which the index avoids.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Final

from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.broker.face.access import ByAcls
from tidelog.broker.face.login import Login
from tidelog.model.access import Acl, AclIndex, Caller, Operation, Principal, Resource, may
from tidelog.model.credentials import Access

CALLS: Final = 20_000
ROUNDS: Final = 5
TOPICS: Final = 50
CALLER: Final = Caller(Principal("User", "u-7"), "10.0.0.7")


def measure_rights(acls_count: int) -> dict[str, float]:
    """Returns the CPU microseconds of each kind of call, as medians of several rounds."""
    acls = [_acl(number) for number in range(acls_count)]
    topics = [Resource("Topic", f"t-{number}") for number in range(TOPICS)]
    login = Login(lambda: access, SystemClock(), SystemEntropy())
    token, secret = login.made_token(CALLER.principal, 0, "")
    access = Access(tokens={token.token_id: token}, acls=tuple(acls))
    shown = f"{token.token_id}.{secret}"
    check, index = ByAcls(lambda: access, (), without_acl=False), AclIndex(acls)
    return {
        "token_us": _each_us(lambda _: login.by_token(shown), topics, CALLS),
        "acl_check_us": _each_us(lambda topic: check.may(CALLER, Operation.READ, topic), topics, CALLS),
        "acl_lookup_us": _each_us(lambda topic: index.decide(CALLER, Operation.READ, topic), topics, CALLS),
        "acl_definition_us": _each_us(lambda topic: may(acls, (), CALLER, Operation.READ, topic), topics, TOPICS),
    }


def _acl(number: int) -> Acl:
    """Returns the ACL with this number: one of 50 users, for a literal topic name or, for one in ten, a prefix."""
    pattern_type, name = ("Prefixed", f"t-{number % 9}") if number % 10 == 0 else ("Literal", f"t-{number}")
    return Acl("Topic", pattern_type, name, f"User:u-{number % 50}", "*", "Read", "Allow")


def _each_us(call: Callable[[Resource], object], topics: Sequence[Resource], calls: int) -> float:
    def round_us() -> float:
        resources = cycle(topics)
        begin_s = time.process_time()
        for _ in range(calls):
            call(next(resources))
        return 1e6 * (time.process_time() - begin_s) / calls

    return statistics.median(round_us() for _ in range(ROUNDS))
