"""HTTP transport: one connection pool per handle, bound to its event loop."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from threading import Lock

import httpx

from windlass.core.errors import StoreUnavailableError
from windlass.stores import wire_format
from windlass.stores.http.config import HttpConfig
from windlass.stores.http.errors import NOT_SENT, connection_error, os_error, response_error

MAX_CONCURRENT = 32  # calls per handle; further calls wait
# Shorter than the keepalive of servers, so that no connection is closed while it is reused.
KEEPALIVE_SECONDS = 3.0
EXTRA_SECONDS = 10.0  # read timeout beyond the duration of a long poll
_TOO_MANY_REQUESTS = 429


class ServerInfo:
    """State shared by all handles on one server."""

    def __init__(self, config: HttpConfig) -> None:
        self.config = config
        self._lock = Lock()
        self._hello: wire_format.Hello | None = None
        self._ssl_context: ssl.SSLContext | None = None

    @property
    def ssl_context(self) -> ssl.SSLContext | bool:
        """Created once, on first use: it takes about 0.1 s."""
        if not self.config.secure:
            return False
        with self._lock:
            if self._ssl_context is None:
                self._ssl_context = httpx.create_ssl_context()
            return self._ssl_context

    @property
    def headers(self) -> dict[str, str]:
        return {
            **self.config.headers,
            wire_format.PROTOCOL_HEADER: wire_format.PROTOCOL,
            "Content-Type": "application/json",
        }

    def store_hello(self, data: bytes) -> wire_format.Hello:
        hello: wire_format.Hello = wire_format.hello_response().load_response(data)["result"]
        self._hello = hello
        return hello

    @property
    def hello(self) -> wire_format.Hello | None:
        return self._hello

    def fetch_hello(self) -> wire_format.Hello:
        """Fetch the properties of the server from sync code; blocks on the first call."""
        if self._hello is not None:
            return self._hello
        config = self.config
        try:
            with httpx.Client(verify=self.ssl_context, timeout=config.timeout) as client:
                response = client.post(
                    f"{config.base}{wire_format.PATH}/hello", headers=self.headers
                )
        except httpx.HTTPError as error:
            raise connection_error(config, error) from os_error(error)
        if not (response.is_success and _is_json(response)):
            raise response_error(config, response)
        return self.store_hello(response.content)


class Transport:
    """Sends requests. Bound to the event loop and the process of its first call."""

    def __init__(self, server: ServerInfo) -> None:
        self.server = server
        self._client: httpx.AsyncClient | None = None
        self._closer: AsyncGenerator[None, None] | None = None
        self._context: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._calls = 0
        self._idle = asyncio.Event()
        self.closed = False

    def _open(self) -> httpx.AsyncClient:
        if self.closed:
            raise self._closed_error()
        context = os.getpid(), asyncio.get_running_loop()
        if self._client is None or self._context != context:
            config = self.server.config
            self._context = context
            self._client = httpx.AsyncClient(
                base_url=config.base + wire_format.PATH,
                headers=self.server.headers,
                timeout=httpx.Timeout(config.timeout, connect=config.connect_timeout, pool=None),
                limits=httpx.Limits(
                    max_connections=None,
                    max_keepalive_connections=MAX_CONCURRENT,
                    keepalive_expiry=KEEPALIVE_SECONDS,
                ),
                verify=self.server.ssl_context,
            )
            self._closer = _close_with_loop(self._client)
            with suppress(
                StopIteration
            ):  # run to its yield, which registers it with the event loop
                self._closer.asend(None).send(None)
        return self._client

    def _closed_error(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"the store at {self.server.config.base} is closed")

    # -- calls

    async def call(self, method: str, body: bytes) -> httpx.Response:
        """Send one request and return the response; `close` waits for running calls."""
        client = self._open()
        self._calls += 1
        try:
            async with self._slots:
                return await self._send_with_retry(client, method, body)
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def long_poll(
        self, method: str, body: bytes, seconds: float, headers: Mapping[str, str]
    ) -> httpx.Response:
        """Send a request that takes up to `seconds`; `close` does not wait for it."""
        timeout = httpx.Timeout(
            seconds + EXTRA_SECONDS, connect=self.server.config.connect_timeout, pool=None
        )
        return await self._send_with_retry(
            self._open(), method, body, timeout=timeout, headers=headers
        )

    async def _send_with_retry(
        self,
        client: httpx.AsyncClient,
        method: str,
        body: bytes,
        *,
        timeout: httpx.Timeout | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Retry requests that were not sent or were rate limited.

        Other failures are not retried: the outcome of the request is unknown.
        """
        config = self.server.config
        pauses, waited = list(config.connect_retries), 0.0
        request = client.build_request(
            "POST", f"/{method}", content=body, headers=headers, timeout=timeout or client.timeout
        )
        while True:
            try:
                response = await client.send(request)
            except NOT_SENT as error:
                if not pauses:
                    raise connection_error(config, error) from os_error(error)
                await config.sleep(pauses.pop(0))
                continue
            except httpx.HTTPError as error:
                raise connection_error(config, error) from os_error(error)
            except RuntimeError as error:  # raised by httpx if the client was closed meanwhile
                raise self._closed_error() from error
            if response.is_success and _is_json(response):
                return response
            pause = _pause(response)
            if pause is None or waited + pause > config.rate_limit_wait:
                raise response_error(config, response)
            waited += pause
            await config.sleep(pause)

    async def hello(self) -> wire_format.Hello:
        if self.server.hello is not None:
            return self.server.hello
        return self.server.store_hello((await self.call("hello", b"")).content)

    # -- streams

    @asynccontextmanager
    async def stream(self, method: str, body: bytes) -> AsyncIterator[httpx.Response]:
        """Open a streaming response. The reader detects a silent connection."""
        config = self.server.config
        timeout = httpx.Timeout(
            config.timeout, connect=config.connect_timeout, read=None, pool=None
        )
        try:
            async with self._open().stream(
                "POST", f"/{method}", content=body, timeout=timeout
            ) as response:
                if not response.is_success or wire_format.KEEPALIVE_HEADER not in response.headers:
                    await response.aread()
                    raise response_error(config, response)
                yield response
        except httpx.HTTPError as error:
            raise connection_error(config, error) from os_error(error)

    # -- closing

    async def close(self) -> None:
        self.closed = True
        closer, self._closer, self._client = self._closer, None, None
        if closer is None or self._context != (os.getpid(), asyncio.get_running_loop()):
            return  # its connections were closed with their loop, or belong to another process
        while self._calls:
            self._idle.clear()
            await self._idle.wait()
        await closer.aclose()


async def _close_with_loop(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    """Close the client when the event loop shuts down its async generators, or earlier."""
    try:
        yield
    finally:
        await client.aclose()


def _is_json(response: httpx.Response) -> bool:
    """Return whether the response may come from a Windlass server."""
    content_type: str = response.headers.get("content-type", "")
    return content_type.startswith("application/json")


def _pause(response: httpx.Response) -> float | None:
    """Return the seconds to wait before a retry; None if the request was not rate limited."""
    if response.status_code != _TOO_MANY_REQUESTS:
        return None
    after = response.headers.get("retry-after", "1")
    return float(after) if after.isascii() and after.isdigit() else 1.0
