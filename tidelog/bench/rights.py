"""How long a broker takes to find out whose token a request shows, and what that user may do, beside many ACLs.

No broker is started: the code that brokers run is called, many times over, and the processor's time of one call is
told. `acl_check` is what all requests but the first of their kind cost, whose answer is remembered; `acl_lookup` finds
the answer among the ACLs; and `acl_definition` is what the lookup saves, every ACL held against the request.
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
    """Returns microseconds of a processor for each call, the medians of several rounds."""
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
    """Returns one of many: of 50 users, and of topics by their names or by the beginnings of names."""
    pattern_type, name = ("Prefixed", f"t-{number % 9}") if number % 10 == 0 else ("Literal", f"t-{number}")
    return Acl("Topic", pattern_type, name, f"User:u-{number % 50}", "*", "Read", "Allow")


def _each_us(call: Callable[[Resource], object], topics: Sequence[Resource], calls: int) -> float:
    def round_us() -> float:
        asked = cycle(topics)
        begin_s = time.process_time()
        for _ in range(calls):
            call(next(asked))
        return 1e6 * (time.process_time() - begin_s) / calls

    return statistics.median(round_us() for _ in range(ROUNDS))
