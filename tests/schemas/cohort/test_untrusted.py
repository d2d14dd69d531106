"""Tests that any content under a cohort file's name gives a cohort or faults, in no time, and harms no other file."""

import contextlib
import os
import socket
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.cohort import CohortError, parse_cohort, parse_text, read_folder
from schemas.cohort.text import MAX_BYTES
from tests.support.examples import examples

GOOD = (Path(__file__).parents[3] / "assets" / "cohorts" / "mimic_mortality.yaml").read_text()
MOST_SECONDS = 1.0

TEXTS = {
    "python tag": ("cohort: !!python/object/apply:os.system [ls]", "tags (!…) are not supported"),
    "tag that crashes its reader": ("cohort: !!timestamp no", "tags (!…) are not supported"),
    "tag of a bool": ("cohort: !!bool maybe", "tags (!…) are not supported"),
    "tag of an empty number": ("cohort: !!int ''", "tags (!…) are not supported"),
    "tag of one's own": ("cohort: !mine x", "tags (!…) are not supported"),
    "set": ("!!set {a, b}", "tags (!…) are not supported"),
    "1,200 brackets": ("[" * 1200, "nested more than 32 levels deep"),
    "60,000 braces": ("{" * 60_000, "nested more than 32 levels deep"),
    "1,200 dashes": ("- " * 1200, "nested more than 32 levels deep"),
    "1,200 question marks": ("? " * 1200, "nested more than 32 levels deep"),
    "alias to itself": ("cohort: &a [*a]", "anchors and aliases"),
    "billion laughs": (
        "a: &a [x, x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in pairwise("abcdefgh")),
        "anchors and aliases",
    ),
    "merge key": ("<<: {cohort: mine}\n" + GOOD, "unknown key '<<'"),
    "mapping as a key": ("? {a: b}\n: c\n", "a key must be a word"),
    "key twice": (GOOD + "about: again\n", "'about' appears twice"),
    "two documents": (GOOD + "---\n" + GOOD, "contains two documents"),
    "number of 5,000 digits": (
        GOOD.replace("hash: [70", "hash: [" + "7" * 5000),
        "is not a whole number of reasonable size",
    ),
    "hexadecimal number of 5,000 digits": (
        GOOD.replace("hash: [70", "hash: [0x" + "7" * 5000),
        "is not a whole number",
    ),
    "date that is none": (GOOD.replace("keep: every", "keep: every, from: 2016-13-45"), "is not a date"),
    "time zone of 99 hours": (
        GOOD.replace("keep: every", "keep: every, from: 2016-01-01 00:00:00 +99:99"),
        "is not a date",
    ),
    "length of 999,999 years": (GOOD.replace("24 hours", "999999 years"), "is too long; write at most"),
    "NUL": ("cohort: a\0b", "plain text file"),
    "escaped NUL": (GOOD.replace("about: ", 'about: "\\0"\n#'), "control character"),
    "half a surrogate pair": (
        GOOD.replace("about: ", 'about: "\\ud800"\n#'),
        "text in double quotes contains a \\",
    ),
    "half a surrogate pair as a key": ('"\\udcff": 1\n' + GOOD, "text in double quotes contains a \\"),
    "name of 5,000 letters": (
        GOOD.replace("mimic_mortality", "m" * 5000),
        "the name is too long; write at most 100",
    ),
    "12,000 keys": ("a: 1\n" * 12_000, "more faults"),
    "1,900 code lists and 500 that are none of them": (
        "codes:\n"
        + "".join(f"  l{n}: {{atc: [A]}}\n" for n in range(1900))
        + "require:\n"
        + "".join(f"  - r{n}: {{index_without: x{n}}}\n" for n in range(500)),
        "no code list named",
    ),
    "braces of a format": ('"{a} {0} {": 1\n' + GOOD, "unknown key '{a} {0} {'"),
}


def faults_in_time(path: Path) -> str:
    seconds = []
    for _ in range(3):  # the best of three, for a busy machine
        began = time.process_time()
        with pytest.raises(CohortError) as error:
            parse_cohort(path)
        seconds.append(time.process_time() - began)
    assert min(seconds) < MOST_SECONDS
    str(error.value).encode()
    return str(error.value)


@pytest.mark.parametrize("name", TEXTS)
def test_harmful_text_is_a_fault_within_a_second(name, tmp_path):
    text, message = TEXTS[name]
    path = tmp_path / "harm.yaml"
    path.write_text(text)
    report = faults_in_time(path)
    assert message in report
    assert len(report) < 80_000


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(path))


def make_large(path: Path) -> None:
    path.touch()
    os.truncate(path, 100_000_000)


FILES = {
    "pipe": (make_fifo, "a folder, a pipe or a device"),
    "socket": (make_socket, "cannot be read"),
    "folder": (Path.mkdir, "a folder, a pipe or a device"),
    "endless device": (lambda path: path.symlink_to("/dev/zero"), "a folder, a pipe or a device"),
    "link to itself": (lambda path: path.symlink_to(path), "cannot be read"),
    "link to nothing": (lambda path: path.symlink_to("nothing"), "there is no such file"),
    "Latin-1": (lambda path: path.write_bytes("cohort: Müller".encode("latin-1")), "UTF-8"),
    "UTF-16": (lambda path: path.write_bytes(GOOD.encode("utf-16")), "UTF-8"),
    "100 MB": (make_large, "is larger than 64 KiB"),
}


@pytest.mark.parametrize("name", FILES)
def test_anything_but_a_text_file_is_a_fault_and_other_files_load(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is limited to about 100 characters
    make, message = FILES[name]
    make(Path("harm.yaml"))
    Path("mimic_mortality.yaml").write_text(GOOD)
    assert message in faults_in_time(Path("harm.yaml"))

    (cohort,), bad = read_folder(tmp_path)
    assert cohort.cohort == "mimic_mortality"
    assert message in str(bad["harm"])


def test_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "mimic_mortality.yaml"
    path.write_text("\ufeff" + GOOD)
    assert parse_cohort(path).cohort == "mimic_mortality"
    path.write_text("\ufeff" + GOOD.replace("outcome:", "\toutcome:"))
    with pytest.raises(CohortError, match="indented with a tab"):
        parse_cohort(path)


def test_file_of_the_largest_size_is_parsed(tmp_path):
    path = tmp_path / "mimic_mortality.yaml"
    path.write_text(GOOD + "#" * (MAX_BYTES - len(GOOD.encode())))
    assert parse_cohort(path).cohort == "mimic_mortality"


def test_unexpected_error_is_a_fault_of_the_file(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyError("nobody thought of this")

    monkeypatch.setattr("schemas.cohort.read.read_document", fail)
    with pytest.raises(CohortError, match=r"c\.yaml:1: cannot be understood \(KeyError\)"):
        parse_text(GOOD, file="c.yaml")


PIECES = st.sampled_from(
    [
        "!!int ",
        "&a ",
        "*a",
        "[",
        "]",
        "{",
        "}",
        "- ",
        "? ",
        ": ",
        "\n",
        "\t",
        "  ",
        "<<",
        "'",
        '"',
        "|",
        "%",
        "0x",
        ".inf",
        "1:30",
    ]
)


@settings(deadline=None, max_examples=examples(80))
@given(st.lists(PIECES | st.text(max_size=3), max_size=8), st.integers(0, len(GOOD)))
def test_text_inserted_anywhere_gives_a_cohort_or_faults(pieces, place):
    with contextlib.suppress(CohortError):
        parse_text(GOOD[:place] + "".join(pieces) + GOOD[place:], file="c.yaml").normalized()


@settings(
    deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_a_cohort_or_faults(tmp_path, content):
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    with contextlib.suppress(CohortError):
        parse_cohort(path)
