"""A broker does not start with a listener that believes strangers, or that they can read, and that they can reach.

A listener on loopback is reached by programs of this machine alone, and needs nothing. On any other address the peer
listener takes something by which brokers are known, and those of HTTP take TLS; or the operator's word that the network
does that (`security.allow.insecure`). An address that stands for all of a machine's is any other address. A token is
shown to a broker of another machine over TLS, or with the same word.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig
from tidelog.config.values import split_address

Resolve = Callable[[str], Sequence[str]]
"""Tells the IP addresses that a host name stands for; none if it is not known."""


def exposed(config: BrokerConfig, resolve: Resolve) -> list[str]:
    """Returns a sentence about each listener that can be reached from other machines, and that speaks plain text or
    believes whoever comes."""
    are_peers_known = config.cluster_secret_file is not None or config.security_inter_broker_protocol == "SSL"
    doubtful = []
    if config.http_security_protocol != "SSL":
        doubtful.append((config.http_listener, _plain("http", config.http_listener)))
    if config.kafka_address is not None and not config.is_kafka_encrypted:
        doubtful.append((config.kafka_address, _plain("kafka", config.kafka_address)))
    if not are_peers_known:
        doubtful.append((config.peer_listener, _credulous(config.peer_listener)))
    if config.http_ops_listener is not None and config.http_ops_security_protocol != "SSL":
        doubtful.append((config.http_ops_listener, _plain("http.ops", config.http_ops_listener)))
    return [why for address, why in doubtful if not is_loopback(split_address(address)[0], resolve)]


def _plain(kind: str, address: str) -> str:
    return (
        f"{kind}.listener {address} can be reached from other machines, and speaks plain text: set "
        f"{kind}.security.protocol=SSL and ssl.keystore.location (`tidelog tls` makes that file), or let "
        f"{kind}.listener be on 127.0.0.1"
    )


def _credulous(address: str) -> str:
    return (
        f"peer.listener {address} can be reached from other machines, and takes whoever comes for a broker: set "
        "cluster.secret.file, the same on all brokers, or security.inter.broker.protocol=SSL, or let peer.listener be "
        "on 127.0.0.1"
    )


def told_in_plain_text(config: BrokerConfig, resolve: Resolve) -> list[str]:
    """Returns a sentence about a token that this broker would show to another machine in plain text; none if it has no
    such token, or nobody can read it."""
    where = urlsplit(config.cluster_join or "")
    if config.cluster_token_file is None or where.scheme != "http" or is_loopback(where.hostname or "", resolve):
        return []
    sentence = (
        f"cluster.join {config.cluster_join} is asked in plain text, with the token of cluster.token.file: let "
        "cluster.join begin with https, at a broker with http.security.protocol=SSL"
    )
    return [sentence]


def not_allowed(sentences: Sequence[str]) -> ConfigError:
    """Makes the error of a start that is insecure, which `security.allow.insecure` does not allow."""
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
