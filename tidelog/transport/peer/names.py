"""The check that the broker that speaks is the one that its certificate names, made with each hello under TLS."""

from __future__ import annotations

from tidelog.model.broker_names import parse_broker_name
from tidelog.transport.peer.hello import Hello


def name_refusal(theirs: Hello, own_name: str | None, peer_name: str | None) -> str | None:
    """Returns why a hello is not of the broker that its certificate names, in words; None if it is, or without TLS.

    `own_name` and `peer_name` are those of the connection (see the port `FrameConnection`).
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
