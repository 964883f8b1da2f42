"""Attributes on the command line: `name=value`."""

from collections.abc import Iterable

from nexo.vocabulary.errors import InvalidArgument


def attributes_of(given: Iterable[str], flag: str = "--attribute") -> dict[str, str] | None:
    """What the flags say; None if nothing."""
    attributes = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise InvalidArgument(f"{each!r:.80} is not an attribute", f"write {flag} name=value")
        attributes[name] = value
    return attributes or None
