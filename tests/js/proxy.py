"""A bad line: passes bytes on to a server, until it is cut, or the server is elsewhere."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from threading import Lock, Thread
from types import TracebackType
from typing import Self

_RESET = struct.pack("ii", 1, 0)  # a socket closed with this sends a reset, and drops what waits


class Proxy:
    """Listens on a port of its own for as long as the block lasts."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.open = True  # whether it takes connections
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
        """Break all connections, in the middle of whatever they carry."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for one in pair:
                _break(one)

    def _accept(self) -> None:
        """Waits for connections; ends with the listener."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self.open:
                _break(client)
                continue
            host, _, port = self.target.removeprefix("http://").partition(":")
            try:
                server = socket.create_connection((host, int(port)))
            except OSError:  # nobody is there
                _break(client)
                continue
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                Thread(target=self._pass_on, args=(source, sink, pair), daemon=True).start()

    def _pass_on(
        self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]
    ) -> None:
        """Waits for bytes; ends with either side, and takes the other along."""
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with self._lock:
            self._pairs.discard(pair)
        for one in pair:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _break(one: socket.socket) -> None:
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with suppress(OSError):
        one.shutdown(socket.SHUT_RD)  # wakes the thread that reads it
    one.close()
