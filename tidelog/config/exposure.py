"""A broker does not start with a listener that believes strangers and can be reached by them.

A listener on loopback is reached by programs of this machine alone, and needs nothing. On any other address it takes
something by which others are known, or the operator's word that the network does that (`security.allow.insecure`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence

from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig
from tidelog.config.values import split_address

Resolve = Callable[[str], Sequence[str]]
"""Tells the IP addresses that a host name stands for; none if it is not known."""


def exposed(config: BrokerConfig, resolve: Resolve) -> list[str]:
    """Returns a sentence about each listener that can be reached from other machines and believes whoever comes."""
    sentences = []
    are_peers_known = config.cluster_secret_file is not None or config.security_inter_broker_protocol == "SSL"
    if not are_peers_known and not is_loopback(split_address(config.peer_listener)[0], resolve):
        sentences.append(
            f"peer.listener {config.peer_listener} can be reached from other machines, and takes whoever comes for a "
            "broker: set cluster.secret.file, the same on all brokers, or security.inter.broker.protocol=SSL, or let "
            "peer.listener be on 127.0.0.1"
        )
    return sentences


def not_allowed(sentences: Sequence[str]) -> ConfigError:
    """Makes the error of a start with exposed listeners that `security.allow.insecure` does not allow."""
    return ConfigError(
        f"{'; '.join(sentences)} (docs/security.md). If nobody else reaches this network, security.allow.insecure=true "
        "starts the broker all the same"
    )


def is_loopback(host: str, resolve: Resolve) -> bool:
    """Returns whether only programs of this machine reach a host. A name that is not known counts as reachable."""
    if host.lower() == "localhost":
        return True
    found = [host] if _is_ip(host) else resolve(host)
    return bool(found) and all(ipaddress.ip_address(one).is_loopback for one in found)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
