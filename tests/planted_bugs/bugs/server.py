"""Bugs in the server: authentication, streams and task tokens."""

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
from windlass.server.auth.api_keys import ApiKey
from windlass.server.auth.authenticator import Authenticator, Caller
from windlass.server.auth.tickets import TICKET, Tickets, _hash
from windlass.server.remote import worker_protocol
from windlass.server.streaming import event_format
from windlass.server.streaming.event_format import EventLine
from windlass.server.streaming.hub import EventHub, JobChannel, StreamFilter, Subscriber
from windlass.server.streaming.sse import EventStream

AUTH = "tests/server/auth/test_authenticator.py::"
MEETINGS = "tests/planted_bugs/test_race_points.py::"
STREAM = "tests/server/streaming/test_job_stream.py::"
HUB = "tests/server/streaming/test_hub.py::"
TOKEN = "tests/core/test_task_token.py::"
WORK = "tests/server/remote/test_worker_protocol.py::"


# -- authentication


@caught_by(AUTH + "test_anothers_job_is_as_good_as_none")
def any_key_reads_every_job() -> None:
    """A job id is enough to read the job of another tenant."""
    swap(Caller, "can_see", lambda self, row: True)


@caught_by(AUTH + "test_a_revoked_key_is_refused_and_its_open_stream_ends", raises=ReadTimeout)
def a_revoked_key_stays_valid() -> None:
    """A cached key is valid until the server restarts."""
    swap(ApiKey, "valid", lambda self, now: True)


@caught_by(AUTH + "test_pages_of_other_sites_can_change_nothing[headers0-403]")
def any_origin_is_allowed() -> None:
    """A page of another site changes data through its visitor's browser."""
    swap(authenticator, "reject_cross_site", lambda request: None)


@caught_by(AUTH + "test_a_name_that_is_not_the_servers_is_refused_where_no_key_is_asked_for")
def any_host_name_is_allowed() -> None:
    """A foreign host name that resolves to this machine is accepted (DNS rebinding)."""
    swap(Authenticator, "_check_host", lambda self, request, *, local: None)


@caught_by(MEETINGS + "test_one_of_two_concurrent_uses_of_a_ticket_is_accepted")
def a_ticket_is_read_and_then_deleted() -> None:
    """Two concurrent requests with the same single-use ticket are both accepted."""

    async def planted(self: Tickets, ticket: str) -> tuple[str, str | None] | None:
        [entry] = await self._store.get_records(TICKET, [_hash(ticket)])
        if entry is None:
            return None
        await self._store.delete_records(TICKET, [entry.key])
        fields = json.loads(entry.value)
        return fields["key_id"], fields["session"]

    swap(Tickets, "redeem", planted)


# -- task tokens


@caught_by(TOKEN + "test_of_a_hundred_thousand_mutations_none_is_read")
def base64_is_decoded_leniently() -> None:
    """A token with a changed text stays valid: decoding ignores the difference."""
    written, prefix = task_token._encode, task_token.PREFIX
    decode = base64.urlsafe_b64decode

    def planted(text: str) -> bytes | None:
        body = text.removeprefix(prefix)
        try:
            data = decode(body + "=" * (-len(body) % 4))
        except ValueError:
            return None
        return data if len(written(data)) > 100 else None

    swap(task_token, "_decode", planted)


@caught_by(TOKEN + "test_a_token_of_another_secret_with_the_same_id_is_invalid")
def the_signature_is_not_compared() -> None:
    """A token is accepted without checking its signature."""
    swap(hmac, "compare_digest", lambda one, other: True)


@caught_by(WORK + "test_a_valid_signature_on_a_stale_lease_is_refused")
def only_the_signature_is_checked() -> None:
    """A signed token settles whatever attempt runs now."""

    def planted(job: JobRow, *args: Any, **more: Any) -> Transition:
        current = planted.rows[job.id]  # type: ignore[attr-defined]
        return settle(current, *args, **more)

    read = worker_protocol.RequestReader.settlement

    def remembering(self: Any, given: Any, row: JobRow, lease: Any) -> Transition:
        planted.rows = {row.id: row}  # type: ignore[attr-defined]
        return read(self, given, row, lease)

    swap(worker_protocol, "settle", planted)
    swap(worker_protocol.RequestReader, "settlement", remembering)


@caught_by(WORK + "test_a_token_ends_with_its_time")
def a_token_never_expires() -> None:
    """A leaked token is valid for as long as its attempt runs."""

    class Never:
        @staticmethod
        def now() -> int:
            return 0

    swap(worker_protocol, "SystemClock", Never)
    swap(authenticator, "SystemClock", Never)


# -- streams


@caught_by(HUB + "test_what_came_between_the_log_and_the_live_lines_is_not_missing")
def live_events_start_at_the_reader() -> None:
    """Events are missing between the replay and the live events."""

    def planted(self: EventHub, job_id: UUID, position: int) -> Subscriber | None:
        channel = self._channels.get(job_id)
        if channel is None or channel.ended or not channel.subscribers:
            channel = JobChannel(self._client(), self._codec, job_id, position)
            self._channels[job_id] = channel
        subscriber = Subscriber(channel, self._config.stream_buffer)
        channel.subscribers.add(subscriber)
        return subscriber

    swap(EventHub, "_subscribe", planted)


@caught_by(STREAM + "test_who_falls_behind_reads_on_from_the_store")
def a_full_buffer_drops_events() -> None:
    """A slow reader gets a log with gaps."""

    def planted(self: Subscriber, line: EventLine) -> None:
        if len(self._lines) < self._limit:
            self._lines.append(line)
        self._wakeup.set()

    swap(Subscriber, "put", planted)


@caught_by(STREAM + "test_text_cannot_break_out_of_its_line", raises=JSONDecodeError)
def text_is_sent_unescaped() -> None:
    """A line break in a message starts another field of the stream, or another event."""
    swap(event_format, "to_json", lambda value: str(value.get("message", value)))


@caught_by(STREAM + "test_a_reader_who_takes_nothing_is_cut_off", waits=True)
def a_stalled_reader_is_kept() -> None:
    """A connection whose client reads nothing is kept, with all its unsent data."""

    async def planted(self: EventStream, send: Any, body: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": more})

    swap(EventStream, "_send", planted)


@caught_by(STREAM + "test_a_cursor_at_the_end_is_answered_with_no_content", raises=ReadTimeout)
def a_stream_of_a_finished_job_stays_open() -> None:
    """A browser that has received the end reconnects forever."""
    follow = EventHub.follow

    async def planted(
        self: EventHub, job_id: UUID, selection: StreamFilter
    ) -> AsyncGenerator[list[EventLine], None]:
        async for lines in follow(self, job_id, selection):
            yield lines
        await asyncio.Event().wait()

    swap(EventHub, "follow", planted)
