"""Filter policies of SNS: which messages of a topic a subscription wants.

A policy is JSON: keys with lists of conditions, one of which the value under the key has to meet.
With the scope `MessageAttributes` keys are names of attributes; with `MessageBody` the body is
JSON, and keys lead into it. All keys have to match; `$or` has alternatives. A policy is compiled
once, into alternatives that are each a list of keys.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from nexo.vocabulary import limits
from nexo.vocabulary.attributes import decode_typed
from nexo.vocabulary.errors import InvalidArgument
from nexo.vocabulary.limits import FILTER_POLICIES_KEPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nexo.vocabulary.attributes import Typed

Scope = Literal["MessageAttributes", "MessageBody"]
ATTRIBUTES: Scope = "MessageAttributes"
BODY: Scope = "MessageBody"

_EXACT_MAX, _DIGITS = 1e9, 1e6  # up to which numbers, and how exactly they are looked at
# In the units of `Condition.work`: to look a value up, to compare an address, and to go on to an
# element of a list.
_PLAIN_WORK, _ADDRESS_WORK, _WALK_WORK = 4, 120, 4
_OR = "$or"
_ARRAY = "String.Array"
_FIRST = ("<", "<=", "=", ">", ">=")
_SECOND = ("<", "<=")
_UNREADABLE = (msgspec.DecodeError, UnicodeError, RecursionError)
_decode = msgspec.json.Decoder().decode


class Condition(NamedTuple):
    """What a value has to be. `exists` asks for the key alone, and then nothing else counts. `work`
    is what the test of one value takes, in units of about 50 ns."""

    test: Callable[[Any], bool]
    work: int = 8
    exists: bool | None = None


Branch = list[tuple[str, list[Condition]]]


class Looked:
    """A message as policies see it: read at the first look, however many policies there are. `work`
    adds up what the looks took, in the units of conditions; to read a byte takes about one."""

    __slots__ = ("_attributes", "_body", "_encoded", "_found", "_left", "_values", "work")

    def __init__(self, body: bytes, encoded: bytes | None) -> None:
        self._body: Any = body
        self._encoded = encoded
        self._attributes: dict[str, Typed] | None = None
        self._values: dict[str, list[Any]] = {}  # of attributes
        self._found: dict[str, list[Any] | None] | None = None  # of the body, by the way to it
        self._left = limits.FILTERED_ELEMENTS_MAX
        self.work: int = 0

    def attribute(self, name: str) -> list[Any] | None:
        """The values of an attribute; None: there is no such attribute."""
        if self._attributes is None:
            self._attributes = decode_typed(self._encoded)
            self.work += len(self._encoded or b"")
        if name not in self._attributes:
            return None
        if name not in self._values:
            self._values[name] = _values_of(self._attributes[name])
        return self._values[name]

    def field(self, way: str) -> list[Any] | None:
        """The values of the body under a key; None: there is no such key."""
        if self._found is None:
            self._found = {}
            self.work += len(self._body)
            try:
                self._body = _decode(self._body)
            except _UNREADABLE:
                self._body = None
        if way not in self._found:
            self._found[way] = self._values_under(way) or None
        return self._found[way]

    def _values_under(self, way: str) -> list[Any]:
        """The values that `a.b.c` leads to; of a list on the way all of its elements count. A key
        may have dots itself. No part of the body is come to twice, and no more elements of lists
        are looked at than may be, whatever the policies are: beyond, nothing is found."""
        steps = _steps_of(way)
        values: list[Any] = []
        left: list[tuple[Any, int]] = [(self._body, 0)] if isinstance(self._body, dict) else []
        while left:
            value, at = left.pop()
            if isinstance(value, dict):
                if at < len(steps):
                    left += [(value[key], stop) for key, stop in steps[at] if key in value]
            elif isinstance(value, list):
                self._left -= len(value)
                self.work += len(value) * _WALK_WORK
                if self._left < 0:
                    return []
                left += [(each, at) for each in value]
            elif at == len(steps):
                values.append(value)
        return values


class Policy:
    """A compiled policy. With the scope `MessageBody` it depends on the body alone, else on the
    attributes alone."""

    __slots__ = ("_branches", "is_on_body")

    def __init__(self, branches: list[Branch], scope: str) -> None:
        self._branches = branches
        self.is_on_body: bool = scope == BODY

    def wants(self, looked: Looked) -> bool:
        """Whether a message matches. What takes more work than a policy may does not."""
        values = looked.field if self.is_on_body else looked.attribute
        left = limits.FILTERED_WORK_MAX
        for branch in self._branches:
            for key, conditions in branch:
                found = values(key)
                work = len(found or ()) * sum([each.work for each in conditions])
                looked.work += min(left, work)
                left -= work
                if left < 0:
                    return False
                if not _meets(found, conditions):
                    break
            else:
                return True
        return False


def _meets(values: list[Any] | None, conditions: list[Condition]) -> bool:
    """Whether the values under a key meet one of its conditions; None: there is no such key."""
    for condition in conditions:
        if condition.exists is not None:
            if condition.exists == (values is not None):
                return True
        elif values is not None and any(map(condition.test, values)):
            return True
    return False


# -- What a message has -----------------------------------------------------------------------


def _values_of(typed: Typed) -> list[Any]:
    """An attribute; bytes and what is not what its type says match nothing, but are there."""
    kind, value = typed
    if isinstance(value, bytes):
        return []
    if kind == _ARRAY:
        try:
            found = _decode(value)
        except _UNREADABLE:
            return []
        return found if isinstance(found, list) else [found]
    if kind.split(".", 1)[0] == "Number":
        try:
            return [float(value)]
        except ValueError:
            return []
    return [value]


@lru_cache(maxsize=FILTER_POLICIES_KEPT)
def _steps_of(way: str) -> list[list[tuple[str, int]]]:
    """From each part of a way the keys that may come next, and the part behind them."""
    parts = way.split(".", limits.FILTER_POLICY_DEPTH_MAX)
    return [
        [(".".join(parts[at:stop]), stop) for stop in range(at + 1, len(parts) + 1)]
        for at in range(len(parts))
    ]


# -- Compiling --------------------------------------------------------------------------------


@lru_cache(maxsize=FILTER_POLICIES_KEPT)
def compiled(text: str, scope: str = ATTRIBUTES) -> Policy | None:
    """The policy that a text stands for; None wants everything. What SNS refuses is an
    `InvalidArgument` in its words."""
    if len(text.encode(errors="replace")) > limits.FILTER_POLICY_BYTES_MAX:
        raise InvalidArgument("FilterPolicy: Filter policy is too long")
    try:
        read = _decode(text) if text else {}
    except _UNREADABLE:
        raise InvalidArgument("FilterPolicy: failed to parse JSON.") from None
    if read is None or read == {}:
        return None
    if not isinstance(read, dict):
        raise InvalidArgument("FilterPolicy: Filter policy must be an object")
    if len(read) > limits.FILTER_POLICY_KEYS_MAX:
        raise InvalidArgument("FilterPolicy: Filter policy can not have more than 5 keys")
    try:
        is_complex = _combinations(read, scope, 1, 1) > limits.FILTER_POLICY_COMBINATIONS_MAX
    except RecursionError:
        is_complex = True
    if is_complex:
        raise InvalidArgument("FilterPolicy: Filter policy is too complex")
    return Policy(_branches(read, [[]], ""), scope)


def _alternatives(key: str, value: Any) -> list[dict[str, Any]] | None:
    """Of `$or` the policies to choose from; with fewer than two it is a key like any other."""
    if key != _OR or not isinstance(value, list) or len(value) < 2:
        return None
    return value if all(isinstance(each, dict) for each in value) else None


def _combinations(policy: dict[str, Any], scope: str, depth: int, before: int) -> int:
    """How complex a policy is, as SNS counts: values times their depth, keys multiplied, and
    alternatives added up. More than that, the branches below cannot be."""
    if depth > 1 and scope == ATTRIBUTES:
        raise InvalidArgument(
            "Filter policy scope MessageAttributes does not support nested filter policy"
        )
    if depth > limits.FILTER_POLICY_DEPTH_MAX or before > limits.FILTER_POLICY_COMBINATIONS_MAX:
        raise InvalidArgument("FilterPolicy: Filter policy is too complex")
    count = before
    for key, value in policy.items():
        alternatives = _alternatives(key, value)
        if alternatives is not None:
            count = sum(_combinations(each, scope, depth, count) for each in alternatives)
        elif isinstance(value, dict):
            count = _combinations(value, scope, depth + 1, count)
        elif not isinstance(value, list):
            raise InvalidArgument(f'FilterPolicy: "{key:.256}" must be an object or an array')
        elif not value:
            raise InvalidArgument("FilterPolicy: Empty arrays are not allowed")
        else:
            count *= len(value) * depth
    return count


def _branches(policy: dict[str, Any], branches: list[Branch], way: str) -> list[Branch]:
    """The branches so far with all that a policy asks for beside."""
    for key, value in policy.items():
        alternatives = _alternatives(key, value)
        if alternatives is not None:
            branches = [b for each in alternatives for b in _branches(each, branches, way)]
            continue
        whole = f"{way}.{key}" if way else key
        if isinstance(value, dict):
            branches = _branches(value, branches, whole)
        else:
            conditions = _conditions(value)
            branches = [[*branch, (whole, conditions)] for branch in branches]
    return branches


def _conditions(rules: list[Any]) -> list[Condition]:
    """What a key asks for. Plain values are one condition, however many they are."""
    plain = [each for each in rules if not isinstance(each, dict)]
    conditions = [_condition(each) for each in rules if isinstance(each, dict)]
    return [Condition(_one_of(plain), _PLAIN_WORK), *conditions] if plain else conditions


def _condition(rule: dict[str, Any]) -> Condition:
    if len(rule) != 1:
        raise InvalidArgument("FilterPolicy: Only one key allowed in match expression")
    ((operator, value),) = rule.items()
    return _operation(operator, value)


def _operation(operator: str, value: Any) -> Condition:
    match operator:
        case "exists":
            if not isinstance(value, bool):
                raise InvalidArgument(
                    "FilterPolicy: exists match pattern must be either true or false."
                )
            return Condition(bool, 0, exists=value)
        case "prefix":
            text = _text(operator, value)
            return Condition(lambda each: isinstance(each, str) and each.startswith(text))
        case "suffix":
            text = _text(operator, value)
            return Condition(lambda each: isinstance(each, str) and each.endswith(text))
        case "equals-ignore-case":
            folded = _text(operator, value).casefold()
            return Condition(lambda each: isinstance(each, str) and each.casefold() == folded)
        case "anything-but":
            return Condition(_anything_but(value))
        case "numeric":
            return Condition(_numeric(value))
        case "cidr":
            return Condition(_within(value), _ADDRESS_WORK)
    raise InvalidArgument(f"FilterPolicy: Unrecognized match type {operator:.256}")


def _text(operator: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"FilterPolicy: {operator} match pattern must be a string")
    return value


def _one_of(rules: list[Any]) -> Callable[[Any], bool]:
    """Whether a value is one of these: numbers by their value, and true is not 1."""
    if any(isinstance(each, list | dict) for each in rules):
        raise InvalidArgument(
            "FilterPolicy: Match value must be String, number, true, false, or null"
        )
    texts = {each for each in rules if isinstance(each, str)}
    flags = {each for each in rules if each is None or isinstance(each, bool)}
    numbers = {each for each in rules if _is_number(each)}
    near = {int(each * _DIGITS) for each in numbers if abs(each) < 2 * _EXACT_MAX}

    def is_one(value: Any) -> bool:
        kind = type(value)
        if kind is str:
            return value in texts
        if kind is int or kind is float:  # the same as `_is_same`, with all of them
            return value in numbers or (abs(value) < _EXACT_MAX and int(value * _DIGITS) in near)
        return (kind is bool or value is None) and value in flags

    return is_one


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(one: float, other: float) -> bool:
    """As far as SNS looks: a millionth makes no difference to it."""
    if one == other:
        return True
    return abs(one) < _EXACT_MAX and int(one * _DIGITS) == int(other * _DIGITS)


def _anything_but(value: Any) -> Callable[[Any], bool]:
    if isinstance(value, dict):
        for operator in value:
            if operator != "prefix":
                raise InvalidArgument(
                    f"FilterPolicy: Unsupported anything-but pattern: {operator:.256}"
                )
        excluded = _condition(value).test
    else:
        excluded = _one_of(value if isinstance(value, list) else [value])
    return lambda each: not excluded(each)


def _numeric(value: Any) -> Callable[[Any], bool]:
    """`["=", 5]`, `[">=", 1]` or `[">", 0, "<", 9]`."""
    if not isinstance(value, list) or not value:
        raise InvalidArgument("FilterPolicy: Invalid member in numeric match: ]")
    members = iter(value)
    first = next(members)
    if not isinstance(first, str):
        raise InvalidArgument(f"FilterPolicy: Invalid member in numeric match: {first!r:.256}")
    if first not in _FIRST:
        raise InvalidArgument(f"FilterPolicy: Unrecognized numeric range operator: {first:.256}")
    low = _operand(first, members)
    if len(value) == 2:
        return lambda each: _is_number(each) and _compare(first, each, low)
    if first not in (">", ">="):
        raise InvalidArgument("FilterPolicy: Too many elements in numeric expression")
    second = next(members)
    if not isinstance(second, str):
        raise InvalidArgument(f"FilterPolicy: Bad value in numeric range: {second!r:.256}")
    if second not in _SECOND:
        raise InvalidArgument(f"FilterPolicy: Bad numeric range operator: {second:.256}")
    high = _operand(second, members)
    if high <= low:
        raise InvalidArgument("FilterPolicy: Bottom must be less than top")
    if len(value) > 4:
        raise InvalidArgument("FilterPolicy: Too many terms in numeric range expression")
    return lambda each: (
        _is_number(each) and _compare(first, each, low) and _compare(second, each, high)
    )


def _operand(operator: str, members: Iterator[Any]) -> float:
    value: Any = next(members, None)
    if not _is_number(value):
        told = "equals" if operator == "=" else operator
        raise InvalidArgument(f"FilterPolicy: Value of {told} must be numeric")
    number: float = value
    return number


def _compare(operator: str, value: float, operand: float) -> bool:
    match operator:
        case "<":
            return value < operand
        case "<=":
            return value <= operand
        case ">":
            return value > operand
        case ">=":
            return value >= operand
    return _is_same(value, operand)


def _within(value: Any) -> Callable[[Any], bool]:
    if not isinstance(value, str):
        raise InvalidArgument("FilterPolicy: prefix match pattern must be a string")
    address, slash, mask = value.partition("/")
    if not slash or "/" in mask:
        raise InvalidArgument("FilterPolicy: Malformed CIDR, one '/' required")
    if not (mask.isascii() and mask.isdecimal()):
        raise InvalidArgument("FilterPolicy: Malformed CIDR, mask bits must be an integer")
    try:
        network = ipaddress.ip_network(value)
    except ValueError:
        raise InvalidArgument(f"FilterPolicy: Nonstandard IP address: {address:.100}") from None

    def is_within(each: Any) -> bool:
        try:
            return isinstance(each, str) and ipaddress.ip_address(each) in network
        except ValueError:
            return False

    return is_within
