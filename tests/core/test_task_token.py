"""Task tokens: valid for one attempt, and cannot be forged."""

from __future__ import annotations

import base64
import os
import random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from windlass.core.job.lease import Lease
from windlass.core.task_token import (
    KEY_ID,
    MAX_LENGTH,
    PREFIX,
    TaskToken,
    signing_key_id,
    verify_token,
)

KEY, SECRET = b"12345678", b"s" * 32
SECRETS = {KEY: SECRET}
TOKEN = TaskToken(
    lease=Lease(UUID(int=7), 3, UUID(int=2**127 + 5)),
    queue="médias/4k",
    expires_at=1_800_000_000_000_000,
)
SIGNED = TOKEN.signed(KEY, SECRET)
MUTATIONS = 100_000 * int(os.environ.get("WINDLASS_EFFORT", "1"))
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=. \n\x00é"
tokens = st.builds(
    TaskToken,
    lease=st.builds(Lease, st.uuids(), st.integers(0, 2**63), st.uuids()),
    queue=st.text(max_size=100),
    expires_at=st.integers(0, 2**60),
    receipt=st.text(max_size=200),
)


@given(tokens)
def test_a_signed_token_is_verified_and_read(token: TaskToken) -> None:
    text = token.signed(KEY, SECRET)

    assert verify_token(text, SECRETS) == token
    assert signing_key_id(text) == KEY


def test_a_token_of_another_secret_with_the_same_id_is_invalid() -> None:
    assert verify_token(SIGNED, {KEY: b"t" * 32}) is None


def test_a_token_of_an_unknown_key_is_invalid() -> None:
    assert verify_token(SIGNED, {b"87654321": SECRET}) is None
    assert verify_token(SIGNED, {}) is None


def test_of_a_hundred_thousand_mutations_none_is_read() -> None:
    chance = random.Random(20)

    accepted = [
        text for text in (_mutated(SIGNED, chance) for _ in range(MUTATIONS))
        if text != SIGNED and verify_token(text, SECRETS) is not None
    ]  # fmt: skip

    assert accepted == []


def _mutated(text: str, chance: random.Random) -> str:
    place = chance.randrange(len(text))
    letter = chance.choice(LETTERS)
    match chance.randrange(6):
        case 0:
            return text[:place] + letter + text[place + 1 :]
        case 1:
            return text[:place] + letter + text[place:]
        case 2:
            return text[:place] + text[place + 1 :]
        case 3:
            return text[:place]
        case 4:
            other = chance.randrange(len(text))
            first, last = sorted((place, other))
            return text[:first] + text[first:last][::-1] + text[last:]
        case _:
            data = bytearray(base64.urlsafe_b64decode(text[len(PREFIX) :] + "=="))
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            return PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_only_the_canonical_encoding_of_a_token_is_valid() -> None:
    """Base64 allows several last characters, and ignores invalid ones."""
    last = SIGNED[-1]
    alphabet = LETTERS[:64]
    others = [SIGNED[:-1] + letter for letter in alphabet if letter != last]

    assert all(verify_token(text, SECRETS) is None for text in others)
    assert verify_token(SIGNED + "=", SECRETS) is None
    assert verify_token(SIGNED + "\n", SECRETS) is None
    assert verify_token(SIGNED[:10] + "!" + SIGNED[10:], SECRETS) is None


@given(st.text(max_size=300))
def test_any_other_text_is_no_token(text: str) -> None:
    assert verify_token(text, SECRETS) is None
    assert verify_token(PREFIX + text, SECRETS) is None


def test_an_endless_text_is_not_even_decoded() -> None:
    assert verify_token(PREFIX + "A" * MAX_LENGTH, SECRETS) is None
    assert signing_key_id(PREFIX + "A" * MAX_LENGTH) is None


def test_lengths_that_do_not_add_up_are_refused_though_they_are_signed() -> None:
    class Odd(TaskToken):
        def _body(self, key_id: bytes) -> bytes:
            return TaskToken._body(self, key_id) + b"more"

    odd = Odd(lease=TOKEN.lease, queue="q", expires_at=1)

    assert verify_token(odd.signed(KEY, SECRET), SECRETS) is None
    assert len(KEY) == KEY_ID
