"""Cases: text of a table that differs from MIMIC-IV's: encoding, line ends, delimiter, quotes or columns."""

import re

from tests.bad_inputs.clean import COLUMNS
from tests.bad_inputs.damage import as_plain_csv, body, cells, columns, combine, line_of, lines, rows
from tests.bad_inputs.files import AGAIN, refusal_case
from tests.bad_inputs.outcomes import Case, CountedResult, SameResult

LAB, EMAR = ({name: at for at, name in enumerate(COLUMNS[table])} for table in ("labevents", "emar"))
AS_PUBLISHED = "as its provider publishes it"
COMMA = "comma-separated"
WILD = '"a", she said: ""no"",\r\n,,\n"'


def change_line(table, holds, change):
    """Return a damage that changes one unquoted line, the first in the second half for which `holds` is true."""

    def damage(text_lines: list[bytes]) -> list[bytes]:
        place = line_of(text_lines, holds)
        return [*text_lines[:place], change(text_lines[place]), *text_lines[place + 1 :]]

    return lines(table, damage)


def write_in_column(table: str, column: str, *texts: bytes, distance: int = 200):
    """Return a damage that writes texts, unquoted, into empty cells of a column, `distance` lines apart."""
    place = COLUMNS[table].index(column)

    def damage(text_lines: list[bytes]) -> list[bytes]:
        width, result, at = text_lines[0].count(b","), list(text_lines), len(text_lines) // 3
        for text in texts:
            while (
                result[at].count(b",") != width or b'"' in result[at] or result[at].split(b",")[place].strip()
            ):
                at += 1
            end = b"\r\n" if place == width else b""
            result[at] = replace_field(result[at], place, text + end)
            at += distance
        return result

    return lines(table, damage)


def write_in_comments(*texts: bytes):
    """Return a damage that writes texts, unquoted, as comments in labevents, 200 lines apart."""

    def damage(text_lines: list[bytes]) -> list[bytes]:
        width, result, at = text_lines[0].count(b","), list(text_lines), len(text_lines) // 3
        for text in texts:
            while result[at].count(b",") != width or b'"' in result[at] or not result[at].endswith(b",\r\n"):
                at += 1
            result[at] = result[at].removesuffix(b"\r\n") + text + b"\r\n"
            at += 200
        return result

    return lines("labevents", damage)


def first_fields(count: int):
    return lambda line: b",".join(line.split(b",")[:count]) + b"\r\n"


def with_zero_block(data: bytes) -> bytes:
    """Return the data with a block of zeros in the middle, as from a faulty disk."""
    middle = len(data) // 2
    return data[:middle] + bytes(512) + data[middle + 512 :]


def replace_field(line: bytes, place: int, text: bytes) -> bytes:
    fields = line.split(b",")
    return b",".join([*fields[:place], text, *fields[place + 1 :]])


def unquoted_decimal_commas(data: bytes) -> bytes:
    """Return labevents with decimal commas in value and valuenum, as from an export without quotes."""
    whole = re.sub(rb",(\d+),\1,", rb",\1.0,\1.0,", data)
    return re.sub(rb",(\d+)\.(\d+),\1\.\2,", rb",\1,\2,\1,\2,", whole)


def any_line(fields: list[bytes]) -> bool:
    return True


def has_no_value(fields: list[bytes]) -> bool:
    """Return whether a line of labevents is empty after storetime."""
    return set(fields[LAB["value"] :]) == {b""}


def has_finite_value(fields: list[bytes]) -> bool:
    return fields[LAB["valuenum"]] not in (b"", b"NaN", b"1e999") and fields[LAB["valueuom"]] != b""


def repeat_header(text_lines: list[bytes]) -> list[bytes]:
    middle = len(text_lines) // 2
    while not (text_lines[middle].startswith(b"7") or text_lines[middle][:1].isdigit()):
        middle += 1
    return [*text_lines[:middle], text_lines[0], *text_lines[middle:]]


def drop_last_bytes(count: int):
    return lambda data: data[: len(data) - count]


TEXTS = [
    Case(
        "byte_order_mark",
        "labevents",
        body("labevents", lambda data: b"\xef\xbb\xbf" + data),
        SameResult(),
        "Excel marks UTF-8 this way",
        is_quick=True,
    ),
    Case(
        "byte_order_mark_on_a_crosswalk",
        "gsn_atc_ndc_mapping",
        body("gsn_atc_ndc_mapping", lambda data: b"\xef\xbb\xbf" + data),
        SameResult(),
        "crosswalks pass through Excel",
    ),
    Case(
        "line_feeds",
        "emar",
        body("emar", lambda data: data.replace(b"\r\n", b"\n")),
        SameResult(),
        "all line ends mean the same",
    ),
    Case(
        "mixed_line_ends",
        "emar",
        lines(
            "emar",
            lambda text_lines: [
                line.replace(b"\r\n", b"\n") if n % 3 else line for n, line in enumerate(text_lines)
            ],
        ),
        SameResult(),
        "files joined from two systems",
    ),
    refusal_case(
        "carriage_returns_alone",
        "emar",
        body("emar", lambda data: data.replace(b"\r\n", b"\r")),
        "no column|carriage return",
        f"(?i){AS_PUBLISHED}|line",
        "readers see a single line",
    ),
    refusal_case(
        "utf_16",
        "labevents",
        body("labevents", lambda data: data.decode().encode("utf-16")),
        "UTF-16",
        "UTF-8",
        "guessing an encoding may change a text",
    ),
    refusal_case(
        "latin_1",
        "emar",
        body("emar", lambda data: data.replace(b"Heparin", "H\xe9parin".encode("latin-1"))),
        "UTF-8",
        "UTF-8",
        "the byte is a different letter in many encodings",
    ),
    refusal_case(
        "latin_1_in_a_column_not_read",
        "labevents",
        write_in_comments("na\xefve".encode("latin-1")),
        "UTF-8",
        "UTF-8",
        "a file must be entirely UTF-8",
    ),
    refusal_case(
        "semicolons",
        "labevents",
        body("labevents", lambda data: data.replace(b",", b";")),
        "semicolon",
        COMMA,
        "such exports have decimal commas",
    ),
    refusal_case(
        "tabs",
        "admissions",
        body("admissions", lambda data: data.replace(b",", b"\t")),
        r"\btab",
        COMMA,
        "only commas are supported",
    ),
    refusal_case(
        "bars",
        "emar",
        body("emar", lambda data: data.replace(b",", b"|")),
        r"bar",
        COMMA,
        "only commas are supported",
    ),
    Case(
        "quotes_and_newlines_in_comments",
        "labevents",
        cells("labevents", "comments", WILD, empty=True),
        SameResult(),
        "MIMIC-IV's comments contain them",
    ),
    refusal_case(
        "a_quote_never_closed",
        "emar",
        change_line("emar", any_line, lambda line: replace_field(line, EMAR["medication"], b'"Aspirin')),
        "quote|parsed",
        AGAIN,
        "everything after it would be one cell",
    ),
    refusal_case(
        "a_quote_never_closed_in_a_comment",
        "labevents",
        write_in_comments(b'"never closed'),
        "quote|parsed",
        AGAIN,
        "everything after it would be one cell, even in an unread column",
    ),
    refusal_case(
        "two_quotes_never_closed",
        "labevents",
        combine(cells("labevents", "comments", ""), write_in_comments(b'"never closed', b'"neither this')),
        "quote|parsed",
        AGAIN,
        "the second seems to close the first: 200 rows would be silently lost",
        is_quick=True,
    ),
    *(
        refusal_case(
            f"two_quotes_never_closed_in_{column}",
            table,
            combine(
                cells(table, column, ""), write_in_column(table, column, b'2"', b'2"', distance=distance)
            ),
            "quote|parsed",
            AGAIN,
            "inches or other free text: the rows between would be silently lost",
        )
        for table, column, distance in (
            ("labevents", "value", 200),
            ("prescriptions", "prod_strength", 200),
            ("prescriptions", "route", 200),
            ("admissions", "discharge_location", 20),
        )
    ),
    *(
        refusal_case(
            f"backslash_quotes_in_{table}_{column}",
            table,
            write_in_column(table, column, *(text for _ in range(2)), distance=distance),
            "not doubled",
            "(?i)doubled",
            reason,
            is_quick=column == "scheduletime",
        )
        for table, column, distance, text, reason in (
            (
                "emar",
                "scheduletime",
                20,
                rb'"5\" needle"',
                "Spark and Hive write this: 20 rows would be lost",
            ),
            (
                "emar",
                "enter_provider_id",
                250,
                rb'"5\""',
                "the same at the end of a cell: 250 rows would be lost",
            ),
            ("labevents", "flag", 2, rb'"\"high"', "the same in an unread column"),
            ("prescriptions", "prod_strength", 400, rb'"2\" patch"', "the same"),
        )
    ),
    refusal_case(
        "two_cells_of_a_lone_quote",
        "labevents",
        combine(
            cells("labevents", "comments", ""), write_in_column("labevents", "flag", b'"', b'"', distance=200)
        ),
        "whole rows",
        "(?i)doubled",
        "the text between looks like one quoted cell, but its lines are rows",
    ),
    refusal_case(
        "single_quotes",
        "emar",
        cells("emar", "medication", lambda text: f"'{text}'"),
        "single quote",
        "(?i)mend|correct|fix",
        "a comma inside them would split the cell",
        column="medication",
    ),
    refusal_case(
        "an_inch_in_a_comment",
        "labevents",
        write_in_comments(b'5"2'),
        "quote|parsed",
        AGAIN,
        "an export without quoting may have damaged commas and newlines",
    ),
    Case(
        "short_line_of_empty_fields",
        "labevents",
        change_line("labevents", has_no_value, first_fields(LAB["value"])),
        SameResult(),
        "some programs leave trailing empty fields out",
    ),
    Case(
        "short_line",
        "labevents",
        change_line("labevents", has_finite_value, first_fields(LAB["storetime"])),
        CountedResult(
            ("events", "labevents", "dropped"),
            "no_valuenum",
            1,
            as_if=change_line(
                "labevents",
                has_finite_value,
                lambda line: first_fields(LAB["storetime"])(line).replace(b"\r\n", b"," * 8 + b"\r\n"),
            ),
        ),
        "missing fields are empty; a row without a value is counted",
    ),
    refusal_case(
        "line_of_an_id_alone",
        "labevents",
        change_line("labevents", any_line, first_fields(1)),
        "rows have none",
        "(?i)mend|correct|fix",
        "the patient is unknown",
        column="subject_id",
        count=1,
    ),
    Case(
        "comma_in_a_comment",
        "labevents",
        write_in_comments(b"a comma, not quoted"),
        SameResult(),
        "no column that is read follows",
    ),
    refusal_case(
        "comma_in_a_value",
        "labevents",
        change_line(
            "labevents", has_finite_value, lambda line: replace_field(line, LAB["value"], b"see note, below")
        ),
        "not a number",
        "(?i)mend|correct|fix",
        "every later field is shifted by one",
        column="valuenum",
        count=1,
    ),
    refusal_case(
        "decimal_commas_not_quoted",
        "labevents",
        body("labevents", unquoted_decimal_commas),
        "hold a number",
        "(?i)quot",
        "1,5 would be read as value 5 with unit 1, without a type error",
        column="unit",
        file="events",
        last_step="drug_lookup",
    ),
    refusal_case(
        "last_line_cut",
        "labevents",
        as_plain_csv("labevents", drop_last_bytes(60)),
        "last line",
        AGAIN,
        "a plain file has no checksum; only the last line shows the truncation",
    ),
    Case(
        "no_newline_at_the_end",
        "emar",
        body("emar", drop_last_bytes(2)),
        SameResult(),
        "many programs write none",
    ),
    Case(
        "blank_lines",
        "emar",
        lines(
            "emar",
            lambda text_lines: [*text_lines[:700], b"\r\n", b"\n", *text_lines[700:], b"\r\n", b"\r\n"],
        ),
        SameResult(),
        "an empty line is not a row",
    ),
    Case(
        "lines_of_commas_alone",
        "emar",
        lines(
            "emar",
            lambda text_lines: [
                *text_lines[:700],
                *[b"," * text_lines[0].count(b",") + b"\r\n"] * 3,
                *text_lines[700:],
            ],
        ),
        SameResult(),
        "empty rows of a spreadsheet have no data",
    ),
    refusal_case(
        "rows_of_what_is_not_read_alone",
        "emar",
        rows(
            "emar",
            lambda text_lines: [
                *text_lines,
                *[dict.fromkeys(text_lines[0], "") | {"emar_id": "71000007-3"}] * 2,
            ],
        ),
        "2 of .* rows have none",
        "(?i)mend|correct|fix",
        "the row has data, but the patient is unknown",
        column="subject_id",
    ),
    Case(
        "carriage_return_within_a_cell",
        "labevents",
        write_in_comments(b"a\rb"),
        SameResult(),
        "lines end with a line feed, so nothing is lost",
    ),
    Case(
        "line_separators_of_unicode",
        "labevents",
        write_in_comments("a\u2028b\u0085c\x0bd".encode()),
        SameResult(),
        "they do not do not end a line of a table",
    ),
    refusal_case(
        "a_block_of_zeros", "emar", as_plain_csv("emar", with_zero_block), "zero bytes", AGAIN, "a disk fault"
    ),
    Case(
        "zero_bytes_in_a_comment",
        "labevents",
        write_in_comments(b"a\0b"),
        SameResult(),
        "in an unread column",
    ),
    Case(
        "a_comment_of_5_mb",
        "labevents",
        write_in_comments(b"y" * 5_000_000),
        SameResult(),
        "a report pasted into a comment",
    ),
    Case(
        "header_in_capitals",
        "admissions",
        columns("admissions", list, str.upper),
        SameResult(),
        "databases write column names this way",
        is_quick=True,
    ),
    Case(
        "header_in_mixed_case",
        "labevents",
        columns("labevents", list, str.title),
        SameResult(),
        "case is ignored in column names",
    ),
    Case(
        "header_with_blanks",
        "emar",
        columns("emar", list, lambda name: f" {name} "),
        SameResult(),
        "surrounding blanks are ignored in column names",
    ),
    Case(
        "columns_reordered",
        "labevents",
        columns("labevents", lambda names: names[::-1]),
        SameResult(),
        "columns are identified by name",
    ),
    Case(
        "extra_columns",
        "emar",
        columns("emar", lambda names: ["row_id", *names, "note", "site"]),
        SameResult(),
        "unread columns do not matter",
    ),
    refusal_case(
        "column_twice",
        "labevents",
        columns("labevents", lambda names: [*names, "valuenum"]),
        "twice",
        "(?i)keep one",
        "the right one is unknown",
        column="valuenum",
    ),
    refusal_case(
        "column_twice_but_for_case",
        "labevents",
        columns("labevents", lambda names: [*names, "HADM_ID"]),
        "twice",
        "(?i)keep one",
        "case does not distinguish columns",
        column="hadm_id",
    ),
    Case(
        "column_not_read_twice",
        "labevents",
        columns("labevents", lambda names: [*names, "comments"]),
        SameResult(),
        "unread columns do not matter",
    ),
    refusal_case(
        "column_missing",
        "labevents",
        columns("labevents", lambda names: [name for name in names if name != "valuenum"]),
        "no column valuenum",
        AS_PUBLISHED,
        "without values there are no tokens",
    ),
    refusal_case(
        "no_event_txt",
        "emar",
        columns("emar", lambda names: [name for name in names if name != "event_txt"]),
        "no column event_txt",
        AS_PUBLISHED,
        "ordered drugs would count as administered",
    ),
    refusal_case(
        "no_gsn",
        "prescriptions",
        columns("prescriptions", lambda names: [name for name in names if name != "gsn"]),
        "no column gsn",
        AS_PUBLISHED,
        "no drug could be coded",
    ),
    refusal_case(
        "no_header",
        "labevents",
        lines("labevents", lambda text_lines: text_lines[1:]),
        "no column labevent_id.*none we read",
        AS_PUBLISHED,
        "the first row must not be quoted in the message",
    ),
    refusal_case(
        "header_again_in_the_middle",
        "labevents",
        lines("labevents", repeat_header),
        "not a whole number",
        "(?i)mend|correct|fix",
        "two joined exports; the second may have other columns",
        column="itemid",
        count=1,
        of=3503,
    ),
]
