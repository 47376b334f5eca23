"""How a server is set up: who may come in, how much it takes, how long it waits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
MIB = 1024 * 1024


class Door(StrEnum):
    """Who may come in without an API key."""

    KEYS = "keys"  # nobody
    LOCAL = "local"  # those on this machine, until the store has its first key
    OPEN = "open"  # everybody who can reach the server, with every right


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """`hosts` are the names by which it may be called; empty lets holders of keys use any.

    max_body: bytes of a request
    max_depth: how deeply its JSON may be nested
    max_batch: jobs in one request
    patience: seconds in which the head of a request must come, and then its body
    rate: requests a second that each key may make, in the long run; 0 is as many as it likes
    burst: requests that it may make at once
    failure_rate: wrong keys a second that may come from one address, in the long run
    failure_burst: wrong keys that may come at once
    max_streams: streams and requests that wait for something, at once, in this process
    max_streams_per_key: of these, by one key, and all sessions and tickets of it
    keepalive: seconds between two comments on a stream
    stall: seconds for which a stream waits for its reader before it is cut
    buffer: events that wait for one reader; who falls further behind reads on from the store
    trust: seconds for which a key that was looked up is taken to be valid
    look: seconds between two looks at a list that somebody watches
    """

    door: Door = Door.KEYS
    hosts: frozenset[str] = frozenset()
    max_body: int = 16 * MIB
    max_depth: int = 64
    max_batch: int = 1000
    patience: float = 30.0
    rate: float = 1000.0
    burst: float = 2000.0
    failure_rate: float = 1.0
    failure_burst: float = 50.0
    max_streams: int = 10_000
    max_streams_per_key: int = 1000
    keepalive: float = 10.0
    stall: float = 10.0
    buffer: int = 256
    trust: float = 2.0
    look: float = 1.0
