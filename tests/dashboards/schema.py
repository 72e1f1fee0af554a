"""Loads dashboards through the classes that Grafana generates of its own schema (grafana-foundation-sdk).

What is said here, one line each, and with exit code 1:
  a field that Grafana's schema does not know (it does not come back when the loaded dashboard is written again),
  a value that is not of the type, or not one of the words, that the schema gives the field.

The schema describes annotations of Grafana's own store alone. Of those that ask Prometheus, the query is held against
the schema of its queries, and the two fields that the data source adds are let pass.
"""

import enum
import json
import sys
import types
import typing

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard, prometheus

ANNOTATION_FORMATS = {"titleFormat", "textFormat"}


def lost(written, loaded, place):
    """Fields and elements that did not come back. What the schema adds by itself is no matter."""
    if isinstance(written, dict) and isinstance(loaded, dict):
        for name, value in written.items():
            if name in loaded:
                yield from lost(value, loaded[name], f"{place}.{name}")
            elif value is not None:
                yield f"{place}.{name}: the schema does not know it"
    elif isinstance(written, list) and isinstance(loaded, list) and len(written) == len(loaded):
        for index, (one, other) in enumerate(zip(written, loaded)):
            yield from lost(one, other, f"{place}[{index}]")
    elif written != loaded:
        yield f"{place}: {written!r} became {loaded!r}"


def suits(value, hint):
    """Whether a value is of an annotated type, not looking into objects."""
    if hint in (typing.Any, object):
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(suits(value, one) for one in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(suits(one, arguments[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(suits(one, arguments[1]) for one in value.values())
    if hint is type(None):
        return value is None
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in {member.value for member in hint}
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hasattr(hint, "from_json") and isinstance(value, dict):
        return True
    return isinstance(value, hint)


def class_in(hint):
    """The class of the schema that an annotation speaks of, if of one alone."""
    arguments = [class_in(one) for one in typing.get_args(hint)]
    found = [one for one in arguments if one] or ([hint] if hasattr(hint, "from_json") else [])
    return found[0] if len(found) == 1 else None


def raw(value, hint, place, seen):
    """What the loader left as it was, although the schema has a class for it."""
    known = class_in(hint)
    by_name = dict in map(typing.get_origin, (hint, *typing.get_args(hint)))
    several = value.values() if by_name and isinstance(value, dict) else value if isinstance(value, list) else [value]
    for index, one in enumerate(several):
        if known and isinstance(one, dict):
            loaded = known.from_json(one)
            yield from lost(one, json.loads(JSONEncoder().encode(loaded)), f"{place}[{index}]")
            yield from unsuited(loaded, f"{place}[{index}]", seen)


def unsuited(node, place, seen):
    """Values that are not of their type, in a loaded object and all that it holds."""
    if isinstance(node, list):
        for index, one in enumerate(node):
            yield from unsuited(one, f"{place}[{index}]", seen)
    elif isinstance(node, dict):
        for name, one in node.items():
            yield from unsuited(one, f"{place}.{name}", seen)
    elif hasattr(node, "__dict__") and not isinstance(node, enum.Enum):
        seen[type(node).__module__.split(".")[-1] + "." + type(node).__name__] = True
        hints = typing.get_type_hints(type(node), vars(sys.modules[type(node).__module__]))
        for name, value in vars(node).items():
            if value is not None and name in hints and not suits(value, hints[name]):
                yield f"{place}.{name}: {value!r} is no {hints[name]}"
            elif value is not None and name in hints:
                yield from raw(value, hints[name], f"{place}.{name}", seen)
            yield from unsuited(value, f"{place}.{name}", seen)


def main(paths):
    plugins.register_default_plugins()
    wrong, seen = [], {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            written = json.load(file)
        name = written["uid"]
        for annotation in written["annotations"]["list"]:
            place = f"{name}.annotation {annotation['name']}"
            wrong += raw(annotation.pop("target"), prometheus.Dataquery, place, seen)
            for field in ANNOTATION_FORMATS:
                if not isinstance(annotation.pop(field), str):
                    wrong.append(f"{place}.{field}")
        loaded = dashboard.Dashboard.from_json(written)
        again = json.loads(JSONEncoder(sort_keys=True).encode(loaded))
        wrong += lost(written, again, name)
        wrong += unsuited(loaded, name, seen)
    print("\n".join(wrong) if wrong else "classes: " + " ".join(sorted(seen)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
