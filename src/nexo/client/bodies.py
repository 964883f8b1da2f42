"""Bodies as values: what `push` takes, what `json` gives, and what a handler is called with.

JSON is written and read by msgspec, which knows structs, dataclasses and attrs classes. Models of
pydantic write and read themselves, by their aliases, so that what one pushed another reads; it is
loaded only by programs that use it.
"""

from __future__ import annotations

import contextlib
import functools
import types
import typing
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nexo.vocabulary.errors import InvalidArgument, InvalidBody
from nexo.vocabulary.limits import CLIENT_DECODERS_KEPT, CLIENT_WRONG_CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    Decode = Callable[[bytes], Any]

Body = TypeVar("Body")


def encoded(body: Any) -> bytes:
    """Bytes as they are, text as UTF-8, anything else as JSON."""
    if type(body) is bytes:
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    if is_pydantic(type(body)) and hasattr(body, "model_dump_json"):
        text: str = body.model_dump_json(by_alias=True)
        return text.encode()
    try:
        return _encode_json(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"a body of type {type(body).__name__} cannot be encoded as JSON: {error}",
            "encode it yourself and push the bytes",
        ) from None


def encoded_json(value: Any) -> bytes:
    """Anything as JSON, texts too."""
    return encoded([value])[1:-1]


def decoded(body: bytes, kind: Any) -> Any:
    """A body that is JSON, as a value of a type. What it is not is an `InvalidBody`."""
    try:
        return decoder_of(kind)(body)
    except msgspec.MsgspecError as error:
        raise _invalid(kind, str(error)) from None
    except (ValueError, RecursionError) as error:  # pydantic's, and of values that check themselves
        raise _invalid(kind, _first_problem(error)) from error


def decoder_of(kind: Any) -> Decode:
    """What reads JSON into values of this type."""
    try:
        return _kept_decoder(kind)
    except TypeError as error:  # not hashable, or nothing that could be read into
        if not isinstance(kind, typing.Hashable):
            return _new_decoder(kind)
        raise InvalidArgument(
            f"JSON cannot be decoded into {_name_of(kind)}: {error}",
            "use a msgspec struct, a dataclass, an attrs class, a pydantic model or built-in types",
        ) from None


def is_pydantic(kind: Any) -> bool:
    """Whether a type is a model or a dataclass of pydantic, or made of such."""
    if hasattr(kind, "__pydantic_validator__"):
        return True
    return any(is_pydantic(each) for each in typing.get_args(kind))


class Reading:
    """How a handler wants its messages, by the annotations of its parameters.

    One that says nothing, or names a message, gets the message. Any other type is what the body is
    decoded into: `bytes` and `str` as they are, everything else from JSON. A handler may have one
    parameter of each kind, in either order."""

    __slots__ = ("_arguments",)

    def __init__(self, handler: Callable[..., Any], message_type: type) -> None:
        wanted = [_reader(kind, message_type) for kind in _annotations(handler)]
        if len([each for each in wanted if each is not None]) > 1:
            raise InvalidArgument(
                f"{_name_of(handler)} takes more than one body",
                "annotate one parameter with the type of the body, and one with nexo.Message",
            )
        self._arguments: list[Callable[[Any], Any] | None] = wanted or [None]

    def __call__(self, message: Any) -> list[Any]:
        """The arguments to call it with."""
        return [message if read is None else read(message) for read in self._arguments]


def _reader(kind: Any, message_type: type) -> Callable[[Any], Any] | None:
    """What makes an argument of a message; None if it is the message itself."""
    if kind in (None, Any, object) or getattr(kind, "_is_protocol", False):
        return None
    kinds = typing.get_args(kind) if _is_union(kind) else (kind,)
    if any(isinstance(each, type) and issubclass(each, message_type) for each in kinds):
        return None
    if kind is bytes:
        return lambda message: message.body
    if kind is str:
        return text_of
    decoder_of(kind)  # a type that cannot be read into is told before the first message comes
    return lambda message: message.json(kind)


def text_of(message: Any) -> str:
    try:
        text: str = message.text
    except UnicodeDecodeError as error:
        raise InvalidBody(f"the body is not UTF-8 text: {error}") from None
    return text


def _annotations(handler: Callable[..., Any]) -> list[Any]:
    """Of the parameters that have to be given."""
    import inspect  # only a loop of `consume` needs it

    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):  # a built-in that does not tell its parameters
        return []
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        each for each in parameters if each.kind in by_position and each.default is each.empty
    ] or [each for each in parameters if each.kind in by_position][:1]
    if len(needed) > 2:
        names = ", ".join(each.name for each in needed)
        raise InvalidArgument(
            f"{_name_of(handler)} cannot be called with a message: it needs {names}",
            "a handler takes a message, a body, or both",
        )
    scope = _scope(handler)
    found = [None if each.annotation is each.empty else each.annotation for each in needed]
    return [_evaluated(each, scope, handler) for each in found]


def _evaluated(annotation: Any, scope: dict[str, Any], handler: Callable[..., Any]) -> Any:
    """An annotation may be text, of a name that only type checkers import."""
    if not isinstance(annotation, str):
        return annotation
    try:
        holder = types.SimpleNamespace(__annotations__={"body": annotation}, __module__=None)
        return typing.get_type_hints(holder, scope, include_extras=True)["body"]
    except (NameError, AttributeError, TypeError):
        # Messages are the one thing that handlers often import for type checkers alone.
        if annotation.rpartition(".")[2].rstrip("'\"").endswith("Message"):
            return Any
        raise InvalidArgument(
            f"{_name_of(handler)} takes a body of type {annotation}, which is not known there",
            "import or define it outside of `if TYPE_CHECKING:`: bodies are decoded by it",
        ) from None


def _scope(handler: Any) -> dict[str, Any]:
    """The names that the annotations of a handler are made of."""
    while isinstance(handler, functools.partial) or hasattr(handler, "__wrapped__"):
        is_partial = isinstance(handler, functools.partial)
        handler = handler.func if is_partial else handler.__wrapped__
    if not hasattr(handler, "__globals__") and not hasattr(handler, "__func__"):
        handler = type(handler).__call__
    function = getattr(handler, "__func__", handler)
    scope = dict(getattr(function, "__globals__", {}))
    cells = getattr(function, "__closure__", None)
    if cells:
        names = zip(function.__code__.co_freevars, cells, strict=True)
        for name, cell in names:
            with contextlib.suppress(ValueError):  # not assigned yet
                scope[name] = cell.cell_contents
    return scope


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


@functools.lru_cache(CLIENT_DECODERS_KEPT)
def _kept_decoder(kind: Any) -> Decode:
    return _new_decoder(kind)


def _new_decoder(kind: Any) -> Decode:
    if is_pydantic(kind):
        from pydantic import TypeAdapter

        decode: Decode = TypeAdapter(kind).validate_json
        return decode
    from msgspec import inspect

    if isinstance(inspect.type_info(kind), inspect.CustomType):
        raise TypeError("it is not a JSON type")
    return msgspec.json.Decoder(kind, dec_hook=_read_inner).decode


def _read_inner(kind: Any, value: Any) -> Any:
    """A part of a body whose type msgspec does not know."""
    if is_pydantic(kind):
        return _kept_decoder(kind)(_encode_json(value))
    raise TypeError(f"{_name_of(kind)} is not a JSON type")


def _write_inner(value: Any) -> Any:
    if hasattr(value, "model_dump") and is_pydantic(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} is not a JSON type")


_encode_json = msgspec.json.Encoder(enc_hook=_write_inner).encode


def _invalid(kind: Any, what: str) -> InvalidBody:
    wanted = "JSON" if kind is Any else _name_of(kind)
    return InvalidBody(f"the body is not {wanted}: {what[:CLIENT_WRONG_CHARS_MAX]}")


def _first_problem(error: Exception) -> str:
    """pydantic writes a page; its first problem is the reason, in one line."""
    problems: Any = getattr(error, "errors", None)
    if not callable(problems):
        return str(error)
    first = problems(include_url=False, include_context=False, include_input=False)[0]
    return f"{first['msg']} - at `{'.'.join(map(str, ('$', *first['loc'])))}`"


def _name_of(kind: Any) -> str:
    return getattr(kind, "__qualname__", None) or str(kind)
