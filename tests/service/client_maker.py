"""Writes a typed client in Python from an OpenAPI document: a TypedDict for each schema, a method for each operation."""

import keyword

PLAIN = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}
HEAD = '''"""A client made from an interface; do not edit."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, cast
from urllib.parse import quote, urlencode


class Client:
    """Asks the service at a base address."""

    def __init__(self, base: str, headers: Mapping[str, str] | None = None) -> None:
        self.base = base.rstrip("/")
        self.headers = dict(headers or {})

    def _ask(
        self, method: str, path: str, query: Mapping[str, Any], body: bytes | None, kind: str
    ) -> Any:
        given = {name: value for name, value in query.items() if value is not None}
        url = self.base + path + ("?" + urlencode(given) if given else "")
        headers = self.headers | ({"Content-Type": kind} if kind else {})
        asked = urllib.request.Request(url, body, headers, method=method)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            content = answer.read()
            is_json = (answer.headers["Content-Type"] or "").startswith("application/json")
        return json.loads(content) if is_json else content.decode()
'''


def type_of(schema):
    """The type of a schema, as Python has it."""
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    kinds = schema.get("type", "object")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    names = []
    for kind in kinds:
        if schema.get("format") == "binary":
            names.append("bytes")
        elif kind == "array":
            names.append(f"list[{type_of(schema['items'])}]")
        else:
            names.append(PLAIN.get(kind, "dict[str, Any]"))
    return " | ".join(names)


def typed(name, schema):
    """A TypedDict; in the form of a call, for keys that are no names."""
    required = schema.get("required", [])
    keys = (
        f"    {key!r}: {type_of(one)!r},"
        if key in required
        else f"    {key!r}: NotRequired[{type_of(one)!r}],"
        for key, one in schema.get("properties", {}).items()
    )
    return "\n".join([f"{name} = TypedDict({name!r}, {{", *keys, "})"])


def name_of(key):
    return key + "_" if keyword.iskeyword(key) else key


def method_of(verb, path, operation, shared):
    """A method: parameters by name, the body first, the answer's type."""
    parameters = shared + operation.get("parameters", [])
    first, more, query = ["self"], [], []
    for one in parameters:
        name, kind = name_of(one["name"]), type_of(one["schema"])
        if one["in"] == "path":
            first.append(f"{name}: {kind}")
            path = path.replace("{" + one["name"] + "}", "{quote(" + name + ", safe='')}")
            continue
        more.append(f"{name}: {kind}" if one.get("required") else f"{name}: {kind} | None = None")
        query.append(f"{one['name']!r}: {name}")
    body, kind = "None", ""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        if kind == "application/x-ndjson":
            first.append(f"lines: list[{type_of(content['schema'])}]")
            body = "b''.join(json.dumps(line).encode() + b'\\n' for line in lines)"
        else:
            first.append("body: bytes")
            body = "body"
        break
    good = next((one for code, one in operation["responses"].items() if code[0] == "2"), {})
    answer = good.get("content", {}).get("application/json")
    returns = "str" if answer is None else type_of(answer["schema"])
    words = ", ".join([*first, *(["*", *more] if more else [])])
    return (
        f"    def {operation['operationId']}({words}) -> {returns}:\n"
        f'        """{operation.get("summary", "")}"""\n'
        f"        found = self._ask({verb.upper()!r}, f{path!r}, {{{', '.join(query)}}}, {body}, {kind!r})\n"
        f"        return cast({returns!r}, found)\n"
    )


def client_of(document):
    """The client's source."""
    methods = [
        method_of(verb, path, operation, item.get("parameters", []))
        for path, item in document["paths"].items()
        for verb, operation in item.items()
        if verb != "parameters"
    ]
    types = [typed(name, one) for name, one in document["components"]["schemas"].items()]
    return "\n".join([HEAD, *methods, "", *types, ""])
