"""The way to the server: one pool of connections for each handle, on its event loop."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from threading import Lock

import httpx

from windlass.core.errors import StoreUnavailableError
from windlass.stores import rpc
from windlass.stores.http.config import HttpConfig
from windlass.stores.http.errors import NOT_SENT, lost, os_error, refused

AT_ONCE = 32  # calls of one handle; others wait for their turn
IDLE = 3.0  # seconds that a connection is kept; less than servers do, so that none is cut in use
WAIT_LONGER = 10.0  # seconds beyond those that a call is to last by itself
_TOO_OFTEN = 429


class Server:
    """What all handles on one server share."""

    def __init__(self, config: HttpConfig) -> None:
        self.config = config
        self._lock = Lock()
        self._hello: rpc.Hello | None = None
        self._trust: ssl.SSLContext | None = None

    @property
    def trust(self) -> ssl.SSLContext | bool:
        """Made once, and only where it is needed: it takes a tenth of a second."""
        if not self.config.secure:
            return False
        with self._lock:
            if self._trust is None:
                self._trust = httpx.create_ssl_context()
            return self._trust

    @property
    def headers(self) -> dict[str, str]:
        return {
            **self.config.headers,
            rpc.PROTOCOL_HEADER: rpc.PROTOCOL,
            "Content-Type": "application/json",
        }

    def heard(self, data: bytes) -> rpc.Hello:
        hello: rpc.Hello = rpc.greeting().hear(data)["answer"]
        self._hello = hello
        return hello

    @property
    def known(self) -> rpc.Hello | None:
        return self._hello

    def ask(self) -> rpc.Hello:
        """For who cannot wait by awaiting; it blocks, once."""
        if self._hello is not None:
            return self._hello
        config = self.config
        try:
            with httpx.Client(verify=self.trust, timeout=config.timeout) as client:
                response = client.post(f"{config.base}{rpc.PATH}/hello", headers=self.headers)
        except httpx.HTTPError as error:
            raise lost(config, error) from os_error(error)
        if not (response.is_success and _is_json(response)):
            raise refused(config, response)
        return self.heard(response.content)


class Line:
    """Carries messages. It belongs to the event loop, and the process, of its first call."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._client: httpx.AsyncClient | None = None
        self._life: AsyncGenerator[None, None] | None = None
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._calls = 0
        self._idle = asyncio.Event()
        self.closed = False

    def _open(self) -> httpx.AsyncClient:
        if self.closed:
            raise self._is_closed()
        home = os.getpid(), asyncio.get_running_loop()
        if self._client is None or self._home != home:
            config = self.server.config
            self._home = home
            self._client = httpx.AsyncClient(
                base_url=config.base + rpc.PATH,
                headers=self.server.headers,
                timeout=httpx.Timeout(config.timeout, connect=config.connect, pool=None),
                limits=httpx.Limits(
                    max_connections=None, max_keepalive_connections=AT_ONCE, keepalive_expiry=IDLE
                ),
                verify=self.server.trust,
            )
            self._life = _life(self._client)
            with suppress(StopIteration):  # to its yield, where the event loop gets to know it
                self._life.asend(None).send(None)
        return self._client

    def _is_closed(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"the store at {self.server.config.base} is closed")

    # -- calls

    async def call(self, verb: str, body: bytes) -> httpx.Response:
        """Ask once, and answer what came; a call under way keeps the line from closing."""
        client = self._open()
        self._calls += 1
        try:
            async with self._turns:
                return await self._insist(client, verb, body)
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()

    async def last(
        self, verb: str, body: bytes, seconds: float, headers: Mapping[str, str]
    ) -> httpx.Response:
        """The same for a call that lasts so long by itself; closing does not wait for it."""
        timeout = httpx.Timeout(
            seconds + WAIT_LONGER, connect=self.server.config.connect, pool=None
        )
        return await self._insist(self._open(), verb, body, timeout=timeout, headers=headers)

    async def _insist(
        self,
        client: httpx.AsyncClient,
        verb: str,
        body: bytes,
        *,
        timeout: httpx.Timeout | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Repeat what did not arrive, and what came too often; nothing else, for nobody knows."""
        config = self.server.config
        pauses, waited = list(config.again), 0.0
        request = client.build_request(
            "POST", f"/{verb}", content=body, headers=headers, timeout=timeout or client.timeout
        )
        while True:
            try:
                response = await client.send(request)
            except NOT_SENT as error:
                if not pauses:
                    raise lost(config, error) from os_error(error)
                await config.sleep(pauses.pop(0))
                continue
            except httpx.HTTPError as error:
                raise lost(config, error) from os_error(error)
            except RuntimeError as error:  # httpx's word for a client that was closed meanwhile
                raise self._is_closed() from error
            if response.is_success and _is_json(response):
                return response
            pause = _pause(response)
            if pause is None or waited + pause > config.patience:
                raise refused(config, response)
            waited += pause
            await config.sleep(pause)

    async def hello(self) -> rpc.Hello:
        known = self.server.known
        if known is not None:
            return known
        return self.server.heard((await self.call("hello", b"")).content)

    # -- streams

    @asynccontextmanager
    async def stream(self, verb: str, body: bytes) -> AsyncIterator[httpx.Response]:
        """The beginning of an answer that goes on; silence is for the reader to notice."""
        config = self.server.config
        timeout = httpx.Timeout(config.timeout, connect=config.connect, read=None, pool=None)
        try:
            async with self._open().stream(
                "POST", f"/{verb}", content=body, timeout=timeout
            ) as response:
                if not response.is_success or rpc.KEEPALIVE_HEADER not in response.headers:
                    await response.aread()
                    raise refused(config, response)
                yield response
        except httpx.HTTPError as error:
            raise lost(config, error) from os_error(error)

    # -- the end

    async def close(self) -> None:
        self.closed = True
        life, self._life, self._client = self._life, None, None
        if life is None or self._home != (os.getpid(), asyncio.get_running_loop()):
            return  # its connections ended with their event loop, or are another process's
        while self._calls:
            self._idle.clear()
            await self._idle.wait()
        await life.aclose()


async def _life(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    """Ends with its event loop, if nobody ends it before: so no connection outlives its loop."""
    try:
        yield
    finally:
        await client.aclose()


def _is_json(response: httpx.Response) -> bool:
    """Whether a Windlass may have written it."""
    kind: str = response.headers.get("content-type", "")
    return kind.startswith("application/json")


def _pause(response: httpx.Response) -> float | None:
    """How long to wait before asking again, if the server refused to hear the call."""
    if response.status_code != _TOO_OFTEN:
        return None
    after = response.headers.get("retry-after", "1")
    return float(after) if after.isascii() and after.isdigit() else 1.0
