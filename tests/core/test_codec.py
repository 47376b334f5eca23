"""Codecs: JSON and encryption."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.codec import EncryptingCodec, JsonCodec, Purpose
from windlass.core.errors import CodecError

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    ),
    max_leaves=12,
)
KEY, OLD_KEY = bytes(range(32)), bytes(range(32, 64))
LONG_ID = "a-rather-long-key-id-2024-06"
NAN, INF = float("nan"), float("inf")


class FailingRepr:
    """A value whose repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError("repr fails")


# -- JSON


@settings(max_examples=60)
@given(JSON, st.sampled_from(Purpose))
def test_json_round_trips(value: Any, purpose: Purpose) -> None:
    assert JsonCodec().decode(JsonCodec().encode(value, purpose), purpose) == value


def test_json_is_compact_utf8() -> None:
    data = JsonCodec().encode({"a": [1, 2], "ü": "é"}, Purpose.PAYLOAD)
    assert data == '{"a":[1,2],"ü":"é"}'.encode()


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (object(), "the value is <object"),
        ({"a": {1, 2}}, r"a is \{1, 2\}"),
        ({"a": [1, {"b": b"x"}]}, r"a\[1\]\.b is b'x'"),
        ([[0, [datetime(2024, 1, 1, tzinfo=UTC)]]], r"\[0\]\[1\]\[0\] is datetime"),
        ({"a": NAN}, "a is nan"),
        ({"a": [INF]}, r"a\[0\] is inf"),
        ([-INF], r"\[0\] is -inf"),
        (NAN, "the value is nan"),
        ({"a": {(1, 2): 3}}, r"a has the key \(1, 2\)"),
        ({(1,): 3}, r"the value has the key \(1,\)"),
        ({"a": ("x", 1j)}, r"a\[1\] is 1j"),
        ({"a": ["\ud800"]}, r"a\[0\] is"),
    ],
)
def test_a_value_that_json_cannot_represent_is_refused_with_its_path(
    value: Any, where: str
) -> None:
    with pytest.raises(CodecError, match=where) as caught:
        JsonCodec().encode(value, Purpose.RESULT)
    assert "cannot encode the result as JSON" in str(caught.value)


@pytest.mark.parametrize(
    "value", [10**5000, {"a": FailingRepr()}], ids=["too long", "failing repr"]
)
def test_a_value_with_a_failing_repr_is_refused_as_a_codec_error(value: Any) -> None:
    with pytest.raises(CodecError):
        JsonCodec().encode(value, Purpose.PAYLOAD)


@pytest.mark.parametrize("data", [b" 1", b"1\n", b'\t{"a": [ 1 ] } '], ids=repr)
def test_whitespace_around_json_is_ignored(data: bytes) -> None:
    assert JsonCodec().decode(data, Purpose.PAYLOAD) == json.loads(data)


def test_a_value_can_be_encoded_after_a_refused_one() -> None:
    kept: dict[str, Any] = {"inner": object()}
    with pytest.raises(CodecError):
        JsonCodec().encode(kept, Purpose.PAYLOAD)
    kept["inner"] = 1
    assert JsonCodec().encode(kept, Purpose.PAYLOAD) == b'{"inner":1}'


def test_a_value_that_contains_itself_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(CodecError, match="nested too deeply"):
        JsonCodec().encode(cycle, Purpose.PAYLOAD)


def test_a_value_nested_without_end_is_refused() -> None:
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CodecError, match="nested too deeply"):
        JsonCodec().encode(deep, Purpose.PAYLOAD)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe\xfd", b"'a'", b"\x01\x02k1", b"[" * 100_000, b"9" * 5000]
)
def test_bytes_that_are_not_json_are_refused_with_their_purpose(data: bytes) -> None:
    with pytest.raises(CodecError, match="the checkpoint is not JSON"):
        JsonCodec().decode(data, Purpose.CHECKPOINT)


# -- encryption


@settings(max_examples=40)
@given(JSON, st.sampled_from(Purpose))
def test_encrypted_values_round_trip(value: Any, purpose: Purpose) -> None:
    codec = EncryptingCodec({"k1": KEY})
    assert codec.decode(codec.encode(value, purpose), purpose) == value


def test_encrypted_data_contains_no_plain_text() -> None:
    data = EncryptingCodec({"k1": KEY}).encode({"password": "hunter2"}, Purpose.PAYLOAD)
    assert b"hunter2" not in data
    assert b"password" not in data


def test_the_same_value_is_never_encrypted_to_the_same_bytes() -> None:
    codec = EncryptingCodec({"k1": KEY})
    made = {codec.encode("x", Purpose.PAYLOAD) for _ in range(100)}
    assert len(made) == 100


@pytest.mark.parametrize(
    ("made", "opened"), [pair for pair in product(Purpose, Purpose) if pair[0] is not pair[1]]
)
def test_data_of_one_purpose_cannot_be_decrypted_as_another(made: Purpose, opened: Purpose) -> None:
    codec = EncryptingCodec({"k1": KEY})
    with pytest.raises(CodecError, match=f"the {opened} cannot be decrypted"):
        codec.decode(codec.encode("x", made), opened)


def test_keys_can_be_rotated() -> None:
    old = EncryptingCodec({"old": OLD_KEY}).encode("x", Purpose.PAYLOAD)
    both = EncryptingCodec({"new": KEY, "old": OLD_KEY})
    assert both.decode(old, Purpose.PAYLOAD) == "x"
    fresh = both.encode("y", Purpose.PAYLOAD)
    assert EncryptingCodec({"new": KEY}).decode(fresh, Purpose.PAYLOAD) == "y"


def test_a_missing_key_is_named() -> None:
    old = EncryptingCodec({"old": OLD_KEY}).encode("x", Purpose.PAYLOAD)
    with pytest.raises(CodecError, match="'old', which is missing here"):
        EncryptingCodec({"new": KEY}).decode(old, Purpose.PAYLOAD)


def test_another_key_with_the_same_id_cannot_decrypt() -> None:
    data = EncryptingCodec({"k": OLD_KEY}).encode("x", Purpose.PAYLOAD)
    with pytest.raises(CodecError, match="cannot be decrypted"):
        EncryptingCodec({"k": KEY}).decode(data, Purpose.PAYLOAD)


@pytest.mark.parametrize("key_id", ["k", LONG_ID, "k" * 255])
def test_a_change_of_any_byte_is_detected(key_id: str) -> None:
    codec = EncryptingCodec({key_id: KEY})
    data = codec.encode({"amount": 10}, Purpose.PAYLOAD)
    for index in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            forged = bytearray(data)
            forged[index] ^= flip
            with pytest.raises(CodecError):
                codec.decode(bytes(forged), Purpose.PAYLOAD)


@pytest.mark.parametrize("key_id", ["k", LONG_ID, "k" * 255])
def test_a_truncation_at_any_length_is_detected(key_id: str) -> None:
    codec = EncryptingCodec({key_id: KEY})
    data = codec.encode({"amount": 10}, Purpose.PAYLOAD)
    for length in range(len(data)):
        with pytest.raises(CodecError):
            codec.decode(data[:length], Purpose.PAYLOAD)
    with pytest.raises(CodecError):
        codec.decode(data + b"\0", Purpose.PAYLOAD)


def test_a_ciphertext_cannot_be_decrypted_with_another_key_of_the_codec() -> None:
    codec = EncryptingCodec({"k1": KEY, "k2": OLD_KEY})
    data = codec.encode("x", Purpose.PAYLOAD)
    with pytest.raises(CodecError, match="cannot be decrypted"):
        codec.decode(data.replace(b"k1", b"k2", 1), Purpose.PAYLOAD)


@pytest.mark.parametrize("data", [b"", b"null", b'{"amount":10000000000}'])
def test_plain_bytes_are_not_accepted_as_encrypted(data: bytes) -> None:
    with pytest.raises(CodecError, match="not encoded by the encrypting codec"):
        EncryptingCodec({"k1": KEY}).decode(data, Purpose.PAYLOAD)


@pytest.mark.parametrize("length", [0, 16, 24, 31, 33, 64])
def test_a_key_of_another_length_is_refused_with_its_id_and_length(length: int) -> None:
    with pytest.raises(CodecError, match=f"'k1' has {length} bytes; a key must be 32"):
        EncryptingCodec({"k1": bytes(length)})


@pytest.mark.parametrize("key_id", ["", "k" * 256, "ü" * 128])
def test_a_key_id_that_does_not_fit_is_refused(key_id: str) -> None:
    with pytest.raises(CodecError, match="its id 1 to 255 bytes"):
        EncryptingCodec({key_id: KEY})


def test_an_invalid_key_at_any_position_is_refused() -> None:
    with pytest.raises(CodecError, match="'k2'"):
        EncryptingCodec({"k1": KEY, "k2": b"short"})


def test_encryption_without_a_key_is_refused() -> None:
    with pytest.raises(CodecError, match="at least one key"):
        EncryptingCodec({})


def test_the_error_of_a_bad_key_does_not_show_the_key() -> None:
    with pytest.raises(CodecError) as caught:
        EncryptingCodec({"k1": b"secret-but-short"})
    assert "secret" not in str(caught.value)


def test_a_value_that_the_inner_codec_refuses_is_refused() -> None:
    with pytest.raises(CodecError, match="a is nan"):
        EncryptingCodec({"k1": KEY}).encode({"a": NAN}, Purpose.PAYLOAD)


def test_another_codec_can_be_the_inner_codec() -> None:
    class Upper(JsonCodec):
        def encode(self, value: Any, purpose: Purpose) -> bytes:
            return str(value).upper().encode()

        def decode(self, data: bytes, purpose: Purpose) -> Any:
            return data.decode()

    codec = EncryptingCodec({"k1": KEY}, inner=Upper())
    assert codec.decode(codec.encode("x", Purpose.EVENT), Purpose.EVENT) == "X"


def test_digests_are_equal_only_for_equal_requests() -> None:
    codec = JsonCodec()
    assert codec.digest(["mail", {"to": 1}]) == codec.digest(["mail", {"to": 1}])
    assert codec.digest(["mail", {"to": 1}]) != codec.digest(["mail", {"to": 2}])


def test_an_encrypted_digest_cannot_be_guessed_without_the_key() -> None:
    sealed = EncryptingCodec({"k1": KEY})
    assert sealed.digest("x") != JsonCodec().digest("x")
    assert sealed.digest("x") != EncryptingCodec({"k1": bytes(32)}).digest("x")


def test_digests_stay_comparable_during_key_rotation() -> None:
    before = EncryptingCodec({"k1": KEY})
    after = EncryptingCodec({"k2": bytes(32), "k1": KEY})
    assert before.digest("x") == after.digest("x")
