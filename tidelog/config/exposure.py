"""Security check at start: a broker refuses to start with a listener that is insecure and reachable from other
machines.

A listener on loopback is reachable from this machine only, and needs nothing. On any other address, wildcard addresses
included, the peer listener must authenticate brokers, and HTTP and Kafka listeners must use TLS, unless the operator
vouches for the network with `security.allow.insecure`. In the same way, a token may be sent to another machine only
over TLS.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from tidelog.config.errors import ConfigError
from tidelog.config.schema import BrokerConfig
from tidelog.config.values import split_address

Resolve = Callable[[str], Sequence[str]]
"""Function that returns the IP addresses of a host name; none if it is unknown."""


def exposed(config: BrokerConfig, resolve: Resolve) -> list[str]:
    """Returns a sentence about each listener that is reachable from other machines and unencrypted or, for the peer
    listener, unauthenticated."""
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


def token_in_plain_text(config: BrokerConfig, resolve: Resolve) -> list[str]:
    """Returns a sentence if this broker would send its join token to another machine unencrypted; otherwise an empty
    list."""
    where = urlsplit(config.cluster_join or "")
    if config.cluster_token_file is None or where.scheme != "http" or is_loopback(where.hostname or "", resolve):
        return []
    sentence = (
        f"cluster.join {config.cluster_join} is asked in plain text, with the token of cluster.token.file: let "
        "cluster.join begin with https, at a broker with http.security.protocol=SSL"
    )
    return [sentence]


def not_allowed(sentences: Sequence[str]) -> ConfigError:
    """Returns the error for an insecure start that `security.allow.insecure` does not allow."""
    return ConfigError(
        f"{'; '.join(sentences)} (docs/security.md). If nobody else reaches this network, security.allow.insecure=true "
        "starts the broker all the same"
    )


def is_loopback(host: str, resolve: Resolve) -> bool:
    """Returns True if only programs of this machine can reach the host. An unknown name counts as reachable."""
    if host.lower() == "localhost":
        return True
    try:
        addresses = [ipaddress.ip_address(host)]
    except ValueError:
        addresses = [ipaddress.ip_address(address) for address in resolve(host)]
    return bool(addresses) and all(address.is_loopback for address in addresses)
