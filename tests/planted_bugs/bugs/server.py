"""Mistakes in the server: at its door, in its streams, with task tokens."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import AsyncGenerator
from json import JSONDecodeError
from typing import Any
from uuid import UUID

from httpx import ReadTimeout
from tests.planted_bugs.bug import caught_by, swap

from windlass.core import task_token
from windlass.core.decisions.outcome import settle
from windlass.core.decisions.transition import Transition
from windlass.core.job.row import JobRow
from windlass.server.auth import authenticator
from windlass.server.auth.api_keys import Key
from windlass.server.auth.authenticator import Caller, Doorkeeper
from windlass.server.auth.tickets import TICKET, Tickets, _hash
from windlass.server.remote import worker_protocol
from windlass.server.streaming import event_format
from windlass.server.streaming.event_format import Line
from windlass.server.streaming.hub import Channel, Hub, Listener, Wanted
from windlass.server.streaming.sse import EventStream

DOOR = "tests/server/auth/test_authenticator.py::"
MEETINGS = "tests/planted_bugs/test_race_points.py::"
STREAM = "tests/server/streaming/test_job_stream.py::"
HUB = "tests/server/streaming/test_hub.py::"
TOKEN = "tests/core/test_task_token.py::"
WORK = "tests/server/remote/test_worker_protocol.py::"


# -- the door


@caught_by(DOOR + "test_anothers_job_is_as_good_as_none")
def whoever_has_a_key_sees_every_job() -> None:
    """An id is all that it takes to read another tenant's job."""
    swap(Caller, "sees", lambda self, row: True)


@caught_by(DOOR + "test_a_revoked_key_is_refused_and_its_open_stream_ends", raises=ReadTimeout)
def a_revoked_key_stays_good() -> None:
    """A key that was looked up once is good for as long as the server runs."""
    swap(Key, "valid", lambda self, now: True)


@caught_by(DOOR + "test_pages_of_other_sites_can_change_nothing[headers0-403]")
def any_page_may_ask() -> None:
    """A page of another site makes its visitor's browser change things here."""
    swap(authenticator, "check_site", lambda request: None)


@caught_by(DOOR + "test_a_name_that_is_not_the_servers_is_refused_where_no_key_is_asked_for")
def any_name_will_do() -> None:
    """A name that leads to this machine makes its browser ask for somebody else."""
    swap(Doorkeeper, "_check_host", lambda self, request, *, at_home: None)


@caught_by(MEETINGS + "test_of_two_who_read_the_same_ticket_one_is_let_in")
def a_ticket_is_read_and_then_deleted() -> None:
    """Two who bring the same single-use ticket at once are both let in."""

    async def planted(self: Tickets, ticket: str) -> tuple[str, str | None] | None:
        [entry] = await self._store.get_records(TICKET, [_hash(ticket)])
        if entry is None:
            return None
        await self._store.delete_records(TICKET, [entry.key])
        facts = json.loads(entry.value)
        return facts["key_id"], facts["session"]

    swap(Tickets, "redeem", planted)


# -- task tokens


@caught_by(TOKEN + "test_of_a_hundred_thousand_mutations_none_is_read")
def base64_is_read_as_it_comes() -> None:
    """A token whose text was changed is as good as it was: decoding passes over the difference."""
    written, prefix = task_token._written, task_token.PREFIX
    decode = base64.urlsafe_b64decode

    def planted(text: str) -> bytes | None:
        body = text.removeprefix(prefix)
        try:
            data = decode(body + "=" * (-len(body) % 4))
        except ValueError:
            return None
        return data if len(written(data)) > 100 else None

    swap(task_token, "_bytes", planted)


@caught_by(TOKEN + "test_another_secret_of_the_same_name_reads_nothing")
def the_signature_is_not_compared() -> None:
    """A token is taken for what it says."""
    swap(hmac, "compare_digest", lambda one, other: True)


@caught_by(WORK + "test_a_valid_signature_on_a_stale_lease_is_refused")
def a_signature_is_all_that_counts() -> None:
    """A token that was signed once settles whatever attempt is running by now."""

    def planted(job: JobRow, *args: Any, **more: Any) -> Transition:
        current = planted.rows[job.id]  # type: ignore[attr-defined]
        return settle(current, *args, **more)

    read = worker_protocol.Reader.settlement

    def remembering(self: Any, given: Any, row: JobRow, lease: Any) -> Transition:
        planted.rows = {row.id: row}  # type: ignore[attr-defined]
        return read(self, given, row, lease)

    swap(worker_protocol, "settle", planted)
    swap(worker_protocol.Reader, "settlement", remembering)


@caught_by(WORK + "test_a_token_ends_with_its_time")
def a_token_lasts_for_good() -> None:
    """A token that leaked speaks for its attempt for as long as that lasts."""

    class Never:
        @staticmethod
        def now() -> int:
            return 0

    swap(worker_protocol, "SystemClock", Never)
    swap(authenticator, "SystemClock", Never)


# -- streams


@caught_by(HUB + "test_what_came_between_the_log_and_the_live_lines_is_not_missing")
def live_begins_where_the_reader_is() -> None:
    """Between what was replayed and what comes live, events are missing."""

    def planted(self: Hub, job_id: UUID, seen: int) -> Listener | None:
        channel = self._channels.get(job_id)
        if channel is None or channel.ended or not channel.listeners:
            channel = Channel(self._client(), self._codec, job_id, seen)
            self._channels[job_id] = channel
        listener = Listener(channel, self._config.buffer)
        channel.listeners.add(listener)
        return listener

    swap(Hub, "_join", planted)


@caught_by(STREAM + "test_who_falls_behind_reads_on_from_the_store")
def a_full_buffer_drops_what_comes() -> None:
    """Who reads slowly is told a story with holes in it."""

    def planted(self: Listener, line: Line) -> None:
        if len(self._lines) < self._limit:
            self._lines.append(line)
        self._news.set()

    swap(Listener, "put", planted)


@caught_by(STREAM + "test_text_cannot_break_out_of_its_line", raises=JSONDecodeError)
def text_is_sent_as_it_is() -> None:
    """A line break in a message begins another field of the stream, or another event."""
    swap(event_format, "dumped", lambda value: str(value.get("message", value)))


@caught_by(STREAM + "test_a_reader_who_takes_nothing_is_cut_off", waits=True)
def a_reader_who_takes_nothing_is_waited_for() -> None:
    """A connection that nobody reads from is kept, with all that waits to be sent."""

    async def planted(self: EventStream, send: Any, body: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": more})

    swap(EventStream, "_send", planted)


@caught_by(STREAM + "test_a_cursor_at_the_end_is_answered_with_no_content", raises=ReadTimeout)
def a_stream_of_a_finished_job_stays_open() -> None:
    """A browser that has seen the end asks again, for ever."""
    follow = Hub.follow

    async def planted(self: Hub, job_id: UUID, wanted: Wanted) -> AsyncGenerator[list[Line], None]:
        async for several in follow(self, job_id, wanted):
            yield several
        await asyncio.Event().wait()

    swap(Hub, "follow", planted)
