"""YAML read with its lines kept, so that every fault can say where it stands."""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from schemas.cohort.faults import Fault

Path = tuple[str | int, ...]


@dataclass
class Document:
    """A YAML file as plain data, the line of every key, and the text of every scalar not read as text."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Return the line of a path, or of the nearest part of it that stands in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def where(path: Path) -> str:
    """Return the keys of a path with dots, positions in lists left out: `codes.aom.icd9cm`."""
    return ".".join(key for key in path if isinstance(key, str))


MOST_DEEP = 32
"""Lists and mappings inside one another; the language needs 6."""

_MOST = 2**63
"""No number of the language is near it; a longer one cannot even be written out."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    """Composes nodes up to `MOST_DEEP` and without tags: a tag chooses how its value is read, safely or not."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(problem="found a tag", problem_mark=event.start_mark)
        if self.depth > MOST_DEEP:
            raise yaml.MarkedYAMLError(problem="too deep", problem_mark=event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_document(text: str) -> Document:
    """Read one YAML document; syntax errors, tags, repeated keys and aliases become faults."""
    document = Document()
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        document.faults.append(_syntax_fault(error))
        return document
    except yaml.YAMLError:
        document.faults.append(Fault(1, "", "not readable: is it a plain text file in UTF-8?"))
        return document
    if node is not None:
        document.data = _read(node, (), document, set())
    return document


_SYNTAX = {  # what YAML says is wrong, and what it is
    "expected <block end>": "begins in another column than the lines it belongs to; indent them alike",
    "character '\\t'": "is indented with a tab; use spaces",
    "mapping values are not allowed": "has one ':' too many, or is indented too much; a text with ': ' in it "
    "belongs in quotes",
    "could not find expected ':'": "has no ':' after its key",
    "expected ',' or": "a comma or a closing bracket is missing",
    "expected the node content": "something is missing, or stands too much",
    "unexpected end of stream": "a quote is never closed",
    "undefined alias": "a text that begins with * or & belongs in quotes",
    "alphabetic or numeric character": "a text that begins with * or & belongs in quotes",
    "unknown escape character": "has a \\ in double quotes; take single quotes",
    "found a tag": "tags (!…) are not read; a text that begins with ! belongs in quotes",
    "too deep": f"more than {MOST_DEEP} lists or mappings stand inside one another",
    "found another document": "holds two documents; give each cohort a file of its own",
    "cannot start any token": "a text that begins with a sign belongs in quotes",
}


def _syntax_fault(error: yaml.MarkedYAMLError) -> Fault:
    """Say in a writer's words where the text stops being YAML; of what is left open, where it was begun."""
    problem = error.problem or ""
    sentence = next((words for part, words in _SYNTAX.items() if part in problem), f"is not YAML: {problem}")
    begun = any(part in (error.context or "") for part in ("flow", "simple key", "quoted"))
    mark = error.context_mark if begun and error.context_mark else error.problem_mark
    return Fault(mark.line + 1 if mark else 1, "", f"not readable: {sentence}")


def _read(node: yaml.Node, path: Path, document: Document, seen: set[int]) -> Any:
    line = node.start_mark.line + 1
    document.lines.setdefault(path, line)
    if id(node) in seen:
        document.faults.append(
            Fault(line, where(path), "anchors and aliases (&, *) are not read; write it out")
        )
        return None
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        return _read_mapping(node, path, document, seen)
    if isinstance(node, yaml.SequenceNode):
        return [_read(item, (*path, place), document, seen) for place, item in enumerate(node.value)]
    return _read_scalar(node, path, document)


def _read_mapping(node: yaml.MappingNode, path: Path, document: Document, seen: set[int]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.faults.append(Fault(line, where(path), "a key must be a word, not a list or a mapping"))
            continue
        key = key_node.value
        _refuse_control(key, key_node, path, document)
        if key in data:
            first = document.lines[(*path, key)]
            document.faults.append(Fault(line, where(path), f"'{key}' stands twice, first in line {first}"))
            continue
        document.lines[(*path, key)] = line
        data[key] = _read(value_node, (*path, key), document, seen)
    return data


def _read_scalar(node: yaml.Node, path: Path, document: Document) -> Any:
    try:
        value = SafeConstructor().construct_object(node)
    except ValueError:  # like a date and none, 2016-13-01: a text, which will not do where a date belongs
        return node.value
    except (yaml.YAMLError, ArithmeticError):  # OverflowError is one
        message = f"'{node.value}' cannot be read; put it in quotes"
        document.faults.append(Fault(node.start_mark.line + 1, where(path), message))
        return node.value
    if isinstance(value, str):
        _refuse_control(value, node, path, document)
        return value
    document.written[path] = node.value
    return value if not isinstance(value, int) or abs(value) < _MOST else node.value


def _refuse_control(text: str, node: yaml.Node, path: Path, document: Document) -> None:
    r"""Add a fault for a letter that no page can show, as "\0" in double quotes writes one."""
    if _CONTROL.search(text):
        message = "holds a control character; take it out, or take single quotes"
        document.faults.append(Fault(node.start_mark.line + 1, where(path), message))
