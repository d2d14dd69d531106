"""Cases: files that are missing, not regular, truncated, of another format than their name, or duplicated."""

import gzip
import io
import os
import shutil
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bad_inputs.damage import (
    as_plain_csv,
    change_compressed,
    combine,
    file_of,
    file_system,
    flip,
    parquet,
    rows,
)
from tests.bad_inputs.outcomes import Case, Refusal, SameResult

AGAIN = r"(?i)(copy|download).* again"
NOBODY = 65534


def as_zip(data: bytes) -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labevents.csv", gzip.decompress(data))
    return into.getvalue()


def as_two_gzip_members(data: bytes) -> bytes:
    text = gzip.decompress(data)
    middle = text.index(b"\n", len(text) // 2) + 1
    return gzip.compress(text[:middle]) + gzip.compress(text[middle:])


def replace_by(table: str, source: str):
    return lambda raw: shutil.copy(file_of(raw, source), file_of(raw, table))


def swap_files(table: str, second_table: str):
    def damage(raw: Path) -> None:
        first, second = file_of(raw, table), file_of(raw, second_table)
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)

    return damage


def change_release(*tables: str):
    """Return a damage that gives patients and admissions of some tables other ids."""

    def other_id(row: dict[str, str]) -> dict[str, str]:
        ids = ("subject_id", "hadm_id")
        return {name: f"8{text[1:]}" if name in ids and text else text for name, text in row.items()}

    return combine(*(rows(table, lambda records: [other_id(row) for row in records]) for table in tables))


def replace_by_link(path: Path) -> None:
    target = path.with_name(f"real-{path.name}")
    path.rename(target)
    path.symlink_to(target)


def replace_with(make):
    """Return a change that replaces the file by something else."""

    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def add_plain_copy(raw: Path) -> None:
    """Add a plain copy beside the compressed one."""
    path = file_of(raw, "labevents")
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))


@contextmanager
def as_ordinary_user(folder: Path) -> Iterator[None]:
    """Run as an ordinary user who owns the folder, because root could read a locked file."""
    if os.geteuid() != 0:
        yield
        return
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    locked_parents = [parent for parent in folder.parents if not parent.stat().st_mode & 0o001]
    for parent in locked_parents:
        parent.chmod(parent.stat().st_mode | 0o001)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        for parent in locked_parents:
            parent.chmod(parent.stat().st_mode & ~0o001)


@contextmanager
def copy_in_progress(folder: Path) -> Iterator[None]:
    """Keep appending to a table while it is being read, like a copy in progress."""
    path = file_of(folder / "raw", "labevents").with_suffix("")
    last = path.read_bytes().splitlines(keepends=True)[-1]
    stop = threading.Event()

    def grow() -> None:
        while not stop.wait(0.001):
            with path.open("ab") as file:
                file.write(last)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def refusal_case(name, table, damage, says, mend, reason, **options) -> Case:
    during, is_quick = options.pop("during", None), options.pop("is_quick", False)
    return Case(name, table, damage, Refusal(says, mend, **options), reason, is_quick=is_quick, during=during)


FILES = [
    refusal_case(
        "no_folder",
        "labevents",
        lambda raw: shutil.rmtree(raw / "hosp"),
        "no such file",
        "Copy it there",
        "there is nothing to read",
        file="patients",
    ),
    refusal_case(
        "no_table",
        "emar",
        file_system(Path.unlink, "emar"),
        "no such file",
        "Copy it there",
        "a kind of event would be silently missing",
    ),
    refusal_case(
        "no_crosswalk",
        "gsn_atc_ndc_mapping",
        file_system(Path.unlink, "gsn_atc_ndc_mapping"),
        "no such file",
        "Name the folder",
        "no drug could be coded",
    ),
    refusal_case(
        "empty_file",
        "admissions",
        change_compressed("admissions", lambda _: b""),
        "the file is empty",
        AGAIN,
        "probably a failed download",
    ),
    refusal_case(
        "gzip_of_nothing",
        "labevents",
        change_compressed("labevents", lambda _: gzip.compress(b"")),
        "the file is empty",
        AGAIN,
        "probably an empty export",
    ),
    refusal_case(
        "header_only",
        "emar",
        change_compressed("emar", lambda data: gzip.compress(gzip.decompress(data).splitlines(True)[0])),
        "the table has no rows",
        "Give the whole table",
        "probably a filter that matched nothing",
        is_quick=True,
    ),
    refusal_case(
        "folder_for_a_file",
        "labevents",
        file_system(replace_with(Path.mkdir), "labevents"),
        "is a folder",
        "(?i)give the file",
        "it may contain anything",
    ),
    refusal_case(
        "pipe_for_a_file",
        "labevents",
        file_system(replace_with(os.mkfifo), "labevents"),
        "is not a regular file",
        "(?i)give the file",
        "reading it would block forever",
    ),
    refusal_case(
        "no_permission",
        "labevents",
        file_system(lambda path: path.chmod(0), "labevents"),
        "may not be read",
        "(?i)permission",
        "the user can grant permission",
        during=as_ordinary_user,
        is_quick=True,
    ),
    refusal_case(
        "link_loop",
        "labevents",
        file_system(replace_with(lambda path: path.symlink_to(path.name)), "labevents"),
        "link",
        "(?i)give the file",
        "a link to itself leads nowhere",
    ),
    refusal_case(
        "link_to_nothing",
        "labevents",
        file_system(replace_with(lambda path: path.symlink_to("gone.csv.gz")), "labevents"),
        "link",
        "(?i)give the file",
        "'no such file' would be confusing for a visible file",
    ),
    Case(
        "link_to_the_file",
        "labevents",
        file_system(replace_by_link, "labevents"),
        SameResult(),
        "a common way to store large files",
    ),
    refusal_case(
        "truncated_gzip",
        "labevents",
        change_compressed("labevents", lambda data: data[: len(data) // 2]),
        "truncated",
        AGAIN,
        "half the rows would be missing",
    ),
    refusal_case(
        "truncated_in_the_checksum",
        "labevents",
        change_compressed("labevents", lambda data: data[:-5]),
        "truncated",
        AGAIN,
        "nothing proves that all rows are there",
    ),
    refusal_case(
        "bit_flipped_early",
        "labevents",
        change_compressed("labevents", flip(0.1)),
        "damaged",
        AGAIN,
        "any cell may be wrong",
    ),
    refusal_case(
        "bit_flipped_late",
        "labevents",
        change_compressed("labevents", flip(0.9)),
        "damaged",
        AGAIN,
        "any cell may be wrong, though most rows have been read",
        is_quick=True,
    ),
    refusal_case(
        "checksum_flipped",
        "emar",
        change_compressed("emar", flip(-6)),
        "damaged",
        AGAIN,
        "text and checksum disagree, and either may be wrong",
    ),
    Case(
        "bit_flipped_in_the_gzip_s_date",
        "labevents",
        change_compressed("labevents", lambda data: data[:5] + bytes([data[5] ^ 1]) + data[6:]),
        SameResult(),
        "the date of compression does not affect the table",
    ),
    refusal_case(
        "gzip_of_gzip",
        "labevents",
        change_compressed("labevents", gzip.compress),
        "compressed twice",
        "(?i)decompress",
        "readable, but so unusual that the file should be inspected",
    ),
    refusal_case(
        "garbage_after_the_gzip",
        "labevents",
        change_compressed("labevents", lambda data: data + b"918273645" * 20),
        "damaged",
        AGAIN,
        "it may be the rest of a second part",
    ),
    refusal_case(
        "zip_named_gz",
        "labevents",
        change_compressed("labevents", as_zip),
        "zip",
        "(?i)(unpack|gzip)",
        "a zip may contain several files",
    ),
    refusal_case(
        "web_page",
        "labevents",
        change_compressed(
            "labevents",
            lambda _: gzip.compress(b"<!DOCTYPE html>\n<html><body>Please log in</body></html>\n"),
        ),
        "no column labevent_id",
        "as its provider publishes it",
        "probably a download without a login",
    ),
    Case(
        "plain_csv",
        "labevents",
        as_plain_csv("labevents"),
        SameResult(),
        "a documented layout",
        is_quick=True,
    ),
    Case(
        "plain_text_named_gz",
        "labevents",
        change_compressed("labevents", gzip.decompress),
        SameResult(),
        "the first bytes show the format; browsers decompress files",
    ),
    Case(
        "gzip_named_csv",
        "labevents",
        file_system(lambda path: path.rename(path.with_suffix("")), "labevents"),
        SameResult(),
        "the first bytes show the format",
    ),
    Case(
        "gzip_in_two_members",
        "labevents",
        change_compressed("labevents", as_two_gzip_members),
        SameResult(),
        "what `cat` and parallel compressors write",
    ),
    refusal_case(
        "table_twice",
        "labevents",
        add_plain_copy,
        r"labevents\.csv\.gz.*labevents\.csv",
        "(?i)keep one",
        "the right one is unknown",
        is_quick=True,
    ),
    refusal_case(
        "parquet_truncated",
        "labevents",
        combine(parquet("labevents"), lambda raw: cut_parquet(raw / "hosp" / "labevents.parquet")),
        "Parquet",
        AGAIN,
        "the index of the columns is at the end of the file",
    ),
    refusal_case(
        "csv_named_parquet",
        "labevents",
        file_system(lambda path: path.rename(path.with_name("labevents.parquet")), "labevents"),
        "Parquet",
        AGAIN,
        "the content does not match the name",
    ),
    refusal_case(
        "file_of_another_table",
        "labevents",
        replace_by("labevents", "emar"),
        "no column labevent_id",
        "as its provider publishes it",
        "a mix-up of files",
    ),
    refusal_case(
        "procedures_as_diagnoses",
        "diagnoses_icd",
        replace_by("diagnoses_icd", "procedures_icd"),
        "ICD-10-CM",
        r"(?i)(mend|give)",
        "it has all columns that are read; only the codes differ",
        column="icd_code",
        of=1443,
    ),
    refusal_case(
        "crosswalks_swapped",
        "icd_cm_9_to_10_mapping",
        swap_files("icd_cm_9_to_10_mapping", "icd_pcs_9_to_10_mapping"),
        "ICD-10-CM",
        "(?i)give the CMS mapping",
        "the columns are the same; only the codes differ",
        column="icd_10",
    ),
    refusal_case(
        "still_being_copied",
        "labevents",
        as_plain_csv("labevents"),
        "changed while",
        "(?i)again",
        "a mixture of the old and the new file was read",
        during=copy_in_progress,
    ),
    refusal_case(
        "patients_of_another_release",
        "admissions",
        change_release("patients"),
        "name an unknown patient",
        "one release",
        "the ids of releases differ",
        column="subject_id",
        count=123,
        last_step="buckets",
    ),
    refusal_case(
        "labs_of_another_release",
        "labevents",
        change_release("labevents"),
        "name another patient's admission or none",
        "one release",
        "the ids of releases differ",
        column="hadm_id",
    ),
]


def cut_parquet(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])
