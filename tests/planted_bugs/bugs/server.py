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
from windlass.core.decisions.transition import CancelRequest, Transition
from windlass.core.job.row import JobRow
from windlass.server.auth import authenticator
from windlass.server.auth.api_keys import ApiKey
from windlass.server.auth.authenticator import Authenticator
from windlass.server.auth.caller import Caller
from windlass.server.auth.tickets import TICKET, Tickets, _hash
from windlass.server.remote import apply_access, attempt_reports, task_tokens
from windlass.server.streaming import event_encoder
from windlass.server.streaming.event_encoder import EncodedEvent
from windlass.server.streaming.event_hub import EventHub
from windlass.server.streaming.job_channel import JobChannel, Subscriber
from windlass.server.streaming.sse import EventStream
from windlass.server.streaming.stream_filter import StreamFilter

APPLY = "tests/server/remote/test_apply_access.py::"
AUTH = "tests/server/auth/test_authenticator.py::"
MEETINGS = "tests/planted_bugs/test_race_points.py::"
STREAM = "tests/server/streaming/test_job_stream.py::"
HUB = "tests/server/streaming/test_event_hub.py::"
TOKEN = "tests/core/test_task_token.py::"
WORK = "tests/server/remote/test_worker_api.py::"


# -- authentication and permissions


@caught_by(APPLY + "test_a_request_without_its_kind_is_rejected")
def a_permission_to_cancel_is_enough_to_settle() -> None:
    """All changes of jobs share one method, and one permission: who may cancel may also settle."""
    swap(apply_access, "_permissions", lambda request: apply_access.PERMISSIONS[CancelRequest])


@caught_by(AUTH + "test_a_job_of_another_owner_looks_like_a_missing_job")
def any_key_reads_every_job() -> None:
    """A job id is enough to read the job of another tenant."""
    swap(Caller, "can_see", lambda self, row: True)


@caught_by(AUTH + "test_a_revoked_key_is_rejected_and_its_open_stream_ends", raises=ReadTimeout)
def a_revoked_key_stays_valid() -> None:
    """A cached key is valid until the server restarts."""
    swap(ApiKey, "valid", lambda self, now: True)


@caught_by(AUTH + "test_pages_of_other_sites_cannot_change_anything[headers0-403]")
def any_origin_is_allowed() -> None:
    """A page of another site changes data through its visitor's browser."""
    swap(authenticator, "reject_cross_site", lambda request: None)


@caught_by(AUTH + "test_a_foreign_host_name_is_rejected")
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


@caught_by(WORK + "test_a_valid_token_of_a_stale_lease_is_rejected")
def only_the_signature_is_checked() -> None:
    """A signed token settles whatever attempt runs now."""

    def planted(job: JobRow, *args: Any, **more: Any) -> Transition:
        current = planted.rows[job.id]  # type: ignore[attr-defined]
        return settle(current, *args, **more)

    read = attempt_reports.AttemptReportReader.settlement

    def remembering(self: Any, given: Any, row: JobRow, lease: Any) -> Transition:
        planted.rows = {row.id: row}  # type: ignore[attr-defined]
        return read(self, given, row, lease)

    swap(attempt_reports, "settle", planted)
    swap(attempt_reports.AttemptReportReader, "settlement", remembering)


@caught_by(WORK + "test_an_expired_task_token_is_rejected")
def a_token_never_expires() -> None:
    """A leaked token is valid for as long as its attempt runs."""

    class Never:
        @staticmethod
        def now() -> int:
            return 0

    swap(task_tokens, "SystemClock", Never)
    swap(authenticator, "SystemClock", Never)


# -- streams


@caught_by(HUB + "test_events_between_replay_and_live_reader_are_not_lost")
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


@caught_by(STREAM + "test_a_slow_client_continues_from_the_store")
def a_full_buffer_drops_events() -> None:
    """A slow reader gets a log with gaps."""

    def planted(self: Subscriber, event: EncodedEvent) -> None:
        if len(self._events) < self._limit:
            self._events.append(event)
        self._wakeup.set()

    swap(Subscriber, "put", planted)


@caught_by(STREAM + "test_text_of_an_event_cannot_start_another_sse_field", raises=JSONDecodeError)
def text_is_sent_unescaped() -> None:
    """A line break in a message starts another field of the stream, or another event."""
    swap(event_encoder, "to_json", lambda value: str(value.get("message", value)))


@caught_by(STREAM + "test_a_client_that_does_not_read_is_disconnected", waits=True)
def a_stalled_reader_is_kept() -> None:
    """A connection whose client reads nothing is kept, with all its unsent data."""

    async def planted(self: EventStream, send: Any, body: bytes, *, more: bool = True) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": more})

    swap(EventStream, "_send", planted)


@caught_by(STREAM + "test_a_cursor_at_the_end_returns_no_content", raises=ReadTimeout)
def a_stream_of_a_finished_job_stays_open() -> None:
    """A browser that has received the end reconnects forever."""
    follow = EventHub.follow

    async def planted(
        self: EventHub, job_id: UUID, stream_filter: StreamFilter
    ) -> AsyncGenerator[list[EncodedEvent], None]:
        async for events in follow(self, job_id, stream_filter):
            yield events
        await asyncio.Event().wait()

    swap(EventHub, "follow", planted)
