"""TCP proxy whose connections can be cut, and whose target can change."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Self

_RESET = struct.pack("ii", 1, 0)  # closing with this sends a reset and drops pending data


class Proxy:
    """Listens on its own port while the block lasts."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.open = True  # whether it accepts connections
        self._lock = Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Reset all connections."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for connection in pair:
                _reset(connection)

    def _accept(self) -> None:
        """Accept connections until the listener closes."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self.open:
                _reset(client)
                continue
            host, _, port = self.target.removeprefix("http://").partition(":")
            try:
                server = socket.create_connection((host, int(port)))
            except OSError:  # the target does not listen
                _reset(client)
                continue
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                Thread(target=self._forward, args=(source, sink, pair), daemon=True).start()

    def _forward(
        self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]
    ) -> None:
        """Forward bytes until either side closes, then close both."""
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with self._lock:
            self._pairs.discard(pair)
        for connection in pair:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RD)  # wakes the reading thread
    connection.close()
