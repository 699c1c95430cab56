"""The name of a broker in its certificate: `broker://<cluster>/<node id>`, a URI in the subject alternative names.

`<cluster>` is chosen when the certificates are made, before a cluster is founded and has an id; all certificates of a
cluster have the same. A certificate without such a name is a client's, or some server's.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from tidelog.model.errors import InvalidRequest

NEEDS_LIBRARY: Final = "making certificates needs the library cryptography: pip install 'tidelog[security]'"

CLUSTER_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
_CLUSTER: Final = re.compile(CLUSTER_PATTERN)
_NAME: Final = re.compile(rf"broker://({CLUSTER_PATTERN})/(0|[1-9][0-9]{{0,9}})")


class BrokerName(NamedTuple):
    """A broker's name in its certificate."""

    cluster: str
    node_id: int

    def __str__(self) -> str:
        return f"broker://{self.cluster}/{self.node_id}"


def parse_broker_name(uri: str) -> BrokerName | None:
    """Parses a URI from a certificate as a broker's name. Returns None if it is none."""
    match = _NAME.fullmatch(uri)
    return None if match is None else BrokerName(match[1], int(match[2]))


def broker_name(certificate: dict[str, Any]) -> str:
    """Returns the broker name in a certificate as parsed by `ssl` (`getpeercert`); empty if there is none, or more than
    one."""
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    names = [uri for uri in uris if parse_broker_name(uri) is not None]
    return names[0] if len(names) == 1 else ""


def check_cluster_name(name: str) -> str:
    """Returns the cluster name if it is valid for certificates. Raises `InvalidRequest` if it is not."""
    if _CLUSTER.fullmatch(name) is None:
        raise InvalidRequest(
            f"{name[:80]!a} is no name for a cluster's certificates: use 1 to 63 of the characters A-Z a-z 0-9 . "
            "_ -, the first a letter or a digit"
        )
    return name
