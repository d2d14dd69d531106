"""Cases: Parquet files with other types, and invalid crosswalks."""

import polars as pl

from tests.bad_inputs.damage import body, cells, columns, parquet, rows
from tests.bad_inputs.files import refusal_case
from tests.bad_inputs.outcomes import Case, SameResult
from tests.bad_inputs.values import CANARY

MEND, STORED = "(?i)mend|correct|fix", "(?i)write it again"
LABS, GSN, GEM = "labevents", "gsn_atc_ndc_mapping", "icd_cm_9_to_10_mapping"
NANOSECONDS, MILLISECONDS, UTC = pl.Datetime("ns"), pl.Datetime("ms"), pl.Datetime("us", "UTC")
FLOAT_ID = pl.col("hadm_id").cast(pl.Float64)

STORED_CASES = [
    Case("parquet_of_text", LABS, parquet(LABS), SameResult(), "the same text as in the csv"),
    Case(
        "parquet_of_small_types",
        LABS,
        parquet(
            LABS,
            labevent_id=pl.Int32(),
            subject_id=pl.UInt32(),
            hadm_id=pl.Int32(),
            itemid=pl.UInt16(),
            valuenum=pl.Float64(),
        ),
        SameResult(),
        "ids are equal in any integer type",
    ),
    Case(
        "parquet_of_decimals",
        LABS,
        parquet(LABS, subject_id=pl.Decimal(20, 0), hadm_id=pl.Decimal(12, 2)),
        SameResult(),
        "databases export NUMBER columns this way",
    ),
    Case(
        "parquet_of_categories",
        "emar",
        parquet("emar", medication=pl.Categorical(), event_txt=pl.Categorical()),
        SameResult(),
        "dictionaries encode text",
    ),
    Case(
        "parquet_of_categories_everywhere",
        LABS,
        parquet(
            LABS,
            **dict.fromkeys(
                ("labevent_id", "subject_id", "hadm_id", "charttime", "storetime", "valuenum"),
                pl.Categorical(),
            ),
        ),
        SameResult(),
        "pandas writes categories of ids, times and numbers as text",
    ),
    Case(
        "parquet_of_nanoseconds",
        LABS,
        parquet(LABS, charttime=NANOSECONDS, storetime=MILLISECONDS),
        SameResult(),
        "pandas writes this",
    ),
    refusal_case(
        "parquet_with_a_zone",
        LABS,
        parquet(LABS, charttime=UTC),
        "stored as",
        "(?i)write it again",
        "MIMIC-IV has local times; these were converted",
        column="charttime",
    ),
    refusal_case(
        "parquet_of_dates_for_times",
        "emar",
        parquet("emar", charttime=pl.Date()),
        "stored as",
        STORED,
        "midnight would be invented",
        column="charttime",
    ),
    Case(
        "parquet_of_float_ids",
        LABS,
        parquet(LABS, hadm_id=FLOAT_ID.fill_null(float("nan"))),
        SameResult(),
        "pandas stores optional ids this way; NaN means no id",
        is_quick=True,
    ),
    refusal_case(
        "parquet_of_float_ids_too_long",
        LABS,
        parquet(LABS, subject_id=pl.col("subject_id").cast(pl.Float64) * 1e10),
        "not a whole number",
        MEND,
        "beyond 2^53 a float skips integers: two patients could become one",
        column="subject_id",
        count=3502,
    ),
    refusal_case(
        "parquet_of_fractions_for_ids",
        LABS,
        parquet(LABS, hadm_id=(FLOAT_ID + 0.5).cast(pl.Decimal(12, 1))),
        "not a whole number",
        MEND,
        "truncated it would be another stay",
        column="hadm_id",
    ),
    refusal_case(
        "parquet_of_ids_beyond_int64",
        LABS,
        parquet(LABS, labevent_id=pl.lit(2**63 + 5, pl.UInt64())),
        "not a whole number",
        MEND,
        "it does not fit",
        column="labevent_id",
        count=3502,
    ),
    refusal_case(
        "parquet_of_codes_as_numbers",
        "diagnoses_icd",
        parquet("diagnoses_icd", icd_code=pl.lit(int(CANARY))),
        "stored as",
        STORED,
        "leading zeros have been lost",
        column="icd_code",
    ),
    Case(
        "parquet_of_flags",
        "admissions",
        parquet("admissions", hospital_expire_flag=pl.col("hospital_expire_flag") == "1"),
        SameResult(),
        "true means 1",
    ),
    refusal_case(
        "parquet_of_lists",
        LABS,
        parquet(LABS, valueuom=pl.concat_list("valueuom")),
        "stored as",
        STORED,
        "the right element is unknown",
        column="valueuom",
    ),
    # crosswalks
    Case(
        "crosswalk_repeats_itself",
        GEM,
        rows(GEM, lambda records: records * 3),
        SameResult(),
        "duplicate pairs have no effect",
    ),
    Case(
        "crosswalk_in_another_order",
        GSN,
        rows(GSN, lambda records: records[::-1]),
        SameResult(),
        "ties are broken by code, not by position",
    ),
    Case(
        "crosswalk_header_in_capitals",
        GEM,
        columns(GEM, list, str.upper),
        SameResult(),
        "case is ignored in column names",
    ),
    Case(
        "crosswalk_codes_with_dots",
        GEM,
        cells(GEM, "icd_9", lambda text: f"{text[:3]}.{text[3:]}".lower()),
        SameResult(),
        "case and dots have no meaning in codes",
    ),
    refusal_case(
        "crosswalk_without_a_target",
        GEM,
        cells(GEM, "icd_10", "", 2),
        "rows have none",
        MEND,
        "a missing target is written NoDx; an empty one is a fault",
        column="icd_10",
        count=2,
    ),
    Case(
        "crosswalk_of_gsn_without_zeros",
        GSN,
        cells(GSN, "gsn", lambda text: text.lstrip("0")),
        SameResult(),
        "Excel removes zeros; a GSN has six digits",
    ),
    refusal_case(
        "crosswalk_of_other_columns",
        GEM,
        columns(GEM, list, lambda name: {"icd_9": "source", "icd_10": "target"}.get(name, name)),
        "no column icd_9, icd_10",
        "as its provider publishes it",
        "the column meaning of the columns would be a guess",
    ),
    Case(
        "gsn_lists_with_odd_blanks",
        "prescriptions",
        cells(
            "prescriptions",
            "gsn",
            lambda text: "\t".join(["", *text.split(), ""]).replace("\t", "\t \u00a0 "),
        ),
        SameResult(),
        "tabs, multiple blanks and non-breaking blanks",
    ),
    Case(
        "crosswalk_with_line_feeds",
        GSN,
        body(GSN, lambda data: data.replace(b"\r\n", b"\n") + b"\n\n"),
        SameResult(),
        "line ends and blank lines",
    ),
]
