"""Codecs: values to bytes and back, as JSON or encrypted with AES-GCM. Never pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from hashlib import blake2b
from json.encoder import c_make_encoder as _make_encoder  # type: ignore[attr-defined]
from json.encoder import encode_basestring
from typing import Any, Protocol

from windlass.core.errors import CodecError

_MAX_DEPTH = 100
_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_decoder = json.JSONDecoder()
# Skips the search for whitespace around the value, which would double the time.
_scan = _decoder.scan_once  # type: ignore[attr-defined]
DIGEST = 16


class Purpose(StrEnum):
    """Kind of data. A ciphertext made for one purpose cannot be decrypted as another."""

    PAYLOAD = "payload"
    RESULT = "result"
    CHECKPOINT = "checkpoint"
    ERROR = "error"
    EVENT = "event"


class Codec(Protocol):
    def encode(self, value: Any, purpose: Purpose) -> bytes: ...

    def decode(self, data: bytes, purpose: Purpose) -> Any: ...

    def digest(self, value: Any) -> bytes:
        """Return a digest: equal for equal values, and as confidential as the encoded bytes."""
        ...


class JsonCodec:
    """Compact UTF-8 JSON. Names the path of a value that JSON cannot represent."""

    __slots__ = ()

    def encode(self, value: Any, purpose: Purpose) -> bytes:
        if value is None:
            return b"null"
        try:
            return _write(value).encode()
        except (TypeError, ValueError, RecursionError) as error:
            where = _find_invalid(value) or "the value"
            raise CodecError(f"cannot encode the {purpose} as JSON: {where}: {error}") from None

    def decode(self, data: bytes, purpose: Purpose) -> Any:
        try:
            text = data.decode()
            try:
                value, end = _scan(text, 0)
                if end == len(text):
                    return value
            except StopIteration:
                pass
            return _decoder.decode(text)  # whitespace around the value, or invalid JSON
        except (ValueError, RecursionError) as error:
            raise CodecError(
                f"the {purpose} is not JSON ({error}); was it encoded by another codec?"
            ) from None

    def digest(self, value: Any) -> bytes:
        plain = self.encode(value, Purpose.PAYLOAD)
        # Sorted: equal objects may have their keys in any order.
        ordered = json.dumps(json.loads(plain), sort_keys=True, separators=(",", ":"))
        return blake2b(ordered.encode(), digest_size=DIGEST).digest()


def _writer() -> Callable[[Any], str]:
    """Return a faster `JSONEncoder.encode`, which would create the C encoder for each value.

    The encoder is created once, without markers against circular references: an error would leave
    them behind. The recursion limit detects a value that contains itself.
    """
    if _make_encoder is None:  # this Python has no C encoder
        return _encoder.encode
    pieces = _make_encoder(
        None, _encoder.default, encode_basestring, None, ":", ",", False, False, False
    )
    return lambda value: "".join(pieces(value, 0))


_write = _writer()


def _find_invalid(value: Any, path: str = "", depth: int = 0) -> str | None:
    """Return the path of the first value that JSON cannot represent."""
    if depth > _MAX_DEPTH:
        return f"{path[:80]}… is nested too deeply"
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str | int | float | bool | None):
                return f"{path or 'the value'} has the key {_show(key)}"
            if found := _find_invalid(item, f"{path}.{key}" if path else str(key), depth + 1):
                return found
        return None
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if found := _find_invalid(item, f"{path}[{index}]", depth + 1):
                return found
        return None
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):
        return f"{path or 'the value'} is {_show(value)}"
    return None


def _show(value: Any) -> str:
    try:
        return f"{value!r:.120}"
    except Exception:  # noqa: BLE001 - the message must not fail because of a broken repr
        return f"a {type(value).__name__} whose repr fails"


class EncryptingCodec:
    """AES-256-GCM around another codec. Needs `pip install 'windlass[crypto]'`.

    Format: version, length of the key id, key id, nonce, ciphertext with tag. The purpose is
    authenticated. The first key encrypts and all keys decrypt, so that keys can be rotated.
    """

    VERSION = 1
    NONCE = 12
    KEY = 32

    def __init__(self, keys: Mapping[str, bytes], inner: Codec | None = None) -> None:
        try:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an optional package
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
        except ImportError:
            raise CodecError(
                "encryption needs the cryptography package: pip install 'windlass[crypto]'"
            ) from None
        if not keys:
            raise CodecError("encryption needs at least one key")
        for name, key in keys.items():
            if len(key) != self.KEY or not 0 < len(name.encode()) < 256:  # noqa: PLR2004 - a byte
                raise CodecError(
                    f"key {name!r} has {len(key)} bytes; a key must be 32 random bytes, "
                    "os.urandom(32), and its id 1 to 255 bytes"
                )
        self._invalid_tag = InvalidTag
        self._ciphers = {name.encode(): AESGCM(key) for name, key in keys.items()}
        self._current = next(iter(keys)).encode()
        # The oldest key: digests stay comparable during key rotation, until it is removed.
        self._digest_key = list(keys.values())[-1]
        self._inner: Codec = inner or JsonCodec()

    def encode(self, value: Any, purpose: Purpose) -> bytes:
        plain = self._inner.encode(value, purpose)
        nonce = os.urandom(self.NONCE)
        sealed = self._ciphers[self._current].encrypt(nonce, plain, purpose.value.encode())
        return bytes([self.VERSION, len(self._current)]) + self._current + nonce + sealed

    def decode(self, data: bytes, purpose: Purpose) -> Any:
        if len(data) < 2 + self.NONCE or data[0] != self.VERSION:
            raise CodecError(f"the {purpose} was not encoded by the encrypting codec")
        start = 2 + data[1]
        if len(data) < start + self.NONCE:
            raise CodecError(f"the {purpose} is truncated to {len(data)} bytes")
        name = bytes(data[2:start])
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise CodecError(
                f"the {purpose} was encrypted with key {name.decode(errors='replace')!r}, "
                "which is missing here; add it to the keys of EncryptingCodec"
            )
        nonce, sealed = data[start : start + self.NONCE], data[start + self.NONCE :]
        try:
            plain = cipher.decrypt(nonce, sealed, purpose.value.encode())
        except self._invalid_tag:
            raise CodecError(
                f"the {purpose} cannot be decrypted: wrong key, or the bytes were modified"
            ) from None
        return self._inner.decode(plain, purpose)

    def digest(self, value: Any) -> bytes:
        plain = self._inner.digest(value)
        return blake2b(plain, digest_size=DIGEST, key=self._digest_key).digest()
