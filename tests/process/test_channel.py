"""Messages between a process and its child."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator

import pytest

from windlass.process import channel
from windlass.process.channel import MessageChannel, frame


@pytest.fixture
async def ends() -> AsyncIterator[tuple[MessageChannel, MessageChannel]]:
    loop = asyncio.get_running_loop()
    one, two = (MessageChannel(end, loop) for end in socket.socketpair())
    yield one, two
    one.close()
    two.close()


async def test_messages_arrive_whole_and_in_order(
    ends: tuple[MessageChannel, MessageChannel],
) -> None:
    one, two = ends
    sent = [{"n": n, "text": "é\ud800" * n} for n in range(50)]
    for message in sent:
        one.send(message)
    two.send({"back": None})
    assert [await two.receive() for _ in sent] == sent
    assert await one.receive() == {"back": None}


async def test_sending_never_blocks_and_loses_nothing(
    ends: tuple[MessageChannel, MessageChannel],
) -> None:
    """Sends far more than the socket buffer holds, without a reader."""
    one, two = ends
    text = "x" * 1_000_000
    for n in range(20):
        one.send({"n": n, "text": text})
    for n in range(20):
        assert await two.receive() == {"n": n, "text": text}
    one.send({"n": "after"})
    assert await two.receive() == {"n": "after"}


async def test_many_threads_may_send_at_once(ends: tuple[MessageChannel, MessageChannel]) -> None:
    one, two = ends

    def send(sender: int) -> None:
        for n in range(200):
            one.send({"sender": sender, "n": n, "text": "x" * 500})

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    received: dict[int, list[int]] = {sender: [] for sender in range(4)}
    for _ in range(800):
        message = await two.receive()
        received[message["sender"]].append(message["n"])
    assert all(numbers == list(range(200)) for numbers in received.values())
    for thread in threads:
        thread.join()


async def test_messages_sent_before_the_end_are_received(
    ends: tuple[MessageChannel, MessageChannel],
) -> None:
    one, two = ends
    one.send({"last": "message"})
    one.close()
    assert await two.receive() == {"last": "message"}
    with pytest.raises(EOFError, match="closed the connection"):
        await two.receive()
    two.send({"to": "closed"})
    one.send({"from": "closed"})


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x03abc", b"\x00\x00\x00\x03[1]"]
)
async def test_an_invalid_message_ends_the_channel(data: bytes) -> None:
    receiver_end, sender_end = socket.socketpair()
    receiver = MessageChannel(receiver_end, asyncio.get_running_loop())
    sender_end.send(data)
    with pytest.raises(EOFError, match="invalid message"):
        await receiver.receive()
    sender_end.close()
    receiver.close()


def test_an_oversized_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_FRAME", 100)
    with pytest.raises(ValueError, match="limit of 100"):
        frame({"text": "x" * 100})
