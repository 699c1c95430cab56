"""Certificates for a cluster in a test. Needs the extra `tidelog[security]`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidelog.model.broker_names import NEEDS_LIBRARY
from tidelog.model.errors import InvalidRequest

CLUSTER = "test"
CLIENT = "tester"


class ClusterCertificates:
    """A CA in a directory, and the certificates that it has issued. Raises `InvalidRequest` if the extra is not
    installed."""

    def __init__(self, directory: Path, cluster: str = CLUSTER) -> None:
        try:
            from tidelog.adapters import certificates  # noqa: PLC0415 -- imports an extra
        except ImportError:
            raise InvalidRequest(NEEDS_LIBRARY) from None
        self.directory = directory
        self._made = certificates
        certificates.make_authority(directory, cluster)
        self._authority = certificates.load_authority(directory)

    @property
    def ca(self) -> Path:
        """Path of the CA's certificate."""
        return self.directory / "ca.pem"

    def broker(self, node_id: int, *, days: int = 365) -> Path:
        """Issues a broker's certificate for localhost and its addresses, in place of an earlier one. Returns the path
        of the file with the key and the certificate."""
        return self._made.issue_broker(self.directory, self._authority, node_id, force=True, days=days).file

    def client(self, name: str = CLIENT) -> Path:
        """Returns the path of a client's key and certificate, in one file."""
        return self._made.issue_client(self.directory, self._authority, name, force=True).file

    def settings(self, node_id: int) -> Mapping[str, str]:
        """Returns the settings with which a broker uses TLS on all its listeners."""
        file = self.directory / f"broker-{node_id}.pem"
        if not file.exists():
            self.broker(node_id)
        return {
            "http.security.protocol": "SSL",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.location": str(file),
            "ssl.truststore.location": str(self.ca),
        }
