"""Configuration of the HTTP store: URL, API key, timeouts and retries."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from windlass.core.errors import InvalidArgumentError
from windlass.stores.urls import split

_KEY = re.compile(r"wl_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """Configuration of one server.

    url: URL of the server, without a key
    key: API key; None if the server requires none
    timeout: seconds to wait for a response
    connect_timeout: seconds to wait for a connection
    connect_retries: seconds before each retry of a request that was not sent
    rate_limit_wait: total seconds that a call waits when the server limits its rate (HTTP 429)
    reconnect_delays: seconds before each attempt to reopen a broken event stream
    """

    url: str
    key: str | None = field(default=None, repr=False)
    timeout: float = 30.0
    connect_timeout: float = 5.0
    connect_retries: tuple[float, ...] = (0.1, 0.4)
    rate_limit_wait: float = 10.0
    reconnect_delays: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)
    sleep: Callable[[float], Awaitable[object]] = field(default=asyncio.sleep, repr=False)

    def __post_init__(self) -> None:
        split(self.url)
        if self.key is not None and not _KEY.fullmatch(self.key):
            raise InvalidArgumentError(
                "malformed API key: expected wl_, twelve hexadecimal digits, _ and the secret; "
                "`windlass keys create` shows the whole key once"
            )

    @property
    def base(self) -> str:
        return self.url.rstrip("/")

    @property
    def secure(self) -> bool:
        return self.url.startswith("https:")

    @property
    def key_id(self) -> str | None:
        """Public part of the key."""
        match = None if self.key is None else _KEY.fullmatch(self.key)
        return None if match is None else match[1]

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
