"""Server configuration: authentication, limits and timeouts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
MIB = 1024 * 1024


class AuthMode(StrEnum):
    """Which requests need an API key."""

    KEYS = "keys"  # all requests
    LOCAL = "local"  # none from this machine, until the store has its first key
    OPEN = "open"  # none: every client that reaches the server has all permissions


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """`hosts`: accepted values of the Host header; if empty, any, but only with an API key.

    max_body: size limit of a request body, in bytes
    max_json_depth: nesting limit of a JSON body
    max_batch: jobs in one request
    read_timeout: seconds to receive the head of a request, and then its body
    rate: sustained requests per second of one key; 0 is unlimited
    burst: requests that one key may send at once
    auth_failure_rate: sustained failed authentications per second from one address
    auth_failure_burst: failed authentications accepted at once from one address
    max_streams: open event streams and long polls in this process
    max_streams_per_key: the same for one key, with all its sessions and tickets
    keepalive: seconds between two comments on a stream
    write_timeout: seconds that a stream waits for its client before it closes the connection
    stream_buffer: events buffered for one client; a slower client continues from the store
    key_cache_ttl: seconds that a key lookup is cached
    list_poll_interval: seconds between two reads of a watched list
    """

    auth: AuthMode = AuthMode.KEYS
    hosts: frozenset[str] = frozenset()
    max_body: int = 16 * MIB
    max_json_depth: int = 64
    max_batch: int = 1000
    read_timeout: float = 30.0
    rate: float = 1000.0
    burst: float = 2000.0
    auth_failure_rate: float = 1.0
    auth_failure_burst: float = 50.0
    max_streams: int = 10_000
    max_streams_per_key: int = 1000
    keepalive: float = 10.0
    write_timeout: float = 10.0
    stream_buffer: int = 256
    key_cache_ttl: float = 2.0
    list_poll_interval: float = 1.0
