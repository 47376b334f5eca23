"""Task tokens: signed leases for workers that use the HTTP protocol.

    wt_ + base64url(version, key id, job, fence, lease token, expiry, queue, receipt, API key id,
                    HMAC-SHA256)

The signature proves that a server of this store issued the lease. The job's row decides whether
the lease is still held: a valid token of a lost lease is answered `stale`.
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
MAX_LENGTH = 8192  # characters; queue names and receipts are much shorter
_VERSION = 1
_HEAD = struct.Struct(
    f">B{KEY_ID}s16sQ16sQHHH"
)  # the last three are the lengths of the strings that follow
_MAC = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskToken:
    """`receipt` is an opaque value that a transport needs back with the job.

    `api_key_id` names the API key that claimed the job, if any. The token is valid only while that
    key is.
    """

    lease: Lease
    queue: str
    expires_at: Instant
    receipt: str = ""
    api_key_id: str = ""

    def signed(self, key_id: bytes, secret: bytes) -> str:
        """Return the signed token as text."""
        body = self._body(key_id)
        return _encode(body + hmac.digest(secret, body, "sha256"))

    def _body(self, key_id: bytes) -> bytes:
        strings = [text.encode() for text in (self.queue, self.receipt, self.api_key_id)]
        head = _HEAD.pack(
            _VERSION,
            key_id,
            self.lease.job_id.bytes,
            self.lease.fence,
            self.lease.token.bytes,
            self.expires_at,
            *map(len, strings),
        )
        return head + b"".join(strings)


def signing_key_id(text: str) -> bytes | None:
    """Return the id of the signing key that a token names; None if the token is malformed."""
    data = _decode(text)
    return None if data is None else data[1 : 1 + KEY_ID]


def verify_token(text: str, secrets: Mapping[bytes, bytes]) -> TaskToken | None:
    """Return the token if one of these keys (by id) signed it; does not check its expiry."""
    data = _decode(text)
    if data is None:
        return None
    body, signature = data[:-_MAC], data[-_MAC:]
    secret = secrets.get(body[1 : 1 + KEY_ID])
    if secret is None or not hmac.compare_digest(signature, hmac.digest(secret, body, "sha256")):
        return None
    version, _, job_id, fence, token, expires_at, queue, receipt, api_key_id = _HEAD.unpack_from(
        body
    )
    rest = body[_HEAD.size :]
    if version != _VERSION or len(rest) != queue + receipt + api_key_id:
        return None
    return TaskToken(
        lease=Lease(UUID(bytes=job_id), fence, UUID(bytes=token)),
        queue=rest[:queue].decode(),
        receipt=rest[queue : queue + receipt].decode(),
        api_key_id=rest[queue + receipt :].decode(),
        expires_at=expires_at,
    )


def _encode(data: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes | None:
    if not text.startswith(PREFIX) or len(text) > MAX_LENGTH or not text.isascii():
        return None
    encoded = text[len(PREFIX) :]
    try:
        data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (ValueError, binascii.Error):
        return None
    # base64 decoding is lenient: only the canonical encoding is accepted.
    if len(data) < _HEAD.size + _MAC or _encode(data) != text:
        return None
    return data
