"""Values to bytes and back: JSON, or AES-GCM for stores that must stay blind. Never pickle."""

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
# Without a look for space around the value, which takes as long again.
_scan = _decoder.scan_once  # type: ignore[attr-defined]
DIGEST = 16


class Purpose(StrEnum):
    """What the bytes are. A ciphertext made for one purpose does not open under another."""

    PAYLOAD = "payload"
    RESULT = "result"
    CHECKPOINT = "checkpoint"
    ERROR = "error"
    EVENT = "event"


class Codec(Protocol):
    def encode(self, value: Any, purpose: Purpose) -> bytes: ...

    def decode(self, data: bytes, purpose: Purpose) -> Any: ...

    def digest(self, value: Any) -> bytes:
        """Equal for equal values, and no more telling about them than the encoded bytes are."""
        ...


class JsonCodec:
    """Compact UTF-8 JSON. Refuses what JSON cannot carry, and says where it is."""

    __slots__ = ()

    def encode(self, value: Any, purpose: Purpose) -> bytes:
        if value is None:
            return b"null"
        try:
            return _write(value).encode()
        except (TypeError, ValueError, RecursionError) as error:
            where = _culprit(value) or "the value"
            raise CodecError(f"the {purpose} cannot be written as JSON: {where}: {error}") from None

    def decode(self, data: bytes, purpose: Purpose) -> Any:
        try:
            text = data.decode()
            try:
                value, end = _scan(text, 0)
                if end == len(text):
                    return value
            except StopIteration:
                pass
            return _decoder.decode(text)  # there is space around it, or it is wrong
        except (ValueError, RecursionError) as error:
            raise CodecError(
                f"the {purpose} is not JSON ({error}); was it written by another codec?"
            ) from None

    def digest(self, value: Any) -> bytes:
        plain = self.encode(value, Purpose.PAYLOAD)
        # Sorted, because equal objects may come with their keys in any order.
        ordered = json.dumps(json.loads(plain), sort_keys=True, separators=(",", ":"))
        return blake2b(ordered.encode(), digest_size=DIGEST).digest()


def _writer() -> Callable[[Any], str]:
    """The encoder's `encode`, which makes anew what it works with for each value: once is enough.

    Without its notes of what it is inside of, which an error would leave behind: a value that
    contains itself is found by its depth.
    """
    if _make_encoder is None:  # this Python has none of its own
        return _encoder.encode
    pieces = _make_encoder(
        None, _encoder.default, encode_basestring, None, ":", ",", False, False, False
    )
    return lambda value: "".join(pieces(value, 0))


_write = _writer()


def _culprit(value: Any, path: str = "", depth: int = 0) -> str | None:
    """The path to the first thing that JSON cannot carry."""
    if depth > _MAX_DEPTH:
        return f"{path[:80]}… is nested too deeply"
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str | int | float | bool | None):
                return f"{path or 'the value'} has the key {_show(key)}"
            if found := _culprit(item, f"{path}.{key}" if path else str(key), depth + 1):
                return found
        return None
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if found := _culprit(item, f"{path}[{index}]", depth + 1):
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
    except Exception:  # noqa: BLE001 - a value that cannot even be shown is still to be named
        return f"a {type(value).__name__} that cannot be shown"


class EncryptingCodec:
    """AES-256-GCM around another codec. Needs `pip install 'windlass[crypto]'`.

    Bytes are: version, length of the key's id, the id, nonce, ciphertext with tag. The purpose is
    authenticated. The first key encrypts; all of them decrypt, so that keys can be rotated.
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
                    f"key {name!r} has {len(key)} bytes; a key is 32 random bytes "
                    "under an id of 1 to 255 bytes: os.urandom(32)"
                )
        self._invalid_tag = InvalidTag
        self._ciphers = {name.encode(): AESGCM(key) for name, key in keys.items()}
        self._current = next(iter(keys)).encode()
        # The oldest key: digests stay comparable while keys are rotated, until it is taken out.
        self._digest_key = list(keys.values())[-1]
        self._inner: Codec = inner or JsonCodec()

    def encode(self, value: Any, purpose: Purpose) -> bytes:
        plain = self._inner.encode(value, purpose)
        nonce = os.urandom(self.NONCE)
        sealed = self._ciphers[self._current].encrypt(nonce, plain, purpose.value.encode())
        return bytes([self.VERSION, len(self._current)]) + self._current + nonce + sealed

    def decode(self, data: bytes, purpose: Purpose) -> Any:
        if len(data) < 2 + self.NONCE or data[0] != self.VERSION:
            raise CodecError(f"the {purpose} was not written by the encrypting codec")
        start = 2 + data[1]
        if len(data) < start + self.NONCE:
            raise CodecError(f"the {purpose} was cut short: {len(data)} bytes are left of it")
        name = bytes(data[2:start])
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise CodecError(
                f"the {purpose} was encrypted with key {name.decode(errors='replace')!r}, "
                "which this process does not have; add it to the codec's keys"
            )
        nonce, sealed = data[start : start + self.NONCE], data[start + self.NONCE :]
        try:
            plain = cipher.decrypt(nonce, sealed, purpose.value.encode())
        except self._invalid_tag:
            raise CodecError(
                f"the {purpose} does not open: the key is another one, or the bytes were changed"
            ) from None
        return self._inner.decode(plain, purpose)

    def digest(self, value: Any) -> bytes:
        plain = self._inner.digest(value)
        return blake2b(plain, digest_size=DIGEST, key=self._digest_key).digest()
