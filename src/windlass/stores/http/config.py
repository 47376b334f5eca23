"""Where a server is, what opens its door, and how patient a handle is with it."""

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
    """`url` is the server's, without a key in it.

    key: an API key of the server; None where it asks for none
    timeout: seconds for an answer, once the server was reached
    connect: seconds to reach it
    again: seconds before each further attempt to reach it; a call that did not arrive is repeated
    patience: seconds for which a call waits in all when the server says that it comes too often
    reconnect: seconds before each further attempt to follow a job, after its stream broke
    """

    url: str
    key: str | None = field(default=None, repr=False)
    timeout: float = 30.0
    connect: float = 5.0
    again: tuple[float, ...] = (0.1, 0.4)
    patience: float = 10.0
    reconnect: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)
    sleep: Callable[[float], Awaitable[object]] = field(default=asyncio.sleep, repr=False)

    def __post_init__(self) -> None:
        split(self.url)
        if self.key is not None and not _KEY.fullmatch(self.key):
            raise InvalidArgumentError(
                "the key has not the form of an API key, which is wl_, then twelve characters, _ "
                "and the secret; `windlass keys create` shows it whole, once"
            )

    @property
    def base(self) -> str:
        return self.url.rstrip("/")

    @property
    def secure(self) -> bool:
        return self.url.startswith("https:")

    @property
    def key_id(self) -> str | None:
        """What may be told of the key."""
        found = None if self.key is None else _KEY.fullmatch(self.key)
        return None if found is None else found[1]

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
