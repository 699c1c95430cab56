"""The audit log of a broker process: opened if the settings name a file or a topic for it, and closed at the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tidelog.adapters.audit_file import AuditFile
from tidelog.adapters.disk_threads import DiskThreads
from tidelog.adapters.system import SystemClock, SystemEntropy
from tidelog.adapters.tls_listener import Refusal
from tidelog.adapters.tls_store import TlsStore
from tidelog.broker.broker import Broker
from tidelog.broker.face.audit import Audit, AuditEvent
from tidelog.broker.face.audit_topic import AuditTopic
from tidelog.broker.face.face import BrokerFace
from tidelog.config.schema import BrokerConfig


class Auditing:
    """The audit log of one broker, if it has one. `open` has to be called before its listeners start."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._file: AuditFile | None = None
        self._audit: Audit | None = None
        self._topic: AuditTopic | None = None
        self._publishing: asyncio.Task[None] | None = None
        self._thread = DiskThreads(1, name="tidelog-audit")

    def open(self, broker: Broker, tls: TlsStore | None = None) -> BrokerFace:
        """Begins to log what the broker refuses, and failed TLS handshakes; returns the broker's request handling
        (`BrokerFace`) with the audit log, for its listeners. Raises `OSError` if the file cannot be opened."""
        config = self._config
        if config.audit_log_file is None and not config.audit_log_topic:
            return broker.face
        if config.audit_log_file is not None:
            self._file = AuditFile(config.audit_log_file, config.audit_log_bytes_max, config.audit_log_files_max)
        clock = SystemClock()
        if config.audit_log_topic:
            face = broker.face
            make = face.administration.create_audit_topic
            self._topic = AuditTopic(face.partitions, make, clock, config.node_id)
            self._publishing = asyncio.create_task(self._topic.run(), name="audit topic")
        self._audit = Audit(self._file, self._thread, clock, SystemEntropy(), config.node_id, self._topic)
        self._audit.start()
        broker.on_peer_refused(self._audit.refused_peer)
        if tls is not None:
            tls.on_refused.append(self._handshake_refused)
        return replace(broker.face, audit=self._audit)

    def _handshake_refused(self, refusal: Refusal) -> None:
        if self._audit is not None:
            why = f"TLS: {refusal.cause}: {refusal.why}"
            self._audit.refused_connection(refusal.listener, refusal.remote, why)

    async def note_recoveries(self, broker: Broker) -> None:
        """Logs recoveries of the metadata log that an operator made while no broker ran, if the audit file does not
        have them yet."""
        if self._audit is None or self._file is None:
            return
        for recovery in broker.image.recoveries:
            if recovery.at_ms > self._file.written_ms:
                await self._audit.changed(
                    AuditEvent(
                        event="changed",
                        operation="Alter",
                        resource_type="Cluster",
                        resource_name="kafka-cluster",
                        subject=f"metadata log begun anew by {recovery.by}: generation {recovery.generation}",
                        allowed=True,
                    )
                )

    async def publish(self) -> None:
        """Writes the waiting audit events to the topic, within a time limit. Called before the broker stops."""
        if self._audit is not None and self._topic is not None:
            await self._audit.stop()
            self._audit.start()
            await self._topic.flush()

    async def close(self) -> None:
        """Writes the waiting audit events to the file, within a time limit, and closes it. Idempotent."""
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.gather(self._publishing, return_exceptions=True)
        audit, self._audit = self._audit, None
        if audit is not None and await audit.stop():
            self._thread.close()
            if self._file is not None:
                self._file.close()
