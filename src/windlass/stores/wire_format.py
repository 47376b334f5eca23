"""JSON messages of the remote store protocol: one request and one response per method.

The schemas are derived from the signatures in `windlass.store`, so no field is declared twice.
Bytes are base64. Each request of `apply` has a field `kind`, its class: without it, one class could
be read as another. Two responses differ from the signature. An error is sent as its code and
message, and becomes the same error again. An enqueue result omits the job, which the caller has.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    WrapSerializer,
    create_model,
)

from windlass.core import errors
from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import EnqueueResult, EnqueueStatus
from windlass.core.decisions.transition import (
    ApplyRequest,
    ApplyResult,
    CancelRequest,
    SignalRequest,
    Status,
    Transition,
)
from windlass.core.diagnosis import Diagnosis
from windlass.core.errors import InvalidArgumentError, RequestError, SchemaError, WindlassError
from windlass.core.event import Event
from windlass.core.fast_dataclass import positional_value
from windlass.core.job import retry_policy
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.store import Capabilities, Store, StoreInsights

# Incremented on incompatible changes. A new field is compatible: an older version ignores it. Only
# in queries unknown fields are refused, because without a filter all jobs would match.
PROTOCOL = "1"
MAX_FLOW_IDS = 1000  # in one request for the statistics of flows
PATH = "/api/store"
PROTOCOL_HEADER = "Windlass-Protocol"
WAKEUPS_HEADER = "Windlass-Wakeups"  # wakeup cursor of the server, read before a claim
KEEPALIVE_HEADER = "Windlass-Keepalive"  # seconds between keepalives of a stream
EVENT = "event"  # SSE event name of messages; "error" reports a failure of the stream itself

# Methods without a message: the client handle implements them, and a tail is a stream.
LOCAL_METHODS = frozenset({"migrate", "twin", "close", "capabilities", "insights", "tail"})
INSIGHTS = StoreInsights.__abstractmethods__
METHODS = tuple(sorted((Store.__abstractmethods__ - LOCAL_METHODS) | INSIGHTS))


# -- messages that differ from the signature

_KINDS: Mapping[type, str] = {
    Transition: "transition",
    CancelRequest: "cancel",
    SignalRequest: "signal",
}


def _kind_of(request: Any) -> str | None:
    """Return the kind of a request, or of its JSON object."""
    if isinstance(request, dict):
        kind = request.get("kind")
        return kind if isinstance(kind, str) else None
    return _KINDS.get(type(request))


def _with_kind(request: ApplyRequest, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    return {"kind": _KINDS[type(request)], **handler(request)}


_ApplyRequestMessage = Annotated[
    Annotated[Transition, WrapSerializer(_with_kind), Tag("transition")]
    | Annotated[CancelRequest, WrapSerializer(_with_kind), Tag("cancel")]
    | Annotated[SignalRequest, WrapSerializer(_with_kind), Tag("signal")],
    Discriminator(_kind_of),
]


def _encode_error(error: RequestError) -> dict[str, str]:
    return {"code": error.code, "message": str(error)}


def _decode_error(data: Any) -> RequestError:
    cls = error_class(str(data["code"]))
    if cls is None or not issubclass(cls, RequestError):
        cls = RequestError
    return cls(str(data["message"]))


@cache
def _codes() -> Mapping[str, type[WindlassError]]:
    """Map codes to the error classes that take only a message."""
    roots = (errors.RequestError, errors.StoreError, errors.CodecError)
    classes: dict[str, type[WindlassError]] = {}
    for root in roots:
        for cls in (root, *root.__subclasses__()):
            if cls.__module__ == errors.__name__:
                classes[cls.code] = cls
    return classes


def error_class(code: str) -> type[WindlassError] | None:
    """Return the error class for a code of the protocol."""
    return _codes().get(code)


_Error = Annotated[RequestError, PlainValidator(_decode_error), PlainSerializer(_encode_error)]


@positional_value
class ApplyResultMessage:
    status: Status
    state: State | None = None
    error: _Error | None = None


@positional_value
class EnqueueResultMessage:
    status: EnqueueStatus
    at: Instant = 0
    serial: int = 0
    existing: JobRow | None = None
    root_id: UUID | None = None
    error: _Error | None = None
    gates: tuple[str, ...] = ()
    position: int | None = None


_MESSAGES: Mapping[Any, Any] = {
    Sequence[ApplyRequest]: Sequence[_ApplyRequestMessage],
    list[ApplyResult]: list[ApplyResultMessage],
    list[EnqueueResult]: list[EnqueueResultMessage],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Properties of the server, and the identity of the caller's key.

    wait: maximum seconds of one `wait` call
    max_body: maximum size of a message in bytes
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


class MessageSchema:
    """JSON object whose fields have the types of the store contract."""

    def __init__(
        self, name: str, fields: Mapping[str, Any], extra: Literal["ignore", "forbid"] = "ignore"
    ) -> None:
        config = ConfigDict(
            extra=extra,
            ser_json_bytes="base64",
            val_json_bytes="base64",
            ser_json_inf_nan="constants",
            arbitrary_types_allowed=True,
        )
        self._fields = tuple(fields)
        self._model: type[BaseModel] = create_model(name, __config__=config, **fields)

    def dump(self, **values: Any) -> bytes:
        message = self._model.model_construct(**values)
        try:
            return message.__pydantic_serializer__.to_json(message, warnings=False)
        except ValueError as error:
            raise InvalidArgumentError(f"value cannot be serialized: {error!s:.300}") from None

    def load(self, data: bytes) -> dict[str, Any]:
        """Parse a request; raise InvalidArgumentError if it is invalid."""
        try:
            message = self._model.model_validate_json(data)
        except ValidationError as error:
            raise InvalidArgumentError(_validation_message(error)) from None
        return {name: getattr(message, name) for name in self._fields}

    def load_response(self, data: bytes) -> dict[str, Any]:
        """Parse a response; raise SchemaError, since an invalid one is not the caller's mistake."""
        try:
            return self.load(data)
        except InvalidArgumentError as error:
            raise SchemaError(
                f"the server's response is invalid ({error}); "
                "install the same version of Windlass on client and server"
            ) from None


def _validation_message(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)
    texts = [
        f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
        for problem in problems[:3]
    ]
    return "; ".join(texts)


def _function(method: str) -> Any:
    return getattr(StoreInsights if method in INSIGHTS else Store, method)


@cache
def request_schema(method: str) -> MessageSchema:
    """Return the schema of a method's request: its arguments, by name."""
    function = _function(method)
    hints = get_type_hints(function)
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        default = ... if parameter.default is parameter.empty else parameter.default
        hint = hints[parameter.name]
        fields[parameter.name] = (_MESSAGES.get(hint, hint), default)
    is_query = JobQuery in hints.values()
    return MessageSchema(f"{method} request", fields, "forbid" if is_query else "ignore")


@cache
def response_schema(method: str) -> MessageSchema:
    """Return the schema of a method's response."""
    hint = get_type_hints(_function(method))["return"]
    return MessageSchema(f"{method} response", {"result": (_MESSAGES.get(hint, hint), ...)})


@cache
def hello_response() -> MessageSchema:
    return MessageSchema("hello response", {"result": (Hello, ...)})


@cache
def event_message() -> MessageSchema:
    return MessageSchema("event message", {"event": (Event, ...)})


@cache
def tail_request() -> MessageSchema:
    return MessageSchema("tail request", {"job_id": (UUID, ...), "after": (int, 0)})


@cache
def why_request() -> MessageSchema:
    return MessageSchema("why request", {"job_id": (UUID, ...)})


@cache
def why_response() -> MessageSchema:
    return MessageSchema("why response", {"result": (Diagnosis, ...)})


@cache
def empty_response() -> MessageSchema:
    """Return the schema of a response without a value."""
    return MessageSchema("empty response", {"result": (None, ...)})


# -- encoding and decoding


def encode_response(method: str, result: Any) -> bytes:
    """Encode the result of a store call."""
    if method == "enqueue":
        result = [_enqueue_result_message(item) for item in result]
    return response_schema(method).dump(result=result)


def _enqueue_result_message(result: EnqueueResult) -> EnqueueResultMessage:
    return EnqueueResultMessage(
        result.status,
        result.at,
        result.serial,
        result.existing,
        result.root_id,
        result.error,
        result.gates,
        result.position,
    )


def decode_response(method: str, data: bytes) -> Any:
    """Decode a response. For an enqueue, `enqueue_results` adds the jobs to the result."""
    result = response_schema(method).load_response(data)["result"]
    if result and isinstance(result, list) and isinstance(result[0], ApplyResultMessage):
        return [ApplyResult(item.status, item.state, item.error) for item in result]
    return result


def enqueue_results(
    jobs: Sequence[NewJob], messages: Sequence[EnqueueResultMessage]
) -> list[EnqueueResult]:
    return [
        EnqueueResult(
            message.status,
            new,
            message.at,
            message.serial,
            message.existing,
            message.root_id,
            message.error,
            message.gates,
            message.position,
        )
        for new, message in zip(jobs, messages, strict=True)
    ]


def with_storable_backoff(new: NewJob) -> NewJob:
    """Replace a custom backoff, which is a function, by its stored form."""
    policy = new.policy
    if not isinstance(policy.backoff, retry_policy.Custom):
        return new
    return replace(
        new, policy=replace(policy, backoff=retry_policy.storable_backoff(policy.backoff))
    )


def sendable_request(request: ApplyRequest) -> ApplyRequest:
    if not isinstance(request, Transition) or not request.children:
        return request
    return replace(
        request, children=tuple(with_storable_backoff(child) for child in request.children)
    )
