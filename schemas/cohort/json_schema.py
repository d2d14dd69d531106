"""The cohort language as a JSON Schema, made from the models: an editor completes keys and underlines faults.

`cohort.schema.json` beside this file is what `json_schema` gives; a cohort file names it in its first line. It knows
keys, values and shapes, not what hangs on the rest of the file: `python -m pipelines.cohorts check` knows all.
Draft 7, which is what editors' YAML servers read.
"""

from pathlib import Path
from typing import Any

from schemas.cohort.model import HASH_SPLIT, Cohort
from schemas.cohort.times import ANCHORS

FILE = Path(__file__).with_name("cohort.schema.json")

_LENGTH = r"[0-9]{1,6} +(hour|day|month|year)s?"
_ANCHOR = "|".join(anchor.replace(".", r"\.") for anchor in ANCHORS)
_WRITTEN = {  # of what is a word in the file and an object in the models
    "Duration": (f"^ *{_LENGTH} *$", "a length of time: 24 hours, 30 days, 18 months, 4 years"),
    "TimePoint": (
        f"^ *({_ANCHOR})( *[+-] *{_LENGTH})? *$",
        "a time: index.end, index.end + 30 days, birth + 4 years",
    ),
    "Keep": (
        f"^(every|first|nearest +{_LENGTH})$",
        "every, first, or the one nearest to an age: nearest 18 months",
    ),
    "Rate": (r"^ *[0-9]{1,3} +in +[0-9]{1,6} +(day|month|year)s? *$", "so many in so long: 3 in 6 months"),
}
_PREDICT_AT = rf"^ *index\.(start|end)( *\+ *{_LENGTH})? *$"
_KEYS = {
    "cohort": "the name of everything made from this file: lower-case letters, digits and _",
    "about": "one sentence: what is predicted, and for whom",
    "source": "whose tables",
    "codes": "lists of codes by vocabulary; * at the end stands for any ending",
    "index": "the encounters a prediction is made for",
    "require": "what an index must fulfil; each '- name: condition' is a row of the attrition table",
    "looks_ahead": "what is known only after the prediction and is meant so: names of requirements, index, keep",
    "predict_at": "the moment of prediction: index.start or index.end, or so long after it",
    "features": "what the model may see",
    "outcome": "what is predicted: exactly one",
    "split": "how patients are parted into train, val and test",
}


def json_schema() -> dict[str, Any]:
    """Return the schema of a cohort file."""
    made = Cohort.model_json_schema()
    parts = {name: _part(name, part) for name, part in made.pop("$defs").items()}
    body: dict[str, Any] = _plain(made)
    for key, said in _KEYS.items():
        body["properties"][key] = _with(body["properties"][key], description=said)
    body["properties"]["predict_at"] = {
        "type": "string",
        "pattern": _PREDICT_AT,
        "description": _KEYS["predict_at"],
    }
    body["properties"]["outcome"]["oneOf"].append({"const": "index_died"})
    item = body["properties"]["require"]["items"]
    item["additionalProperties"]["oneOf"].append({"const": "index_alive"})
    body["properties"]["require"]["items"] = item | {"minProperties": 1, "maxProperties": 1}
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "a cohort"}
    return head | body | {"definitions": parts}


def _part(name: str, part: dict[str, Any]) -> dict[str, Any]:
    if name in _WRITTEN:
        pattern, said = _WRITTEN[name]
        return {"type": "string", "pattern": pattern, "description": said}
    plain: dict[str, Any] = _plain(part)
    keys = plain["properties"]
    if name == "Split":
        keys["hash"] = {"const": list(HASH_SPLIT)}
        plain["oneOf"] = [{"required": [key]} for key in keys]
    if "within" in keys:
        plain["oneOf"] = [{"required": ["within"]}, {"required": ["until"]}]
    if "after" in keys:
        plain["anyOf"] = [{"required": ["after"]}, {"required": ["before"]}]
    return plain


def _plain(node: Any) -> Any:
    """Return a node in draft 7, without what no writer needs: titles, defaults, null."""
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
        for key, inner in node.items()  # below `properties` a key is a name of ours: `title` is none there
        if key not in ("title", "default")
    }
    return _array(plain) if plain.get("type") == "array" else plain


def _array(node: dict[str, Any]) -> dict[str, Any]:
    """Return an array in draft 7; where a list of words is meant, one word may stand alone."""
    if "prefixItems" in node:
        shape = {"items": node["prefixItems"], "additionalItems": False}
        return {"type": "array", **shape, "minItems": node["minItems"], "maxItems": node["maxItems"]}
    items = node["items"]
    array = {"type": "array", "items": items} | ({"minItems": 1} if "minLength" in node else {})
    return array if items.get("type") == "object" else {"anyOf": [items, array]}


def _with(node: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Add to a node; draft 7 reads nothing that stands beside a `$ref`."""
    return ({"allOf": [node]} if "$ref" in node else node) | more
