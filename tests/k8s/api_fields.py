"""Fields of Kubernetes objects that the API knows, as the Python client lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubernetes import client

# What the client calls objects of other groups by the same name.
CLASSES = {"Event": "CoreV1Event"}
TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (int, float),
    "datetime": (str,),
    "bytes": (str,),
}


def unknown_fields(document: dict[str, Any]) -> list[str]:
    """The paths of fields that the API would not know; raises for an unknown kind."""
    version = document["apiVersion"].rpartition("/")[2]
    kind = document["kind"]
    name = CLASSES.get(kind, f"{version[0].upper()}{version[1:]}{kind}")
    return list(_unknown(document, name, kind))


def _unknown(value: Any, kind: str, path: str) -> Iterator[str]:
    listed = re.fullmatch(r"[Ll]ist\[(.+)\]", kind)
    mapped = re.fullmatch(r"[Dd]ict[\[(]str, (.+)[\])]", kind)
    if value is None or kind == "object":
        return
    if listed:
        assert isinstance(value, list), path
        for index, item in enumerate(value):
            yield from _unknown(item, listed[1], f"{path}[{index}]")
    elif mapped:
        assert isinstance(value, dict), path
        for key, item in value.items():
            yield from _unknown(item, mapped[1], f"{path}.{key}")
    elif hasattr(client, kind):
        yield from _unknown_of_model(value, getattr(client, kind), path)
    else:
        _plain(value, kind, path)


def _unknown_of_model(value: Any, model: Any, path: str) -> Iterator[str]:
    if not model.openapi_types:  # IntOrString and the like
        return
    assert isinstance(value, dict), path
    kinds = {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}
    for key, item in value.items():
        if key in kinds:
            yield from _unknown(item, kinds[key], f"{path}.{key}")
        else:
            yield f"{path}.{key}"


def _plain(value: Any, kind: str, path: str) -> None:
    assert isinstance(value, TYPES[kind]), f"{path}={value!r}"
    assert kind == "bool" or not isinstance(value, bool), f"{path}={value!r}"
