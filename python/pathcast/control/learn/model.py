"""The model that the manager places prefixes by: templates, and a tree over a prefix's condition."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pathcast.control.learn.grid import (
    DEFAULT,
    FEATURES,
    INITIAL_WINDOWS,
    PROTOCOLS,
    SCHEMES,
    Configuration,
    check_name,
)
from pathcast.control.learn.trees import Leaf, Node, leaves
from pathcast.exceptions import ModelError

#: Version of the model's JSON.
FORMAT = 1
#: The template without a knob, which is never listed.
DEFAULT_NAME = "default"
#: The deepest tree and the largest file that is read.
_DEEPEST = 32
MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Model:
    """Templates and a tree.

    Attributes:
        templates: knobs by name; `default` is not among them.
        tree: as JSON: `{"template": NAME}`, or `feature`, `threshold`, `below` and `otherwise`.

    """

    templates: Mapping[str, Mapping[str, Any]]
    tree: Mapping[str, Any]

    @classmethod
    def of(cls, tree: Node, configurations: Sequence[Configuration]) -> Model:
        """Return the model of a tree over these configurations."""
        chosen = sorted(set(leaves(tree)))
        named = [configurations[one] for one in chosen if configurations[one] != DEFAULT]
        return cls(
            {check_name(one.name): one.knobs() for one in named}, _written(tree, configurations)
        )

    def template(self, bandwidth_mbps: float, rtt_ms: float, loss: float) -> str:
        """Return the name of the template for a condition; `default` where a feature is not finite.

        Args:
            bandwidth_mbps: in Mbit/s.
            rtt_ms: in milliseconds.
            loss: a fraction.

        """
        features = dict(zip(FEATURES, (bandwidth_mbps, rtt_ms, loss), strict=True))
        if not all(map(math.isfinite, features.values())):
            return DEFAULT_NAME
        node = self.tree
        while "template" not in node:
            is_below = features[node["feature"]] < node["threshold"]
            node = node["below"] if is_below else node["otherwise"]
        return str(node["template"])

    def to_dict(self) -> dict[str, Any]:
        """Return it as the manager reads it."""
        return {
            "format": FORMAT,
            "templates": [
                {"name": name, "knobs": dict(one)} for name, one in self.templates.items()
            ],
            "features": list(FEATURES),
            "tree": dict(self.tree),
        }

    def to_json(self) -> str:
        """Return it as the text of a file."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"

    @classmethod
    def parse(cls, content: str | bytes, file: str = "model.json") -> Model:
        """Read the text of a model; `file` names it in errors.

        Raises:
            ModelError: it is not JSON, has unknown keys, a format above ours, or a node or knob that is not valid.

        """
        if len(content) > MAX_BYTES:
            raise ModelError(f"{file}: has {len(content)} bytes; expected at most {MAX_BYTES}")
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{file}: got no JSON ({error}); expected a model") from None
        if not isinstance(found, dict):
            raise ModelError(f"{file}: got {type(found).__name__}; expected an object")
        version = found.get("format")
        if version != FORMAT:
            raise ModelError(f"{file}: got format {version!r}; expected {FORMAT}")
        _keys(found, {"format", "templates", "features", "tree"}, file)
        if found["features"] != list(FEATURES):
            raise ModelError(
                f"{file}: got features {found['features']!r}; expected {list(FEATURES)}"
            )
        if not isinstance(found["templates"], list):
            raise ModelError(f"{file}: templates: expected a list")
        templates: dict[str, Mapping[str, Any]] = {}
        for number, one in enumerate(found["templates"]):
            where = f"{file}: templates[{number}]"
            _keys(one, {"name", "knobs"}, where)
            name = check_name(str(one["name"]))
            if name == DEFAULT_NAME or name in templates:
                raise ModelError(f"{where}: got the name {name!r}, which is taken")
            templates[name] = _checked_knobs(one["knobs"], where)
        _check_node(found["tree"], {DEFAULT_NAME, *templates}, f"{file}: tree", 0)
        return cls(templates, found["tree"])


def _written(tree: Node, configurations: Sequence[Configuration]) -> dict[str, Any]:
    if isinstance(tree, Leaf):
        one = configurations[tree.column]
        return {"template": DEFAULT_NAME if one == DEFAULT else one.name}
    return {
        "feature": FEATURES[tree.feature],
        "threshold": float(f"{tree.threshold:.6g}"),
        "below": _written(tree.below, configurations),
        "otherwise": _written(tree.otherwise, configurations),
    }


def _keys(value: object, expected: set[str], where: str) -> None:
    if not isinstance(value, dict) or set(value) != expected:
        got = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise ModelError(f"{where}: got {got}; expected the keys {sorted(expected)}")


def _checked_knobs(knobs: object, where: str) -> Mapping[str, Any]:
    """Knobs that a learner writes."""
    if not isinstance(knobs, dict):
        raise ModelError(f"{where}.knobs: got {type(knobs).__name__}; expected an object")
    valid = {
        "congestion_control": lambda value: value in SCHEMES,
        "initial_window": lambda value: type(value) is int and 1 <= value <= 1000,
        "slow_start_after_idle": lambda value: type(value) is bool,
        "http_version": lambda value: value in PROTOCOLS,
    }
    for name, value in knobs.items():
        if name not in valid:
            raise ModelError(f"{where}.knobs: got {name!r}; expected some of {', '.join(valid)}")
        if not valid[name](value):
            raise ModelError(
                f"{where}.knobs.{name}: got {value!r}; expected such as "
                f"{ {'congestion_control': SCHEMES, 'initial_window': INITIAL_WINDOWS, 'http_version': PROTOCOLS}.get(name, (True, False)) }"
            )
    return knobs


def _check_node(node: object, names: set[str], where: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise ModelError(f"{where}: is deeper than {_DEEPEST}")
    if isinstance(node, dict) and "template" in node:
        _keys(node, {"template"}, where)
        if node["template"] not in names:
            raise ModelError(
                f"{where}: got template {node['template']!r}; expected one of {', '.join(sorted(names))}"
            )
        return
    _keys(node, {"feature", "threshold", "below", "otherwise"}, where)
    assert isinstance(node, dict)  # noqa: S101 - for types: `_keys` refuses others
    if node["feature"] not in FEATURES:
        raise ModelError(
            f"{where}: got feature {node['feature']!r}; expected {', '.join(FEATURES)}"
        )
    value = node["threshold"]
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ModelError(f"{where}: got threshold {value!r}; expected a number")
    for side in ("below", "otherwise"):
        _check_node(node[side], names, f"{where}.{side}", depth + 1)
