"""The rows of the event tables as events: encounter, time, time of knowledge, code."""

from datetime import date, timedelta

import polars as pl
import pytest

from pipelines.events.clock import NEVER
from pipelines.sources.pcornet.encounters import encounter_rows, encounters
from pipelines.sources.pcornet.event_rows import EVENT_TABLES, event_rows
from pipelines.sources.pcornet.events import PcornetBucket, PcornetCrosswalks, count_lost_zeros, events
from pipelines.sources.pcornet.tables import KEYS
from schemas.cards import Flow
from tests.support.pcornet_tables import END_OF_DATA, IDS, at, end_of, patient, people, site, table, visit

BORN, DAY = date(2010, 1, 10), date(2012, 3, 5)
NEXT, THIRD = DAY + timedelta(days=1), DAY + timedelta(days=2)
VISITS = [
    {"ENCOUNTERID": "office", "PATID": "p", "ADMIT_DATE": DAY, "ADMIT_TIME": "10:00", "ENC_TYPE": "AV"},
    {"ENCOUNTERID": "later office", "PATID": "p", "ADMIT_DATE": DAY, "ADMIT_TIME": "15:00", "ENC_TYPE": "AV"},
    {
        "ENCOUNTERID": "stay",
        "PATID": "p",
        "ADMIT_DATE": NEXT,
        "ADMIT_TIME": "20:00",
        "DISCHARGE_DATE": THIRD,
        "DISCHARGE_TIME": "12:00",
        "ENC_TYPE": "IP",
    },
    {"ENCOUNTERID": "emergency", "PATID": "p", "ADMIT_DATE": NEXT, "ADMIT_TIME": "18:00", "ENC_TYPE": "ED"},
    {"ENCOUNTERID": "open", "PATID": "q", "ADMIT_DATE": DAY, "ADMIT_TIME": "10:00", "ENC_TYPE": "IP"},
    {"ENCOUNTERID": "too early", "PATID": "p", "ADMIT_DATE": date(2001, 1, 1), "ENC_TYPE": "AV"},
]
CHILDREN = people(("p", BORN), ("q", BORN, date(2012, 6, 1)))
NINE = pl.DataFrame({"code": ["3829", "E8490"], "mapped": ["H6690", None]})
CROSSWALKS = PcornetCrosswalks(
    NINE, NINE.clear(), pl.DataFrame({"vocab": ["rxnorm"], "code": ["723"], "atc": ["J01CA04"]})
)
COLUMNS = ("encounter_id", "time", "available_at", "code", "mapped")

# a correct row of each table, in the visit at 10:00
GOOD: dict[str, dict[str, object]] = {
    "DIAGNOSIS": {"DX": "H66.90", "DX_TYPE": "10", "DX_DATE": DAY},
    "PROCEDURES": {"PX": "99392", "PX_TYPE": "CH", "PX_DATE": DAY},
    "LAB_RESULT_CM": {"LAB_LOINC": "718-7", "SPECIMEN_DATE": DAY, "RESULT_DATE": DAY, "RESULT_NUM": 11.5},
    "MED_ADMIN": {"MEDADMIN_TYPE": "RX", "MEDADMIN_CODE": "723", "MEDADMIN_START_DATE": DAY},
    "PRESCRIBING": {"RXNORM_CUI": "723", "RX_ORDER_DATE": DAY},
    "VITAL": {"MEASURE_DATE": DAY, "HT": 30.0},
    "IMMUNIZATION": {"VX_STATUS": "CP", "VX_CODE_TYPE": "CX", "VX_CODE": "03", "VX_ADMIN_DATE": DAY},
}
DATE_OF = {
    "DIAGNOSIS": "DX_DATE",
    "PROCEDURES": "PX_DATE",
    "LAB_RESULT_CM": "SPECIMEN_DATE",
    "MED_ADMIN": "MEDADMIN_START_DATE",
    "PRESCRIBING": "RX_ORDER_DATE",
    "VITAL": "MEASURE_DATE",
    "IMMUNIZATION": "VX_ADMIN_DATE",
}


def events_of(name: str, *rows: dict[str, object]) -> tuple[pl.DataFrame, Flow]:
    """Return the events of rows of one table, with the values of GOOD as defaults."""
    raw_visits, _ = encounter_rows(table("ENCOUNTER", *VISITS), IDS)
    stays, _ = encounters([raw_visits], CHILDREN, CHILDREN["subject_id"], END_OF_DATA)
    owners = {str(row["ENCOUNTERID"]): str(row["PATID"]) for row in VISITS}
    test_site = site(CHILDREN, owners, "adult")
    whole = [{"PATID": "p", "ENCOUNTERID": "office", **GOOD[name], **row} for row in rows]
    usable_rows, first = event_rows(name, table(name, *whole), test_site)
    bucket = PcornetBucket(CHILDREN.drop("race"), stays, END_OF_DATA)
    table_events, second = events(EVENT_TABLES[name].kind, usable_rows, bucket, CROSSWALKS)
    flow = first.then(second)
    assert flow.reconciles
    return table_events, flow


def event_of(name: str, **row: object) -> dict[str, object]:
    table_events, _ = events_of(name, row)
    return table_events.row(0, named=True)


def nonzero(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count and name != "not_measured"}


@pytest.mark.parametrize("name", EVENT_TABLES)
def test_good_row_of_each_table_is_one_event_without_notes(name):
    table_events, flow = events_of(name, {})
    assert table_events["encounter_id"].to_list() == [visit("office")]
    assert table_events["time"].to_list() == [at(DAY, 10)]  # of a date alone, not before its visit began
    assert table_events["available_at"].to_list() == [end_of(DAY)]
    assert nonzero(flow.dropped) == {}
    assert set(nonzero(flow.noted)) <= {"no_time", "code_cleaned"}


@pytest.mark.parametrize("name", EVENT_TABLES)
def test_impossible_row_is_dropped_with_reason_in_every_table(name):
    day = DATE_OF[name]
    rows = {
        "unknown_patient": {"PATID": "nobody"},
        "not_in_population": {"PATID": "adult"},
        "encounter_of_another": {"ENCOUNTERID": "open"},
        "before_birth": {day: BORN - timedelta(days=2)},
        "after_end_of_data": {day: END_OF_DATA + timedelta(days=1)},
        "after_death": {"PATID": "q", "ENCOUNTERID": "open", day: date(2012, 7, 2)},
        "no_encounter": {"ENCOUNTERID": None, day: DAY + timedelta(days=100)},
    }
    table_events, flow = events_of(name, *rows.values())
    assert table_events.height == 0
    assert nonzero(flow.dropped) == dict.fromkeys(rows, 1)


@pytest.mark.parametrize("name", EVENT_TABLES)
def test_the_grace_before_birth_and_after_death_is_kept(name):
    day = DATE_OF[name]
    table_events, _ = events_of(
        name,
        {day: BORN - timedelta(days=1)},
        {"PATID": "q", "ENCOUNTERID": "open", day: date(2012, 7, 1)},
        {day: END_OF_DATA},
    )
    assert table_events.height == 3


@pytest.mark.parametrize("name", EVENT_TABLES)
def test_the_same_row_under_another_key_is_one_event(name):
    key = KEYS[name]
    table_events, flow = events_of(name, {key: "1"}, {key: "2"}, {key: "3"})
    assert (table_events.height, flow.dropped["repeated"]) == (1, 2)


@pytest.mark.parametrize("name", EVENT_TABLES)
def test_padding_changes_nothing_and_is_counted(name):
    text = {column: f"{value}  " for column, value in GOOD[name].items() if isinstance(value, str)}
    padded_events, flow = events_of(name, {"PATID": "p  ", "ENCOUNTERID": "office ", **text})
    plain_events, _ = events_of(name, {})
    assert padded_events.equals(plain_events)
    assert flow.noted["padded"] == 1


@pytest.mark.parametrize(
    "sentinel", [date(1900, 1, 1), date(1753, 1, 1), date(9999, 12, 31), date(2262, 4, 11)]
)
def test_diagnosis_with_sentinel_date_has_time_of_visit(sentinel):
    table_events, flow = events_of("DIAGNOSIS", {"DX_DATE": sentinel})
    assert table_events["time"].to_list() == [at(DAY, 10)]
    assert flow.noted["sentinel_date"] == 1
    _, flow = events_of("DIAGNOSIS", {"DX_DATE": sentinel, "ENCOUNTERID": None})
    assert nonzero(flow.dropped) == {"no_date": 1}


def test_event_without_encounter_links_to_likeliest_encounter_on_date():
    rows = [{"ENCOUNTERID": None, "DX_DATE": day} for day in (DAY, NEXT, THIRD)]
    table_events, flow = events_of("DIAGNOSIS", *rows)
    # the later of two visits; the stay rather than the emergency visit; the only stay
    assert table_events.sort("time")["encounter_id"].to_list() == [
        visit("later office"),
        visit("stay"),
        visit("stay"),
    ]
    assert flow.noted["no_encounterid"] == 3
    assert (flow.noted["linked_by_date"], flow.noted["linked_among_several"]) == (3, 2)


def test_unknown_or_dropped_encounter_counts_as_missing():
    table_events, flow = events_of(
        "DIAGNOSIS", {"ENCOUNTERID": "gone"}, {"ENCOUNTERID": "too early", "DX": "J00"}
    )
    assert table_events["encounter_id"].unique().to_list() == [visit("later office")]
    assert (flow.noted["foreign_encounterid"], flow.noted["encounter_not_kept"]) == (1, 1)


def test_copies_of_diagnosis_become_one_event_with_principal_rank():
    origins = [{"DX_ORIGIN": origin, "PDX": pdx} for origin, pdx in (("OD", "S"), ("BI", "P"), ("CL", "NI"))]
    table_events, flow = events_of("DIAGNOSIS", *origins)
    assert (table_events.height, table_events["rank"].to_list(), flow.dropped["repeated"]) == (1, [1], 2)


def test_only_the_principal_diagnosis_has_a_rank():
    table_events, _ = events_of(
        "DIAGNOSIS", {"PDX": "P"}, {"PDX": "S", "DX": "J00"}, {"PDX": None, "DX": "J01.0"}
    )
    assert table_events.sort("code")["rank"].to_list() == [1, None, None]


def test_diagnosis_is_known_after_encounter_and_never_when_open():
    assert event_of("DIAGNOSIS", ENCOUNTERID="stay", DX_DATE=NEXT)["available_at"] == at(THIRD, 12)
    assert event_of("DIAGNOSIS", ENCOUNTERID="stay", DX_DATE=THIRD)["available_at"] == at(THIRD, 12)
    late = DAY + timedelta(days=5)
    assert event_of("DIAGNOSIS", ENCOUNTERID="stay", DX_DATE=late)["available_at"] == end_of(late)
    assert event_of("DIAGNOSIS", PATID="q", ENCOUNTERID="open", DX_DATE=NEXT)["available_at"] == NEVER


@pytest.mark.parametrize(("px", "px_type"), [("0DTJ4ZZ", "10"), ("3961", "09"), ("99392", "CH")])
def test_procedure_is_known_after_encounter_and_day_end(px, px_type):
    code = {"PX": px, "PX_TYPE": px_type}
    assert event_of("PROCEDURES", ENCOUNTERID="stay", PX_DATE=NEXT, **code)["available_at"] == at(THIRD, 12)
    assert event_of("PROCEDURES", ENCOUNTERID="stay", PX_DATE=THIRD, **code)["available_at"] == end_of(THIRD)
    late = DAY + timedelta(days=5)
    assert event_of("PROCEDURES", ENCOUNTERID="stay", PX_DATE=late, **code)["available_at"] == end_of(late)
    assert (
        event_of("PROCEDURES", PATID="q", ENCOUNTERID="open", PX_DATE=NEXT, **code)["available_at"] == NEVER
    )


def test_lab_result_and_immunization_are_known_at_latest_date():
    lab = event_of("LAB_RESULT_CM", SPECIMEN_TIME="10:30", RESULT_DATE=NEXT, RESULT_TIME="08:15")
    assert (lab["time"], lab["available_at"]) == (at(DAY, 10, 30), at(NEXT, 8, 15))
    assert event_of("LAB_RESULT_CM", SPECIMEN_TIME="10:30", RESULT_DATE=NEXT)["available_at"] == end_of(NEXT)
    assert event_of("IMMUNIZATION", VX_RECORD_DATE=NEXT)["available_at"] == end_of(NEXT)
    assert event_of("IMMUNIZATION", VX_RECORD_DATE=DAY - timedelta(days=3))["available_at"] == end_of(DAY)


def test_specimen_without_date_takes_date_of_order_or_result():
    order = event_of(
        "LAB_RESULT_CM", SPECIMEN_DATE=None, LAB_ORDER_DATE=DAY, RESULT_DATE=NEXT, RESULT_TIME="08:15"
    )
    assert (order["time"], order["available_at"]) == (at(DAY, 10), at(NEXT, 8, 15))
    result = event_of("LAB_RESULT_CM", SPECIMEN_DATE=None, RESULT_DATE=NEXT, RESULT_TIME="08:15")
    assert (result["time"], result["available_at"]) == (at(NEXT, 8, 15), at(NEXT, 8, 15))


@pytest.mark.parametrize(
    ("time", "event_time", "available_at"),
    [
        ("11:20", at(DAY, 11, 20), at(DAY, 11, 20)),
        ("24:00", at(NEXT), at(NEXT)),
        ("7:61", at(DAY, 10), end_of(DAY)),
        (None, at(DAY, 10), end_of(DAY)),
    ],
)
@pytest.mark.parametrize(
    ("name", "column"),
    [("MED_ADMIN", "MEDADMIN_START_TIME"), ("PRESCRIBING", "RX_ORDER_TIME"), ("VITAL", "MEASURE_TIME")],
)
def test_event_is_known_at_time_or_by_end_of_day(name, column, time, event_time, available_at):
    row = event_of(name, **{column: time})
    assert (row["time"], row["available_at"]) == (event_time, available_at)


def test_odd_times_are_counted():
    times = ["24:00", "24:30", "07:5", "0730", "25:00", None, "07:30", "07:30:59"]
    _, flow = events_of(
        "VITAL", *({"MEASURE_TIME": time, "HT": float(place)} for place, time in enumerate(times))
    )
    assert (flow.noted["time_24_00"], flow.noted["bad_time"], flow.noted["no_time"]) == (1, 4, 1)


@pytest.mark.parametrize(
    ("row", "vocab", "code", "target"),
    [
        ({"DX": "h66.90 "}, "icd10cm", "H6690", "H6690"),
        ({"DX": "382.9", "DX_TYPE": "09"}, "icd9cm", "3829", "H6690"),
        ({"DX": "382.9", "DX_TYPE": "9"}, "icd9cm", "3829", "H6690"),
        ({"DX": "H66.90", "DX_TYPE": "09"}, "icd10cm", "H6690", "H6690"),
        ({"DX": "E849.0", "DX_TYPE": "09"}, "icd9cm", "E8490", None),
        ({"DX": "V20.2", "DX_TYPE": "09"}, "icd9cm", "V202", None),
        ({"DX": "E66.9", "DX_TYPE": "09"}, "icd10cm", "E669", "E669"),
        ({"DX": "V20.22X", "DX_TYPE": "09"}, "icd10cm", "V2022X", "V2022X"),
    ],
)
def test_diagnosis_code_is_cleaned_typed_and_mapped(row, vocab, code, target):
    event = event_of("DIAGNOSIS", **row)
    assert (event["vocab"], event["code"], event["mapped"]) == (vocab, code, target)


@pytest.mark.parametrize(
    ("row", "vocab", "code"),
    [
        ({"PX": "99392-25"}, "cpt", "99392"),
        ({"PX": "9939225"}, "cpt", "99392"),
        ({"PX": "g0438"}, "cpt", "G0438"),
        ({"PX": "0DTJ4ZZ", "PX_TYPE": "10"}, "icd10pcs", "0DTJ4ZZ"),
        ({"PX": "47.01", "PX_TYPE": "09"}, "icd9pcs", "4701"),
        ({"PX": "0DTJ4ZZ", "PX_TYPE": "09"}, "icd10pcs", "0DTJ4ZZ"),
    ],
)
def test_procedure_code_is_cleaned_and_cpt_cut_to_five_characters(row, vocab, code):
    event = event_of("PROCEDURES", **row)
    assert (event["vocab"], event["code"]) == (vocab, code)


def test_corrections_of_codes_are_counted():
    _, flow = events_of(
        "DIAGNOSIS", {"DX": "j00"}, {"DX": "H66.9 0"}, {"DX": "J01"}, {"DX": "K35", "DX_TYPE": "09"}
    )
    assert (flow.noted["code_cleaned"], flow.noted["icd10_typed_09"]) == (2, 1)
    _, flow = events_of("PROCEDURES", {"PX": "99392-25"}, {"PX": "99391"})
    assert flow.noted["modifier_cut"] == 1


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("DIAGNOSIS", {"DX": None}, "no_code"),
        ("DIAGNOSIS", {"DX": "."}, "no_code"),
        ("DIAGNOSIS", {"DX": "NI"}, "no_code"),
        ("PRESCRIBING", {"RXNORM_CUI": "UN"}, "no_code"),
        ("IMMUNIZATION", {"VX_CODE": "OT"}, "no_code"),
        ("DIAGNOSIS", {"DX_TYPE": "SM"}, "code_type"),
        ("DIAGNOSIS", {"DX_TYPE": "NI"}, "code_type"),
        ("DIAGNOSIS", {"DX_TYPE": None}, "code_type"),
        ("DIAGNOSIS", {"DX": "3829"}, "malformed_code"),
        ("DIAGNOSIS", {"DX": "12", "DX_TYPE": "09"}, "code_without_its_zeros"),
        ("DIAGNOSIS", {"DX": "4019.0", "DX_TYPE": "09"}, "code_as_float"),
        ("DIAGNOSIS", {"DX": "41.11", "DX_TYPE": "09"}, "code_as_float"),
        ("DIAGNOSIS", {"DX": "\u041d66.90"}, "code_in_other_letters"),
        ("PROCEDURES", {"PX": "331.0", "PX_TYPE": "09"}, "code_as_float"),
        ("PROCEDURES", {"PX": "99392.0"}, "code_as_float"),
        ("MED_ADMIN", {"MEDADMIN_CODE": "723.0"}, "code_as_float"),
        ("PRESCRIBING", {"RXNORM_CUI": "723.0"}, "code_as_float"),
        ("IMMUNIZATION", {"VX_CODE": "3.0"}, "code_as_float"),
        ("LAB_RESULT_CM", {"LAB_LOINC": "718\u20107"}, "code_in_other_letters"),
        ("PROCEDURES", {"PX": "9939"}, "malformed_code"),
        ("PROCEDURES", {"PX": "0DTJ4ZZ"}, "malformed_code"),
        ("PROCEDURES", {"PX_TYPE": "LC"}, "code_type"),
        ("LAB_RESULT_CM", {"LAB_LOINC": None}, "no_code"),
        ("LAB_RESULT_CM", {"LAB_LOINC": "HGB"}, "malformed_code"),
        ("LAB_RESULT_CM", {"RESULT_NUM": None}, "no_value"),
        ("LAB_RESULT_CM", {"RESULT_NUM": float("nan")}, "no_value"),
        ("LAB_RESULT_CM", {"RESULT_NUM": 1.0, "RESULT_MODIFIER": "TX"}, "no_value"),
        ("LAB_RESULT_CM", {"RESULT_NUM": None, "RESULT_QUAL": "NI"}, "no_value"),
        ("MED_ADMIN", {"MEDADMIN_TYPE": "OT"}, "code_type"),
        ("MED_ADMIN", {"MEDADMIN_CODE": "aspirin"}, "malformed_code"),
        ("PRESCRIBING", {"RXNORM_CUI": None}, "no_code"),
        ("IMMUNIZATION", {"VX_STATUS": "ER"}, "not_completed"),
        ("IMMUNIZATION", {"VX_STATUS": None}, "not_completed"),
        ("IMMUNIZATION", {"VX_CODE_TYPE": "ND"}, "code_type"),
        ("IMMUNIZATION", {"VX_CODE": "MMR"}, "malformed_code"),
    ],
)
def test_row_without_usable_code_or_value_is_dropped_with_reason(name, row, reason):
    table_events, flow = events_of(name, row)
    assert table_events.height == 0
    assert nonzero(flow.dropped) == {reason: 1}


def test_lab_number_becomes_value_and_word_becomes_result():
    rows = [
        {"RESULT_NUM": 11.5, "RESULT_UNIT": "g/dL"},
        {"RESULT_NUM": 115.0, "RESULT_UNIT": "NI"},
        {"RESULT_NUM": None, "RESULT_QUAL": "POSITIVE", "RESULT_UNIT": "g/dL"},
        {"RESULT_NUM": None, "RESULT_QUAL": "undetermined"},
    ]
    table_events, flow = events_of("LAB_RESULT_CM", *rows)
    assert table_events.select("value", "unit", "mapped").rows() == [
        (11.5, "g/dL", None),
        (115.0, None, None),
        (None, None, "718-7_POS"),
        (None, None, "718-7_IND"),
    ]
    assert flow.noted["qualitative"] == 2


def test_a_row_of_vital_is_an_event_for_each_measure_given():
    table_events, flow = events_of(
        "VITAL", {"HT": 30.0, "WT": 22.5, "SYSTOLIC": 90.0, "DIASTOLIC": 60.0, "ORIGINAL_BMI": 17.1}
    )
    values = {row["code"]: (row["value"], row["unit"]) for row in table_events.to_dicts()}
    assert values == {
        "HT": (30.0, "in"),
        "WT": (22.5, "lb"),
        "SBP": (90.0, "mmHg"),
        "DBP": (60.0, "mmHg"),
        "BMI": (17.1, "kg/m2"),
    }
    assert (flow.source_rows, flow.kept_rows) == (5, 5)


def test_drug_keeps_rxnorm_code_when_crosswalk_lacks_it():
    mapped_drug, unmapped_drug = event_of("PRESCRIBING"), event_of("PRESCRIBING", RXNORM_CUI="999")
    assert (mapped_drug["mapped"], unmapped_drug["mapped"], unmapped_drug["code"]) == ("J01CA04", None, "999")


def test_patients_keep_separate_ids():
    table_events, _ = events_of("VITAL", {}, {"PATID": "q", "ENCOUNTERID": "open"})
    assert set(table_events["subject_id"]) == {patient("p"), patient("q")}


def test_full_width_letters_in_codes_are_normalized_and_counted():
    table_events, flow = events_of(
        "DIAGNOSIS", {"DX": "\uff28\uff16\uff16.\uff19\uff10"}, {"DX": "H66.92\u200b"}
    )
    assert table_events["code"].to_list() == ["H6690", "H6692"]
    assert flow.noted["mended_code"] == 2


def test_code_in_crosswalk_only_with_leading_zero_is_counted():
    nine = pl.DataFrame({"code": ["04111", "3829"], "mapped": ["B9561", None]})
    events = pl.DataFrame(
        {"vocab": ["icd9cm", "icd9cm", "icd10cm"], "code": ["4111", "3829", "4111"], "mapped": [None] * 3},
        schema_overrides={"mapped": pl.String},
    )
    counts = count_lost_zeros("DX", events, PcornetCrosswalks(nine, nine.clear(), nine.clear()))
    assert counts == {"zeros_lost": 1, "last_zeros_lost": 0}
    assert count_lost_zeros("MED", events, CROSSWALKS) == {}
