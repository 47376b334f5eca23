"""The contract as JSON: what a store at the other end of a wire is asked, and what it answers.

Nothing of it is written down a second time: each verb's message has the fields of its signature in
`windlass.store`, with the types that are there. Bytes travel as base64. Two answers are told in
other words: a refusal by its code and its text, which become the same error again, and the answer
to an enqueue without the job, which whoever asked still has.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, get_type_hints
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    create_model,
)

from windlass.core import errors
from windlass.core.clock import Instant
from windlass.core.decisions import retry
from windlass.core.decisions.enqueue import Enqueued, EnqueueStatus
from windlass.core.decisions.transition import Answer, Status, Transition
from windlass.core.errors import InvalidArgumentError, RequestError, SchemaError, WindlassError
from windlass.core.event import Event
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import State
from windlass.core.query.diagnosis import Why
from windlass.core.value import pair
from windlass.store import Capabilities, Store

PROTOCOL = "1"  # changes when an older side would misunderstand; new fields are no such change
PATH = "/api/store"
PROTOCOL_HEADER = "Windlass-Protocol"
NEWS_HEADER = "Windlass-News"  # how far the news of work was heard of, before a claim
KEEPALIVE_HEADER = "Windlass-Keepalive"  # seconds between two signs of life on a stream
EVENT = "event"  # the name of a stream's messages; "error" is a failure of the stream itself

# These have no message: the handle itself sees to them, and a tail is a stream.
OWN = frozenset({"migrate", "twin", "close", "capabilities", "tail"})
VERBS = tuple(sorted(Store.__abstractmethods__ - OWN))


# -- answers that are told in other words


def _error_told(error: RequestError) -> dict[str, str]:
    return {"code": error.code, "message": str(error)}


def _error_heard(told: Any) -> RequestError:
    kind = of_code(str(told["code"]))
    known = kind is not None and issubclass(kind, RequestError)
    return (kind if known else RequestError)(str(told["message"]))  # type: ignore[return-value,misc]


@cache
def _codes() -> Mapping[str, type[WindlassError]]:
    """Those who are made of a text, and nothing else."""
    roots = (errors.RequestError, errors.StoreError, errors.CodecError)
    found: dict[str, type[WindlassError]] = {}
    for kind in roots:
        for one in (kind, *kind.__subclasses__()):
            if one.__module__ == errors.__name__:
                found[one.code] = one
    return found


def of_code(code: str) -> type[WindlassError] | None:
    """The class of an error, by the code that the wire carries."""
    return _codes().get(code)


_Error = Annotated[RequestError, PlainValidator(_error_heard), PlainSerializer(_error_told)]


@pair
class AnswerTold:
    status: Status
    state: State | None = None
    error: _Error | None = None


@pair
class EnqueuedTold:
    status: EnqueueStatus
    at: Instant = 0
    serial: int = 0
    existing: JobRow | None = None
    root_id: UUID | None = None
    error: _Error | None = None
    gates: tuple[str, ...] = ()
    place: int | None = None


_TOLD: Mapping[Any, Any] = {list[Answer]: list[AnswerTold], list[Enqueued]: list[EnqueuedTold]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """What a handle has to know of its server, and of itself there.

    `wait` is how long one call of that verb lasts at most, `max_body` how large a message may be.
    """

    version: str
    capabilities: Capabilities
    max_body: int
    wait: float
    name: str
    roles: tuple[str, ...] = ()
    owner: str | None = None
    team: str | None = None


# -- messages


class Shape:
    """One JSON object whose fields have the types of the contract."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        config = ConfigDict(
            ser_json_bytes="base64",
            val_json_bytes="base64",
            ser_json_inf_nan="constants",
            arbitrary_types_allowed=True,
        )
        self._fields = tuple(fields)
        self._model: type[BaseModel] = create_model(name, __config__=config, **fields)

    def dump(self, **values: Any) -> bytes:
        made = self._model.model_construct(**values)
        try:
            return made.__pydantic_serializer__.to_json(made, warnings=False)
        except ValueError as error:
            raise InvalidArgumentError(f"a value cannot be sent: {error!s:.300}") from None

    def load(self, data: bytes) -> dict[str, Any]:
        """What somebody asks; raises what is wrong with it."""
        try:
            read = self._model.model_validate_json(data)
        except ValidationError as error:
            raise InvalidArgumentError(_wrong(error)) from None
        return {name: getattr(read, name) for name in self._fields}

    def hear(self, data: bytes) -> dict[str, Any]:
        """What a server answers; one that cannot be read is not the fault of who asked."""
        try:
            return self.load(data)
        except InvalidArgumentError as error:
            raise SchemaError(
                f"the answer of the server cannot be read ({error}); "
                "install the same version of Windlass here and there"
            ) from None


def _wrong(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)
    told = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in found[:3]]
    return "; ".join(told)


@cache
def asked(verb: str) -> Shape:
    """The message that asks for a verb: its arguments, by name."""
    function = getattr(Store, verb)
    hints = get_type_hints(function)
    fields: dict[str, Any] = {}
    for one in list(inspect.signature(function).parameters.values())[1:]:
        default = ... if one.default is one.empty else one.default
        fields[one.name] = (hints[one.name], default)
    return Shape(f"{verb} asked", fields)


@cache
def answered(verb: str) -> Shape:
    """The message that answers it."""
    hint = get_type_hints(getattr(Store, verb))["return"]
    return Shape(f"{verb} answered", {"answer": (_TOLD.get(hint, hint), ...)})


@cache
def greeting() -> Shape:
    return Shape("hello answered", {"answer": (Hello, ...)})


@cache
def told_event() -> Shape:
    return Shape("event told", {"event": (Event, ...)})


@cache
def tail_asked() -> Shape:
    return Shape("tail asked", {"job_id": (UUID, ...), "after": (int, 0)})


@cache
def why_asked() -> Shape:
    return Shape("why asked", {"job_id": (UUID, ...)})


@cache
def why_answered() -> Shape:
    return Shape("why answered", {"answer": (Why, ...)})


@cache
def done() -> Shape:
    """The answer to what has none."""
    return Shape("done", {"answer": (None, ...)})


# -- what is sent


def tell(verb: str, answer: Any) -> bytes:
    """A store's answer, for the wire."""
    if verb == "enqueue":
        answer = [_enqueued_told(one) for one in answer]
    return answered(verb).dump(answer=answer)


def _enqueued_told(one: Enqueued) -> EnqueuedTold:
    return EnqueuedTold(
        one.status,
        one.at,
        one.serial,
        one.existing,
        one.root_id,
        one.error,
        one.gates,
        one.place,
    )


def hear(verb: str, data: bytes) -> Any:
    """The answer that was told, but for an enqueue's, which `enqueued` puts together."""
    answer = answered(verb).hear(data)["answer"]
    if answer and isinstance(answer, list) and isinstance(answer[0], AnswerTold):
        return [Answer(one.status, one.state, one.error) for one in answer]
    return answer


def enqueued(jobs: Sequence[NewJob], told: Sequence[EnqueuedTold]) -> list[Enqueued]:
    return [
        Enqueued(
            one.status,
            new,
            one.at,
            one.serial,
            one.existing,
            one.root_id,
            one.error,
            one.gates,
            one.place,
        )
        for new, one in zip(jobs, told, strict=True)
    ]


def sendable(new: NewJob) -> NewJob:
    """A backoff of one's own is a function: what is sent is the one that stands for it."""
    policy = new.policy
    if not isinstance(policy.backoff, retry.Custom):
        return new
    return replace(new, policy=replace(policy, backoff=retry.stored(policy.backoff)))


def sendable_wish(wish: Transition) -> Transition:
    if not wish.children:
        return wish
    return replace(wish, children=tuple(sendable(child) for child in wish.children))
