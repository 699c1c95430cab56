"""Checks under TLS that the node id in a broker's hello is the one in its certificate."""

from __future__ import annotations

from tidelog.model.broker_names import parse_broker_name
from tidelog.transport.peer.hello import Hello


def name_refusal(theirs: Hello, own_name: str | None, peer_name: str | None) -> str | None:
    """Returns the reason why a hello does not match the sender's certificate; None if it matches, or without TLS.

    `own_name` and `peer_name` are the names in the certificates of this end and of the other (see the port
    `FrameConnection`).
    """
    if own_name is None or peer_name is None:
        return None
    name, own_broker = parse_broker_name(peer_name), parse_broker_name(own_name)
    if name is None:
        return (
            f"the certificate of node {theirs.node_id} names no broker, as a client's does not; give it one of its "
            f"own: `tidelog tls issue --broker {theirs.node_id}`"
        )
    if own_broker is None or name.cluster != own_broker.cluster:
        return (
            f"the certificate of node {theirs.node_id} is of cluster {name.cluster}, and that of the other end of "
            f"{own_name or 'no cluster'}; the brokers of a cluster have certificates with one name of a cluster"
        )
    if name.node_id != theirs.node_id:
        return (
            f"the certificate of node {theirs.node_id} is that of node {name.node_id}; give each broker its own "
            "(ssl.keystore.location)"
        )
    return None
