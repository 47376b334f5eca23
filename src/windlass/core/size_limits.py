"""Size limits of all stores, so that a job accepted by one is accepted by all."""

from __future__ import annotations

from windlass.core.errors import InvalidArgumentError, TooLargeError

KIB = 1024
MAX_BLOB = 1024 * KIB  # payload, result, checkpoint
MAX_EVENT = 64 * KIB
MAX_TRACEBACK = 16 * KIB
MAX_HEADERS = 16 * KIB
MAX_KEY = 512  # request ids, unique keys, owners, tags, step and stage names
MAX_NAME = 128  # queues, tasks, workers
MAX_TAGS = 32
MAX_PARENTS = 100_000
MAX_PRIORITY = 2**31 - 1
MAX_REASON = 4 * KIB  # reason of a cancel


def check_size(what: str, data: bytes | None, limit: int = MAX_BLOB) -> None:
    """Raise an error if data is too large."""
    if data is not None and len(data) > limit:
        raise TooLargeError(
            f"{what} is {len(data):,} bytes, the limit is {limit:,}; "
            "keep the data in an object store or a file and pass its address"
        )


def check_text(what: str, text: str | None, limit: int = MAX_KEY) -> None:
    """Raise an error if a text is too long, or cannot be stored."""
    if text is None:
        return
    if not isinstance(text, str):
        raise InvalidArgumentError(f"{what} is {text!r:.80}; it must be a string")
    if text.isascii() and len(text) <= limit and "\0" not in text:
        return
    if "\0" in text:
        raise InvalidArgumentError(f"{what} is {text!r:.80}; it cannot hold a NUL character")
    if len(text) > limit:
        raise InvalidArgumentError(f"{what} has {len(text):,} characters, the limit is {limit:,}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{what} is {text!r:.80}, which is not valid text") from None
