"""Task tokens: what a worker somewhere else shows, to speak for one attempt.

    wt_ + base64url(version, key id, job, fence, lease token, expiry, queue, receipt, holder,
                    HMAC-SHA256)

The signature says that this lease was given out here. Whether it is still held, the job's row says:
a token of a lease that is gone is answered `stale`, however well it is signed.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.job.lease import Lease

PREFIX = "wt_"
KEY_ID = 8  # bytes
MAX_LENGTH = 8192  # characters; a queue's name and a receipt are far below
_VERSION = 1
_HEAD = struct.Struct(f">B{KEY_ID}s16sQ16sQHHH")  # the last three are lengths, of what follows
_MAC = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskToken:
    """`receipt` is what a transport wants back with the job, if it wants anything.

    `holder` is the id of the API key that the job was claimed with, if it was: it is good for as
    long as that is.
    """

    lease: Lease
    queue: str
    expires_at: Instant
    receipt: str = ""
    holder: str = ""

    def signed(self, key_id: bytes, secret: bytes) -> str:
        body = self._body(key_id)
        return _written(body + hmac.digest(secret, body, "sha256"))

    def _body(self, key_id: bytes) -> bytes:
        rest = [text.encode() for text in (self.queue, self.receipt, self.holder)]
        head = _HEAD.pack(
            _VERSION,
            key_id,
            self.lease.job_id.bytes,
            self.lease.fence,
            self.lease.token.bytes,
            self.expires_at,
            *map(len, rest),
        )
        return head + b"".join(rest)


def key_of(text: str) -> bytes | None:
    """The id of the key that it says to be signed with; None for what has not a token's form."""
    data = _bytes(text)
    return None if data is None else data[1 : 1 + KEY_ID]


def read(text: str, secrets: Mapping[bytes, bytes]) -> TaskToken | None:
    """The token, if one of these keys (by id) signed it to the letter; its expiry is not judged."""
    data = _bytes(text)
    if data is None:
        return None
    body, signature = data[:-_MAC], data[-_MAC:]
    secret = secrets.get(body[1 : 1 + KEY_ID])
    if secret is None or not hmac.compare_digest(signature, hmac.digest(secret, body, "sha256")):
        return None
    version, _, job_id, fence, token, expires_at, queue, receipt, holder = _HEAD.unpack_from(body)
    rest = body[_HEAD.size :]
    if version != _VERSION or len(rest) != queue + receipt + holder:
        return None
    return TaskToken(
        lease=Lease(UUID(bytes=job_id), fence, UUID(bytes=token)),
        queue=rest[:queue].decode(),
        receipt=rest[queue : queue + receipt].decode(),
        holder=rest[queue + receipt :].decode(),
        expires_at=expires_at,
    )


def _written(data: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes | None:
    if not text.startswith(PREFIX) or len(text) > MAX_LENGTH or not text.isascii():
        return None
    encoded = text[len(PREFIX) :]
    try:
        data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (ValueError, binascii.Error):
        return None
    # Decoding is lenient: other letters may mean the same bytes. Only one way of writing counts.
    if len(data) < _HEAD.size + _MAC or _written(data) != text:
        return None
    return data
