"""A cluster of real broker processes on this machine, in a temporary directory, for tests.

    with LocalCluster() as cluster:
        cluster.kill()          # SIGKILL
        cluster.restart()       # the same data, the same address

Everything here is synchronous, and quick except starting and stopping (about half a second). In async code enter it
with `async with`, and call those as `await asyncio.to_thread(cluster.restart)`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tidelog.testing.broker_process import START_TIMEOUT_S, BrokerFailed, BrokerProcess


class LocalCluster:
    """`brokers` child processes; `settings` (dotted names) go to each. `data_dir` keeps the data after the end.

    This version knows clusters of one broker.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        if brokers != 1:
            raise ValueError(f"clusters of {brokers} brokers are not available in this version; use brokers=1")
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="tidelog-test-")
            data_dir = self._temporary.name
        self._start_timeout_s = start_timeout_s
        self._brokers = {
            node_id: BrokerProcess(node_id, Path(data_dir) / f"broker-{node_id}", settings or {})
            for node_id in range(1, brokers + 1)
        }

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts all brokers and waits until they are ready. Raises `BrokerFailed`, and leaves none behind."""
        try:
            for broker in self._brokers.values():
                broker.start(self._start_timeout_s)
        except BaseException:
            self._kill_all()
            raise

    def close(self) -> None:
        """Stops all brokers gracefully, and removes the data unless it was given a directory."""
        try:
            for broker in self._brokers.values():
                broker.stop()
        finally:
            self._kill_all()

    def _kill_all(self) -> None:
        for broker in self._brokers.values():
            broker.kill()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BrokerFailed:
            if error is None:  # the test's own failure says more
                raise

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    # -- looking -------------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap`: all brokers' base URLs."""
        return ",".join(broker.url for broker in self._brokers.values())

    @property
    def cluster_id(self) -> str:
        """The cluster's id, as the brokers announced it."""
        return self.broker().cluster_id

    def broker(self, node_id: int = 1) -> BrokerProcess:
        """A broker's process: its pid, address, data directory, output."""
        return self._brokers[node_id]

    # -- breaking ------------------------------------------------------------------------------------------------

    def kill(self, node_id: int = 1) -> None:
        """SIGKILL. Afterwards `restart` starts it again."""
        self.broker(node_id).kill()

    def pause(self, node_id: int = 1) -> None:
        """SIGSTOP: alive, connected, silent."""
        self.broker(node_id).pause()

    def resume(self, node_id: int = 1) -> None:
        """Ends a pause."""
        self.broker(node_id).resume()

    def stop(self, node_id: int = 1) -> None:
        """Stops a broker gracefully; the others and all data stay."""
        self.broker(node_id).stop()

    def restart(self, node_id: int = 1) -> None:
        """Starts a broker again at its old address, on its old data, after stopping it gracefully if it runs."""
        broker = self.broker(node_id)
        broker.stop()
        broker.start(self._start_timeout_s)
