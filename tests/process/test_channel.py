"""Messages between a process and its child."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator

import pytest

from windlass.process import channel
from windlass.process.channel import Channel, frame


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Channel, Channel]]:
    loop = asyncio.get_running_loop()
    one, two = (Channel(end, loop) for end in socket.socketpair())
    yield one, two
    one.close()
    two.close()


async def test_messages_arrive_whole_and_in_order(ends: tuple[Channel, Channel]) -> None:
    one, two = ends
    sent = [{"n": n, "text": "é\ud800" * n} for n in range(50)]
    for message in sent:
        one.send(message)
    two.send({"back": None})
    assert [await two.receive() for _ in sent] == sent
    assert await one.receive() == {"back": None}


async def test_sending_never_blocks_and_loses_nothing(ends: tuple[Channel, Channel]) -> None:
    """Nobody reads while far more is said than a socket takes."""
    one, two = ends
    text = "x" * 1_000_000
    for n in range(20):
        one.send({"n": n, "text": text})
    for n in range(20):
        assert await two.receive() == {"n": n, "text": text}
    one.send({"n": "after"})
    assert await two.receive() == {"n": "after"}


async def test_many_threads_may_speak_at_once(ends: tuple[Channel, Channel]) -> None:
    one, two = ends

    def speak(who: int) -> None:
        for n in range(200):
            one.send({"who": who, "n": n, "text": "x" * 500})

    threads = [threading.Thread(target=speak, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    heard: dict[int, list[int]] = {who: [] for who in range(4)}
    for _ in range(800):
        message = await two.receive()
        heard[message["who"]].append(message["n"])
    assert all(numbers == list(range(200)) for numbers in heard.values())
    for thread in threads:
        thread.join()


async def test_what_was_said_before_the_end_is_heard_before_it(
    ends: tuple[Channel, Channel],
) -> None:
    one, two = ends
    one.send({"last": "word"})
    one.close()
    assert await two.receive() == {"last": "word"}
    with pytest.raises(EOFError, match="gone"):
        await two.receive()
    two.send({"to": "nobody"})
    one.send({"from": "nobody"})


@pytest.mark.parametrize(
    "nonsense", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x03abc", b"\x00\x00\x00\x03[1]"]
)
async def test_nonsense_ends_the_talk(nonsense: bytes) -> None:
    ours, theirs = socket.socketpair()
    listening = Channel(ours, asyncio.get_running_loop())
    theirs.send(nonsense)
    with pytest.raises(EOFError, match="no message"):
        await listening.receive()
    theirs.close()
    listening.close()


def test_a_message_that_no_process_should_send_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MAX_FRAME", 100)
    with pytest.raises(ValueError, match="limit of 100"):
        frame({"text": "x" * 100})
