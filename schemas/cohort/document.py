"""Read YAML together with its line numbers, so that every fault can name its line."""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor

from schemas.cohort.faults import Fault

FieldPath = tuple[str | int, ...]
"""The keys and places that lead from the top of a file to one of its fields."""


@dataclass
class Document:
    """A YAML file as plain data, with the line of every key and the text of every scalar that is not a string."""

    data: Any = None
    lines: dict[FieldPath, int] = field(default_factory=dict)
    raw_text: dict[FieldPath, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def line(self, path: FieldPath) -> int:
        """Return the line of a path, or of its longest prefix that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def dotted_path(path: FieldPath) -> str:
    """Return the keys of a path joined by dots, without positions in lists: `codes.aom.icd9cm`."""
    return ".".join(key for key in path if isinstance(key, str))


MAX_DEPTH = 32
"""Maximum nesting of lists and mappings; the language needs 6."""

_MAX = 2**63
"""Numbers of the language are far smaller; a longer one may not even be convertible to text."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class _Loader(Composer, yaml.CSafeLoader):
    """A loader that refuses nesting beyond `MAX_DEPTH` and all tags, some of which are unsafe to read.

    The parser is libyaml, four times as fast on a large file as the one in Python; the nodes are composed in Python,
    so that each can be refused.
    """

    depth = 0

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(problem="found a tag", problem_mark=event.start_mark)
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="too deep", problem_mark=event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_document(text: str) -> Document:
    """Read one YAML document; syntax errors, tags, duplicate keys and aliases become faults."""
    document = Document()
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        document.faults.append(_syntax_fault(error, text))
        return document
    except yaml.YAMLError:
        document.faults.append(Fault(1, "", "not valid YAML: is it a plain text file in UTF-8?"))
        return document
    if node is not None:
        document.data = _read(node, (), document, set())
    return document


_INDENTED = "this line is not indented like the lines it belongs to; indent them alike"
_TAB = "this line is indented with a tab; use spaces"
_ANCHOR = "put text that begins with * or & in quotes"
_ESCAPE = "text in double quotes contains a \\; use single quotes"
_OTHER = "put text that begins with a special character in quotes"

# part of libyaml's message -> what to tell the author of the file, to whom no other is shown
_SYNTAX = {
    "did not find expected key": _INDENTED,
    "did not find expected '-' indicator": _INDENTED,
    "did not find expected <document start>": _INDENTED,
    "tab character": _TAB,
    "mapping values are not allowed": "there is one ':' too many, or this line is indented too far; "
    "put text that contains ': ' in quotes",
    "could not find expected ':'": "there is no ':' after the key",
    "unexpected ':'": "put text that contains ':' in quotes",
    "expected ',' or": "a comma or a closing bracket is missing",
    "expected node content": "a value is missing, or there is an extra character",
    "sequence entries are not allowed": "an item of a list begins a line of its own, with '- '",
    "mapping keys are not allowed": "put text that begins with ? in quotes",
    "expected comment or line break": "put text that begins with | or > in quotes",
    "unexpected end of stream": "a quotation mark is never closed",
    "unexpected document indicator": "a quotation mark is never closed",
    "undefined alias": _ANCHOR,
    "alphabetic or numeric character": _ANCHOR,
    "non-alphabetical character": _ANCHOR,
    "unknown escape character": _ESCAPE,
    "hexdecimal number": _ESCAPE,  # so spelt by libyaml
    "Unicode character escape code": _ESCAPE,
    "found a tag": "tags (!…) are not supported; put text that begins with ! in quotes",
    "too deep": f"lists and mappings are nested more than {MAX_DEPTH} levels deep",
    "found another document": "the file contains two documents; write each cohort to a file of its own",
}


def _syntax_fault(error: yaml.MarkedYAMLError, text: str) -> Fault:
    """Return a fault that says in plain words where the text stops being YAML.

    For a bracket or quotation mark that is never closed, that is the line where it opens.
    """
    problem = error.problem or ""
    sentence = next((words for part, words in _SYNTAX.items() if part in problem), _OTHER)
    if "cannot start" in problem and error.problem_mark and text.startswith("\t", error.problem_mark.index):
        sentence = _TAB
    is_unclosed = any(part in (error.context or "") for part in ("flow", "simple key", "quoted"))
    mark = error.context_mark if is_unclosed and error.context_mark else error.problem_mark
    return Fault(mark.line + 1 if mark else 1, "", f"not valid YAML: {sentence}")


def _read(node: yaml.Node, path: FieldPath, document: Document, node_ids: set[int]) -> Any:
    line = node.start_mark.line + 1
    document.lines.setdefault(path, line)
    if id(node) in node_ids:
        document.faults.append(
            Fault(
                line, dotted_path(path), "anchors and aliases (&, *) are not supported; write the value out"
            )
        )
        return None
    node_ids.add(id(node))
    if isinstance(node, yaml.MappingNode):
        return _read_mapping(node, path, document, node_ids)
    if isinstance(node, yaml.SequenceNode):
        return [_read(item, (*path, place), document, node_ids) for place, item in enumerate(node.value)]
    return _read_scalar(node, path, document)


def _read_mapping(
    node: yaml.MappingNode, path: FieldPath, document: Document, node_ids: set[int]
) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.faults.append(
                Fault(line, dotted_path(path), "a key must be a word, not a list or a mapping")
            )
            continue
        key = key_node.value
        _refuse_control(key, key_node, path, document)
        if key in data:
            first = document.lines[(*path, key)]
            document.faults.append(
                Fault(line, dotted_path(path), f"'{key}' appears twice; the first is in line {first}")
            )
            continue
        document.lines[(*path, key)] = line
        data[key] = _read(value_node, (*path, key), document, node_ids)
    return data


def _read_scalar(node: yaml.Node, path: FieldPath, document: Document) -> Any:
    try:
        value = SafeConstructor().construct_object(node)
    except ValueError:  # it looks like a date but is not one, e.g. 2016-13-01: keep it as text
        return node.value
    except (yaml.YAMLError, ArithmeticError):  # includes OverflowError
        message = f"'{node.value}' cannot be read; put it in quotes"
        document.faults.append(Fault(node.start_mark.line + 1, dotted_path(path), message))
        return node.value
    if isinstance(value, str):
        _refuse_control(value, node, path, document)
        return value
    document.raw_text[path] = node.value
    return value if not isinstance(value, int) or abs(value) < _MAX else node.value


def _refuse_control(text: str, node: yaml.Node, path: FieldPath, document: Document) -> None:
    r"""Add a fault for a character that cannot be displayed, such as "\0" in double quotes."""
    if _CONTROL.search(text):
        message = "contains a control character; remove it, or use single quotes"
        document.faults.append(Fault(node.start_mark.line + 1, dotted_path(path), message))
