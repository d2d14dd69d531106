"""Generate a JSON Schema of the cohort language from the models, for completion and error marks in editors.

`cohort.schema.json` beside this file is the output of `json_schema`; a cohort file names it in its first line. The
schema covers keys, values and shapes, but not rules across sections: `python -m pipelines.cohorts check` covers all.
It is draft 7, which editors' YAML servers read.
"""

from pathlib import Path
from typing import Any

from schemas.cohort.model import HASH_SPLIT, Cohort
from schemas.cohort.times import ANCHORS
from schemas.cohort.values import COMPARISONS

FILE = Path(__file__).with_name("cohort.schema.json")

_LENGTH = r"[0-9]{1,6} +(hour|day|month|year)s?"
_ANCHOR = "|".join(anchor.replace(".", r"\.") for anchor in ANCHORS)
_TEXT_FORMS = {  # types that are a text in the file and an object in the models: pattern, description
    "Duration": (f"^ *{_LENGTH} *$", "a length of time: 24 hours, 30 days, 18 months, 4 years"),
    "TimePoint": (
        f"^ *({_ANCHOR})( *[+-] *{_LENGTH})? *$",
        "a time: index.end, index.end + 30 days, birth + 4 years",
    ),
    "Quantity": (r"^ *-?[0-9]+(\.[0-9]+)?( *\S.*)?$", "a number with its unit: 2.0 mg/dL"),
    "Keep": (
        f"^(every|first|nearest +{_LENGTH})$",
        "every, first, or the encounter nearest to an age: nearest 18 months",
    ),
    "Rate": (rf"^ *[0-9]{{1,3}} +in +{_LENGTH} *$", "a rate: 3 in 6 months"),
}
_PREDICT_AT = rf"^ *index\.(start|end)( *\+ *{_LENGTH})? *$"
_KEYS = {
    "cohort": "the name of everything made from this file: lower-case letters, digits and _",
    "title": "the heading of its page; made from the name if left out",
    "about": "one sentence: what is predicted, and for whom",
    "source": "the source whose tables are used",
    "codes": "lists of codes by vocabulary; * at the end stands for any ending",
    "index": "the encounters a prediction is made for",
    "require": "what an index must meet; each '- name: condition' is a row of the attrition table",
    "looks_ahead": "what is known only after the prediction, on purpose: names of requirements, index, keep, outcome",
    "predict_at": "the moment of prediction: index.start or index.end, optionally plus a length of time",
    "features": "what the model may see",
    "outcome": "what is predicted: exactly one outcome",
    "split": "how patients are split into train, val and test",
    "thresholds": "probabilities from which the page counts an alert; chosen on validation patients if left out",
}


def json_schema() -> dict[str, Any]:
    """Return the schema of a cohort file."""
    model_schema = Cohort.model_json_schema()
    parts = {name: _part(name, part) for name, part in model_schema.pop("$defs").items()}
    body: dict[str, Any] = _plain(model_schema)
    for key, description in _KEYS.items():
        body["properties"][key] = _with(body["properties"][key], description=description)
    body["properties"]["predict_at"] = {
        "type": "string",
        "pattern": _PREDICT_AT,
        "description": _KEYS["predict_at"],
    }
    body["properties"]["outcome"]["oneOf"] += [{"const": "index_died"}, {"const": "index_days_left"}]
    item = body["properties"]["require"]["items"]
    item["additionalProperties"] = _or_alive(item["additionalProperties"])
    body["properties"]["require"]["items"] = item | {"minProperties": 1, "maxProperties": 1}
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "a cohort"}
    return head | body | {"definitions": parts}


def _part(name: str, part: dict[str, Any]) -> dict[str, Any]:
    if name in _TEXT_FORMS:
        pattern, description = _TEXT_FORMS[name]
        types = ["string", "number"] if name == "Quantity" else "string"
        return {"type": types, "pattern": pattern, "description": description}
    plain: dict[str, Any] = _plain(part)
    keys = plain["properties"]
    if name == "Split":
        keys["hash"] = {"const": list(HASH_SPLIT)}
        plain["oneOf"] = [{"required": [key]} for key in keys]
    if name in ("AnyOf", "AllOf", "SomeOf"):
        key = next(iter(keys))
        condition, _ = keys[key]["anyOf"]
        keys[key] = {"type": "array", "items": _or_alive(condition), "minItems": 2}
    if name == "Not":
        keys["not"] = _or_alive(keys["not"])
    if "above" in keys:
        plain["allOf"] = [{"oneOf": [{"required": [key]} for key in COMPARISONS]}]
    if name == "TimeTo":
        keys["time_to"]["oneOf"].append({"const": "died"})
    if "within" in keys:
        plain["oneOf"] = [{"required": ["within"]}, {"required": ["until"]}]
    if "after" in keys:
        plain["anyOf"] = [{"required": ["after"]}, {"required": ["before"]}]
    return plain


def _or_alive(condition: dict[str, Any]) -> dict[str, Any]:
    """Return a condition that may also be the bare word `index_alive`."""
    return condition | {"oneOf": [*condition["oneOf"], {"const": "index_alive"}]}


def _plain(node: Any) -> Any:
    """Return a node in draft 7, without titles, defaults and null, which are of no use in an editor."""
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, dict):
        return node
    choices = [choice for choice in node.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        return _plain({key: value for key, value in node.items() if key != "anyOf"} | choices[0])
    if "$ref" in node:
        return {"$ref": node["$ref"].replace("#/$defs/", "#/definitions/")}
    plain = {
        key: {name: _plain(value) for name, value in inner.items()} if key == "properties" else _plain(inner)
        # below `properties` a key is the name of a field, so `title` there is not a title
        for key, inner in node.items()
        if key not in ("title", "default")
    }
    return _array(plain) if plain.get("type") == "array" else plain


def _array(node: dict[str, Any]) -> dict[str, Any]:
    """Return an array in draft 7; a single word may stand for a list of words."""
    if "prefixItems" in node:
        shape = {"items": node["prefixItems"], "additionalItems": False}
        return {"type": "array", **shape, "minItems": node["minItems"], "maxItems": node["maxItems"]}
    items = node["items"]
    array = {"type": "array", "items": items} | ({"minItems": 1} if "minLength" in node else {})
    return array if items.get("type") == "object" else {"anyOf": [items, array]}


def _with(node: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a node with more fields; draft 7 ignores everything beside a `$ref`, so wrap that."""
    return ({"allOf": [node]} if "$ref" in node else node) | fields
