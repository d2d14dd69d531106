"""The rows of the seven event tables, each by itself: ids, time, code, value.

`time` is the start of the event, for a date without a time its midnight; `timed` says whether the time of day is known;
`known_at` is when the event became known, where the row's own columns say so. Encounters and the patient's life are
taken into account bucket by bucket (`events.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl

from pipelines.engine.drop import RowsAndFlow, drop_rows
from pipelines.sources.pcornet import codes
from pipelines.sources.pcornet.site import Site
from pipelines.sources.pcornet.times import (
    first_moment,
    has_sentinel,
    is_invalid_time,
    is_midnight_after,
    is_valid_time,
    last_moment,
    without_sentinels,
)
from pipelines.sources.pcornet.words import NO_INFORMATION, coded_value, count_notes, count_padded, strip_text

ROWS = {
    "subject_id": pl.Int64(),
    "encounter_id": pl.Int64(),
    "time": pl.Datetime("us"),
    "timed": pl.Boolean(),
    "known_at": pl.Datetime("us"),
    "vocab": pl.String(),
    "code": pl.String(),
    "mapped": pl.String(),
    "value": pl.Float64(),
    "unit": pl.String(),
    "rank": pl.Int64(),
}
"""The columns of a row in its bucket."""


@dataclass(frozen=True)
class EventTable:
    """How the rows of one table are transformed."""

    kind: str
    dates: tuple[str, ...]
    times: tuple[str, ...]
    words: tuple[str, ...]  # codes and columns of value sets, which may hold "no information"
    transform: Callable[[pl.DataFrame], pl.DataFrame]
    reasons: dict[str, pl.Expr] = field(default_factory=lambda: codes.NO_CODE)
    notes: dict[str, pl.Expr] = field(default_factory=dict)


def event_rows(table: str, raw: pl.DataFrame, site: Site) -> RowsAndFlow:
    """Return the rows of the population that have a usable code, with the columns of `ROWS`."""
    definition = EVENT_TABLES[table]
    rows = strip_text(raw)
    notes = count_notes(rows, _notes(definition)) | {"padded": count_padded(raw, rows)}
    legible, notes["mended_code"] = codes.normalize_letters(table, rows)
    parsed_rows = definition.transform(site.with_ids(without_sentinels(legible, *definition.dates)))
    id_notes = {name: pl.col(name) for name in ("no_encounterid", "foreign_encounterid")}
    notes |= count_notes(parsed_rows, definition.notes | id_notes)
    usable_rows, flow = drop_rows(parsed_rows, definition.reasons | site.drop_reasons())
    missing = [
        pl.lit(None, dtype).alias(name) for name, dtype in ROWS.items() if name not in usable_rows.columns
    ]
    return usable_rows.with_columns(missing).select(list(ROWS)), flow.model_copy(update={"noted": notes})


def _notes(definition: EventTable) -> dict[str, pl.Expr]:
    notes = {"sentinel_date": has_sentinel(definition.dates)}
    if definition.words:
        notes["no_information"] = pl.any_horizontal(
            pl.col(name).is_in(NO_INFORMATION) for name in definition.words
        )
    if definition.times:
        notes["time_24_00"] = pl.any_horizontal(is_midnight_after(name) for name in definition.times)
        notes["bad_time"] = pl.any_horizontal(is_invalid_time(name) for name in definition.times)
        notes["no_time"] = pl.col(definition.times[0]).is_null()
    return notes


def _diagnoses(rows: pl.DataFrame) -> pl.DataFrame:
    return codes.diagnosis_codes(rows).with_columns(
        time=first_moment(pl.coalesce("DX_DATE", "ADMIT_DATE")),
        timed=pl.lit(False),
        rank=_principal("PDX"),
    )


def _procedures(rows: pl.DataFrame) -> pl.DataFrame:
    return codes.procedure_codes(rows).with_columns(
        time=first_moment(pl.coalesce("PX_DATE", "ADMIT_DATE")),
        timed=pl.lit(False),
        rank=_principal("PPX"),
    )


def _results(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the time (of the specimen, else the order, else the result) and `known_at` (of the result)."""
    has_specimen_date, has_no_order_date = (
        pl.col("SPECIMEN_DATE").is_not_null(),
        pl.col("LAB_ORDER_DATE").is_null(),
    )
    return codes.laboratory_values(codes.laboratory_codes(rows)).with_columns(
        time=pl.coalesce(
            first_moment("SPECIMEN_DATE", "SPECIMEN_TIME"),
            first_moment("LAB_ORDER_DATE"),
            first_moment("RESULT_DATE", "RESULT_TIME"),
        ),
        timed=pl.when(has_specimen_date)
        .then(is_valid_time("SPECIMEN_TIME"))
        .otherwise(has_no_order_date & is_valid_time("RESULT_TIME") & pl.col("RESULT_DATE").is_not_null()),
        known_at=last_moment("RESULT_DATE", "RESULT_TIME"),
    )


def _administrations(rows: pl.DataFrame) -> pl.DataFrame:
    return codes.administered_codes(rows).with_columns(
        **_start_columns("MEDADMIN_START_DATE", "MEDADMIN_START_TIME")
    )


def _prescriptions(rows: pl.DataFrame) -> pl.DataFrame:
    has_order_date = pl.col("RX_ORDER_DATE").is_not_null()
    return codes.prescribed_codes(rows).with_columns(
        time=pl.coalesce(first_moment("RX_ORDER_DATE", "RX_ORDER_TIME"), first_moment("RX_START_DATE")),
        timed=has_order_date & is_valid_time("RX_ORDER_TIME"),
    )


def _vitals(rows: pl.DataFrame) -> pl.DataFrame:
    with_times = rows.with_columns(**_start_columns("MEASURE_DATE", "MEASURE_TIME"))
    odd = ("no_encounterid", "foreign_encounterid", "of_another")
    return codes.measurements(with_times, "subject_id", "encounter_id", "time", "timed", *odd)


def _vaccines(rows: pl.DataFrame) -> pl.DataFrame:
    """Add codes and times; a vaccine is known from the later of its administration and its record."""
    return codes.vaccine_codes(rows).with_columns(
        mapped="code",
        time=first_moment(pl.coalesce("VX_ADMIN_DATE", "VX_RECORD_DATE")),
        timed=pl.lit(False),
        known_at=last_moment(pl.max_horizontal("VX_ADMIN_DATE", "VX_RECORD_DATE")),
    )


def _start_columns(day: str, time: str) -> dict[str, pl.Expr]:
    return {"time": first_moment(day, time), "timed": is_valid_time(time) & pl.col(day).is_not_null()}


def _principal(flag: str) -> pl.Expr:
    """Return rank 1 for the encounter's principal code; a CDM does not number the others."""
    return pl.when(coded_value(flag) == "P").then(pl.lit(1, pl.Int64))


_CLEANED = {"code_cleaned": pl.col("cleaned"), "icd10_typed_09": pl.col("retyped")}

EVENT_TABLES = {
    "DIAGNOSIS": EventTable(
        "DX",
        ("DX_DATE", "ADMIT_DATE"),
        (),
        ("DX", "DX_TYPE", "DX_SOURCE", "DX_ORIGIN", "PDX", "DX_POA"),
        _diagnoses,
        notes=_CLEANED,
    ),
    "PROCEDURES": EventTable(
        "PR",
        ("PX_DATE", "ADMIT_DATE"),
        (),
        ("PX", "PX_TYPE", "PPX"),
        _procedures,
        notes=_CLEANED | {"modifier_cut": pl.col("modifier")},
    ),
    "LAB_RESULT_CM": EventTable(
        "LAB",
        ("SPECIMEN_DATE", "LAB_ORDER_DATE", "RESULT_DATE"),
        ("SPECIMEN_TIME", "RESULT_TIME"),
        ("LAB_LOINC", "RESULT_MODIFIER", "RESULT_UNIT", "RESULT_QUAL"),
        _results,
        reasons=codes.NO_CODE | {"no_value": pl.col("value").is_null() & pl.col("mapped").is_null()},
        notes={"qualitative": pl.col("mapped").is_not_null()},
    ),
    "MED_ADMIN": EventTable(
        "MED",
        ("MEDADMIN_START_DATE",),
        ("MEDADMIN_START_TIME",),
        ("MEDADMIN_TYPE", "MEDADMIN_CODE"),
        _administrations,
    ),
    "PRESCRIBING": EventTable(
        "MED", ("RX_ORDER_DATE", "RX_START_DATE"), ("RX_ORDER_TIME",), ("RXNORM_CUI",), _prescriptions
    ),
    "VITAL": EventTable(
        "VIT",
        ("MEASURE_DATE",),
        ("MEASURE_TIME",),
        (),
        _vitals,
        reasons={"not_measured": ~pl.col("value").is_finite().fill_null(False)},
    ),
    "IMMUNIZATION": EventTable(
        "IMM",
        ("VX_RECORD_DATE", "VX_ADMIN_DATE"),
        (),
        ("VX_CODE_TYPE", "VX_CODE", "VX_STATUS"),
        _vaccines,
        reasons={"not_completed": coded_value("VX_STATUS").ne_missing("CP"), **codes.NO_CODE},
    ),
}
"""The definition of each event table. A row of VITAL becomes five, one per measure, some without a value."""
