"""The files of a cohort: labels with their task, attrition, lock and card; and the checks of bad labels."""

import json
import pickle
from functools import partial

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml

from pipelines.cohorts import write_empty_labels, write_labels
from pipelines.cohorts.labels import derive_bucket
from pipelines.cohorts.read import kinds_to_read
from pipelines.cohorts.warnings import _nearest
from schemas.cards import StepCard
from schemas.cohort import CANNOT_ANSWER, CohortError, parse_text
from schemas.contract import read_table, write_table
from schemas.errors import WriteError
from schemas.expectations import labels
from schemas.expectations.validation import validate
from schemas.layout import Layout
from schemas.rules import PRESETS
from schemas.suppress import disclosing
from schemas.tables.attrition import read_attrition
from schemas.tables.events import ENCOUNTERS
from schemas.tables.labels import Features, Task, labels_schema, read_task
from tests.support.cohort_tables import DAY, DAY_ZERO, MICROSECOND, diagnosis, mimic, stay, subject, write
from tests.support.fake_oracle import broken_rules

RULES = PRESETS["default"]
TASKS = ("mortality", "long_stay", "readmission", "icd_chapter", "icd_category")
FILES = ("labels.parquet", "attrition.csv", "cohort.lock.yaml")
NOT_KNOWN = "what came later is not in the data, and they count as having no outcome"


def write_patients(count=12):
    """Return patients with a stay of nine days (fatal for odd ids) and another stay a month later."""
    splits = ("train", "train", "val", "test")
    subjects = [subject(number, splits[number % 4]) for number in range(1, count + 1)]
    encounters, events = [], []
    for number in range(1, count + 1):
        start = DAY_ZERO + number * DAY
        died = number % 2 == 1
        encounters.append(stay(number * 10, start, start + 9 * DAY, died=died, of=number))
        encounters.append(stay(number * 10 + 1, start + 20 * DAY, start + 21 * DAY, of=number))
        events.append(diagnosis(number * 10, "4019", "I10", of=number))
        events.append(diagnosis(number * 10 + 1, "25000", "E119", of=number))
    return subjects, encounters, events


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path / "mimic")
    write(layout, *write_patients())
    return layout


@pytest.mark.parametrize("task", TASKS)
def test_every_task_writes_its_three_files_and_its_card(layout, task):
    card = write_labels(mimic(task), layout, RULES)
    assert sorted(path.name for path in layout.cohort(f"mimic_{task}").glob("[!.]*")) == sorted(FILES)
    assert StepCard.read(layout.cards, f"mimic_{task}_labels") == card
    assert card.flows["encounters"].reconciles
    assert card.counts["rows"] == card.flows["encounters"].kept_rows
    assert not broken_rules(layout, f"mimic_{task}")


def test_labels_carry_the_task_in_their_metadata(layout):
    write_labels(mimic("mortality"), layout, RULES)
    metadata = pq.read_schema(layout.labels("mimic_mortality")).metadata
    assert metadata[b"contract"] == b"labels/1"
    assert Task.model_validate_json(metadata[b"task"]) == Task(
        cohort="mimic_mortality",
        about="death in the hospital stay, predicted 24 hours after admission",
        label_type="bool",
        classes=("false", "true"),
        features=Features(clock="available_at", drop_from_index=("DX",)),
        predict_at="index.start + 24 hours",
        predict_anchor="index.start",
        predict_offset_us=86_400_000_000,
        cohort_sha256=mimic("mortality").sha256,
    )


def test_task_cuts_on_time_under_paper(layout):
    write_labels(mimic("mortality"), layout, PRESETS["paper"])
    task = json.loads(pq.read_schema(layout.labels("mimic_mortality")).metadata[b"task"])
    assert task["features"]["clock"] == "time"


def test_rerun_is_byte_identical(layout):
    first = []
    for _ in range(2):
        for task in TASKS:
            write_labels(mimic(task), layout, RULES)
        first.append([(layout.cohort(f"mimic_{t}") / name).read_bytes() for t in TASKS for name in FILES])
    assert first[0] == first[1]


def test_labels_do_not_depend_on_the_order_of_rows(layout, tmp_path):
    shuffled_layout = Layout(tmp_path / "shuffled")
    write(shuffled_layout, *(rows[::-1] for rows in write_patients()))
    for task in TASKS:
        for each_layout in (layout, shuffled_layout):
            write_labels(mimic(task), each_layout, RULES)
        assert (
            layout.labels(f"mimic_{task}").read_bytes()
            == shuffled_layout.labels(f"mimic_{task}").read_bytes()
        )


CODED = (
    ("index: {encounter: {}", "codes: {heart: {icd9cm: [401*]}}\nindex: {encounter: {with: heart}"),
    ("min_index: 100", "min_index: 2"),
)


@pytest.mark.parametrize("task", [*TASKS, "icd_category with codes"])
def test_labels_are_byte_identical_for_any_bucket_size(tmp_path, task):
    name = task.removesuffix(" with codes")
    cohort = mimic(name, *(CODED if name != task else CODED[1:] if name == "icd_category" else ()))
    contents = []
    for patients in (40, 5, 1):
        layout = Layout(tmp_path / str(patients))
        write(layout, *write_patients(), subjects_per_bucket=patients)
        card = write_labels(cohort, layout, RULES)
        lock = yaml.safe_load((layout.cohort(cohort.cohort) / "cohort.lock.yaml").read_text())
        assert lock.pop("data_sha256")["subjects"]  # of files that are cut otherwise
        contents.append(
            (lock, card, *((layout.cohort(cohort.cohort) / name).read_bytes() for name in FILES[:2]))
        )
    assert contents[0] == contents[1] == contents[2]
    assert task != "icd_category" or contents[0][0]["classes"] == ["E11", "I10"]


def test_only_events_named_by_the_cohort_are_read(tmp_path):
    layout = Layout(tmp_path)
    kinds = {"MED": ("name", "metformin"), "LAB": ("itemid", "50912"), "PR": ("icd9pcs", "3961")}
    events = [
        diagnosis(10, code, None, vocab=vocab) | {"kind": kind} for kind, (vocab, code) in kinds.items()
    ]
    write(layout, [subject(1)], [stay(10, DAY_ZERO, DAY_ZERO + DAY)], [diagnosis(10, "4019", "I10"), *events])

    def read_by(codes):
        with_codes = ("index: {encounter: {}", f"codes: {{a: {codes}}}\nindex: {{encounter: {{with: a}}")
        return kinds_to_read(mimic("mortality", with_codes), layout)

    assert kinds_to_read(mimic("mortality"), layout) == ()
    assert (
        kinds_to_read(mimic("icd_chapter"), layout) == kinds_to_read(mimic("icd_category"), layout) == ("DX",)
    )
    assert read_by("{itemid: ['50912']}") == ("LAB",)
    assert read_by("{icd9cm: [401*], atc: [A10*]}") == ("DX", "MED")
    assert read_by("{cvx: ['08']}") == ()


def test_derive_bucket_can_be_pickled(layout):
    work = partial(derive_bucket, mimic("icd_category"), layout, RULES, ("DX",))
    part, codes, _ = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(work))(0)))
    assert (part.rows.height, part.steps[0].index_rows, codes.height) == (24, 24, 0)


def test_attrition_file_reads_back_as_the_steps(layout):
    write_labels(mimic("readmission"), layout, RULES)
    steps = read_attrition(layout.cohort("mimic_readmission") / "attrition.csv")
    assert [(row.step, row.index_rows, row.dropped) for row in steps] == [
        ("all encounters", 24, 0),
        ("has an end after its start", 24, 0),
        ("discharged alive", 18, 6),
        ("admitted again later", 6, 12),
        ("no outcome by predict_at", 6, 0),
    ]


def test_lock_records_the_cohort_and_the_data(layout):
    cohort = mimic("icd_chapter")
    write_labels(cohort, layout, RULES)
    lock = yaml.safe_load((layout.cohort("mimic_icd_chapter") / "cohort.lock.yaml").read_text())
    assert lock["spec"] == cohort.normalized()
    assert lock["spec_sha256"] == cohort.sha256
    assert set(lock["data_sha256"]) == {"subjects", "encounters", "events"}
    assert len(lock["classes"]) == 22


def test_lock_changes_with_the_data(layout):
    def data():
        write_labels(mimic("icd_chapter"), layout, RULES)
        lock = yaml.safe_load((layout.cohort("mimic_icd_chapter") / "cohort.lock.yaml").read_text())
        return lock["data_sha256"]

    hashes_before = data()
    write(layout, *write_patients(13))
    assert all(hashes_before[table] != hash_after for table, hash_after in data().items())


def test_lock_resolves_code_lists_and_unmatched_patterns_warn(layout):
    text = mimic("mortality").normalized() | {
        "codes": {"heart": {"icd9cm": ["401*", "4028"], "atc": ["B01*"]}},
        "index": {"encounter": {"with": "heart"}},
        "looks_ahead": ["index"],
    }
    card = write_labels(parse_text(yaml.safe_dump(text), file="c.yaml"), layout, RULES)
    lock = yaml.safe_load((layout.cohort("mimic_mortality") / "cohort.lock.yaml").read_text())
    assert lock["codes"] == {"heart": {"icd9cm": {"4019": 12}, "atc": {}}}
    assert card.counts["rows"] == 12
    assert card.warnings[:2] == [
        "codes.heart.icd9cm: '4028' matches no event; the nearest that exist are 4019",
        "codes.heart.atc: 'B01*' matches no event; the data hold no similar atc code with at least 11 patients",
    ]


def test_code_with_two_digits_swapped_is_the_first_suggested():
    patients = dict.fromkeys(("51492", "50952", "50925", "50912"), 20)
    assert _nearest("50192", "itemid", patients) == "; the nearest that exist are 50912, 51492, 50952"


def test_codes_near_an_absent_category_are_those_that_begin_alike():
    patients = {"I10": 90, "C17": 80, "N170": 5, "N19": 20, "N182": 40, "N390": 70, "N401": 30}
    assert _nearest("N17*", "icd10cm", patients) == "; the nearest that exist are N182, N19"
    assert _nearest("N71*", "icd10cm", patients).startswith("; the nearest that exist are")


def test_empty_cohort_writes_labels_and_warns_not_trainable(layout):
    card = write_labels(mimic("readmission", ("index_alive", "{index_longer_than: 9 years}")), layout, RULES)
    labels = read_table(layout.labels("mimic_readmission"), labels_schema("bool"))
    assert len(labels) == 0
    assert card.warnings == [
        "not trainable: the cohort is empty; see where its rows go in the attrition table"
    ]


def test_unanswerable_cohort_writes_empty_labels_with_the_reason(layout):
    cohort = mimic("readmission", ("{any_encounter: {}, within", "{any_encounter: {type: IP}, within"))
    with pytest.raises(CohortError) as error:
        write_labels(cohort, layout, RULES)
    card = write_empty_labels(cohort, layout, RULES, error.value)
    assert card.warnings == [f"{CANNOT_ANSWER}: {error.value}"]
    assert len(read_table(layout.labels("mimic_readmission"), labels_schema("bool"))) == 0
    assert {
        step.index_rows for step in read_attrition(layout.cohort("mimic_readmission") / "attrition.csv")
    } == {0}


def test_rare_categories_are_not_trainable(layout):
    card = write_labels(mimic("icd_category"), layout, RULES)
    assert card.warnings == ["not trainable: no category has 100 admissions"]
    labels = pl.from_arrow(read_table(layout.labels("mimic_icd_category"), labels_schema("list")))
    assert labels["label"].to_list() == [[]] * 24


@pytest.mark.parametrize(
    ("preset", "features", "is_warned"),
    [
        ("paper", "{until: predict_at}", True),
        ("paper", "{until: predict_at, drop_from_index: [DX]}", False),
        ("paper", "{until: predict_at, drop_types: [DX]}", False),
        ("default", "{until: predict_at}", False),  # diagnoses are available at discharge
    ],
)
def test_diagnoses_used_before_discharge_are_a_warning(layout, preset, features, is_warned):
    cohort = mimic("mortality", ("{until: predict_at, drop_from_index: [DX]}", features))
    warnings = write_labels(cohort, layout, PRESETS[preset]).warnings
    assert any("add 'drop_from_index: [DX]'" in warning for warning in warnings) == is_warned


def test_split_with_a_single_class_is_a_warning(tmp_path):
    layout = Layout(tmp_path)
    write(layout, [subject(1)], [stay(1, DAY_ZERO, DAY_ZERO + 9 * DAY)], [])
    assert write_labels(mimic("mortality"), layout, RULES).warnings == [
        "not trainable: the training split has only rows with the outcome, or only without",
        "the validation split has no rows",
        "the test split has no rows",
    ]


@pytest.mark.parametrize(
    ("patients", "num_followed", "share"),
    [
        *((5, 0, "all"), (20, 0, "all"), (30, 25, "about 50 % of the")),
        *((20, 3, "nearly all"), (5, 5, "< 11")),
    ],
)
def test_short_follow_up_warning_hides_small_counts(tmp_path, patients, num_followed, share):
    assert follow_up_warning(tmp_path, patients, num_followed) == (
        f"{share} rows without the outcome are followed to an earlier time than index.end + 30 days: {NOT_KNOWN}"
    )


def follow_up_warning(tmp_path, patients, num_followed):
    """The last stay of a patient has no follow-up; some patients have an earlier stay with follow-up."""
    layout = Layout(tmp_path)
    last = [stay(n, DAY_ZERO + 40 * DAY, DAY_ZERO + 41 * DAY, of=n) for n in range(1, patients + 1)]
    first_stays = [stay(100 + n, DAY_ZERO, DAY_ZERO + DAY, of=n) for n in range(1, num_followed + 1)]
    write(layout, [subject(n) for n in range(1, patients + 1)], last + first_stays, [])
    later = "admitted again later: {any_encounter: {}, after: index.end}"
    end_texts = ("within: 30 days", "until: index.end + 30 days")
    card = write_labels(mimic("readmission", (later, "ended: {index_has: end}"), end_texts), layout, RULES)
    return card.warnings[0]


@pytest.mark.parametrize(
    ("patients", "num_followed", "words"),
    [
        (20, 10, "20 of the 30 rows without the outcome are followed"),
        (1, 1, "1 of the 2 rows without the outcome is followed"),
    ],
)
def test_short_follow_up_of_synthetic_patients_is_counted(tmp_path, patients, num_followed, words):
    with disclosing(True):
        assert follow_up_warning(tmp_path, patients, num_followed).startswith(words)


def test_filter_on_an_empty_column_is_refused_with_the_line(layout):
    cohort = mimic("readmission", ("{any_encounter: {}, within", "{any_encounter: {type: IP}, within"))
    with pytest.raises(CohortError) as error:
        write_labels(cohort, layout, RULES)
    assert str(error.value) == (
        "mimic_readmission.yaml:10: outcome.any_encounter.type: every encounter's type is empty in these data; "
        "take this filter out"
    )


def test_all_unanswerable_parts_are_reported_together(tmp_path):
    layout = Layout(tmp_path)
    subjects, encounters, events = write_patients()
    write(layout, [row | {"birth_date": None} for row in subjects], encounters, events)
    changes = [
        ("encounter: {}, keep: every", "encounter: {type: IP}, age: [0 days, 18 years], keep: every"),
        ("{any_encounter: {}, after: index.end}", "{any_encounter: {type: IP}, after: birth + 1 year}"),
        ("within: 30 days", "until: birth + 4 years"),
        ON_PCORNET,
        ("{hash: [70, 15, 15]}", "{test_if_birth_day: [17, 24]}"),
    ]
    with pytest.raises(CohortError) as error:
        write_labels(mimic("readmission", *changes), layout, RULES)
    assert [(fault.line, fault.key_path) for fault in error.value.faults] == [
        (4, "index"),
        (4, "index.encounter.type"),
        (7, "require.admitted again later.after"),
        (7, "require.admitted again later.any_encounter.type"),
        (10, "outcome.until"),
        (11, "split"),
    ]


BY_BIRTH_DAY = ("{hash: [70, 15, 15]}", "{test_if_birth_day: [1, 8]}")
ON_PCORNET = ("source: mimic", "source: pcornet")


def test_birth_day_split_must_match_the_data_or_is_refused(layout, tmp_path):
    cohort = mimic("readmission", ON_PCORNET, BY_BIRTH_DAY)  # all are born on the first of July
    with pytest.raises(CohortError) as error:
        write_labels(cohort, layout, RULES)
    assert str(error.value) == (
        "mimic_readmission.yaml:11: split: the patients of these data are not split this way "
        "(< 11 of 12 patients with a date of birth are in another split); write 'hash: [70, 15, 15]'"
    )
    by_birth = Layout(tmp_path / "by_birth")
    subjects, encounters, events = write_patients()
    write(by_birth, [row | {"split": "train"} for row in subjects], encounters, events)
    with pytest.raises(
        CohortError, match=r":11: split: the test split of these children is by day of birth; write"
    ):
        write_labels(mimic("readmission", ON_PCORNET), by_birth, RULES)
    all_test = Layout(tmp_path / "all_tested")
    subjects, encounters, events = write_patients()
    write(all_test, [row | {"split": "test"} for row in subjects], encounters, events)
    assert write_labels(cohort, all_test, RULES).counts["rows_test"] == 6


def test_follow_up_uses_the_end_of_data_of_the_source(tmp_path):
    layout = Layout(tmp_path)
    write(layout, [subject(1)], [stay(1, DAY_ZERO, DAY_ZERO + DAY)], [])
    later = "admitted again later: {any_encounter: {}, after: index.end}"
    cohort = mimic("readmission", (later, "followed: {data_until: index.end + 30 days}"))
    assert write_labels(cohort, layout, RULES).counts["rows"] == 0

    _end_data(layout, DAY_ZERO + 31 * DAY)
    assert write_labels(cohort, layout, RULES).counts["rows"] == 1
    _end_data(layout, DAY_ZERO + 31 * DAY - MICROSECOND)
    assert write_labels(cohort, layout, RULES).counts["rows"] == 0


def _end_data(layout, moment):
    table = read_table(layout.encounters, ENCOUNTERS)
    metadata = {"end_of_data": moment.isoformat()}
    write_table(table, layout.encounters, ENCOUNTERS, made_by="test", metadata=metadata)


def test_window_that_ends_before_the_prediction_is_a_warning(layout):
    later = ("any_encounter: {}, within: 30 days", "any_encounter: {}, until: birth + 50 years")
    # born in July 2100, and it is January 2150
    card = write_labels(mimic("readmission", later), layout, RULES)
    assert not any("no window" in warning for warning in card.warnings)
    later = ("any_encounter: {}, within: 30 days", "any_encounter: {}, until: birth + 18 years")
    card = write_labels(mimic("readmission", later), layout, RULES)
    assert card.warnings[0] == (
        "all rows have no window: their prediction is at or after birth + 18 years, so they count as negative"
    )


def test_window_beyond_the_data_is_a_warning(tmp_path):
    layout = Layout(tmp_path)
    write(
        layout,
        [subject(n) for n in range(20)],
        [stay(n, DAY_ZERO, DAY_ZERO + DAY, of=n) for n in range(20)],
        [],
    )
    changes = [
        ("admitted again later: {any_encounter: {}, after: index.end}", "ended: {index_has: end}"),
        ("any_encounter: {}, within: 30 days", "any_encounter: {}, until: birth + 50 years"),
    ]
    card = write_labels(mimic("readmission", *changes), layout, RULES)
    assert card.warnings[0] == (
        f"all rows without the outcome are followed to an earlier time than birth + 50 years: {NOT_KNOWN}"
    )


@pytest.mark.parametrize(
    ("features_since", "expected"),
    [
        ("predict_at - 365 days", (365 * 86_400_000_000, 0, "predict_at")),
        ("predict_at - 2 years", (0, 24, "predict_at")),
        ("index.start", (0, 0, "index.start")),
        ("index.start + 6 hours", (-6 * 3_600_000_000, 0, "index.start")),
    ],
)
def test_labels_record_where_features_begin(layout, features_since, expected):
    write_labels(
        mimic("readmission", ("{until: predict_at}", f"{{until: predict_at, since: {features_since}}}")),
        layout,
        RULES,
    )
    features = read_task(layout.labels("mimic_readmission")).features
    assert (features.since_us, features.since_months, features.since_anchor) == expected


def test_prediction_can_lie_days_after_the_stay(layout):
    write_labels(
        mimic("readmission", ("predict_at: index.end", "predict_at: index.end + 2 days")), layout, RULES
    )
    assert not validate(labels(layout, "mimic_readmission")).failed("ERROR")
    assert not broken_rules(layout, "mimic_readmission")


def test_full_disk_keeps_the_earlier_files(layout, monkeypatch):
    cohort = mimic("mortality")
    write_labels(cohort, layout, RULES)
    bytes_before = [(layout.cohort(cohort.cohort) / name).read_bytes() for name in FILES]
    write(layout, *write_patients(20))

    def full(*_args, **_keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(WriteError, match="No space left on device"):
        write_labels(cohort, layout, RULES)
    assert [(layout.cohort(cohort.cohort) / name).read_bytes() for name in FILES] == bytes_before
    assert sorted(path.name for path in layout.cohort(cohort.cohort).parent.iterdir()) == [cohort.cohort]


FIRST = pl.int_range(pl.len()) == 0


def of_first(column, value):
    return lambda rows: rows.with_columns(pl.when(FIRST).then(value).otherwise(column).alias(column))


FAULTS = {
    "another patient's stay": of_first("index_encounter", 999),
    "predicted before the stay": of_first("predict_at", pl.col("index_start") - DAY),
    "predicted after the stay": of_first("predict_at", pl.col("predict_at") + 30 * DAY),
    "another split": of_first("split", pl.lit("other")),
    "outcome at the prediction": of_first("outcome_time", pl.col("predict_at")),
    "an index twice": lambda rows: pl.concat([rows, rows.head(1)]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_expectations_agree_with_a_plain_count_of_bad_label_rows(layout, fault):
    write_labels(mimic("mortality"), layout, RULES)
    _rewrite(layout, FAULTS[fault])
    failures = validate(labels(layout, "mimic_mortality")).failed("ERROR")
    assert {outcome.rule.name: outcome.num_broken for outcome in failures} == broken_rules(
        layout, "mimic_mortality"
    )
    assert failures


def _rewrite(layout, change):
    path, schema = layout.labels("mimic_mortality"), labels_schema("bool")
    task = pq.read_schema(path).metadata[b"task"].decode()
    rows = change(pl.from_arrow(read_table(path, schema)))
    write_table(rows.to_arrow(), path, schema, made_by="test", metadata={"task": task})


def test_missing_return_counts_as_negative_when_data_end_with_the_stay(tmp_path):
    layout = Layout(tmp_path)
    write(
        layout,
        [subject(n) for n in range(20)],
        [stay(n, DAY_ZERO, DAY_ZERO + DAY, of=n) for n in range(20)],
        [],
    )
    card = write_labels(mimic("readmission_any"), layout, RULES)
    assert card.counts["rows"] == 20
    assert not any("followed" in warning for warning in card.warnings)


def test_selection_on_the_future_warns_unless_declared(layout):
    spec = mimic("readmission").normalized()
    assert not any(
        "looks past" in warning for warning in parse_text(yaml.safe_dump(spec), file="c.yaml").warnings()
    )
    del spec["looks_ahead"]
    card = write_labels(parse_text(yaml.safe_dump(spec), file="c.yaml"), layout, RULES)
    assert card.warnings[0].startswith("'admitted again later' looks past the prediction")


@pytest.mark.parametrize(
    ("task", "change", "is_warned"),
    [
        ("readmission", ("{any_encounter: {}, after: index.end}", "{data_until: index.end + 30 days}"), True),
        (
            "readmission",
            ("any_encounter: {}, after: index.end}", "any_encounter: {}, before: index.end}"),
            False,
        ),
        ("mortality", ("index_longer_than: 24 hours", "index_longer_than: 25 hours"), True),
        (
            "mortality",
            ("{index_longer_than: 24 hours}", "{index_longer_than: 24 hours}\n  - left: index_alive"),
            True,
        ),
        ("mortality", ("keep: every", "keep: nearest 40 years"), True),
        ("mortality", ("keep: every", "keep: first"), False),
    ],
)
def test_look_aheads_are_listed(task, change, is_warned):
    warnings = (
        mimic(task, change, ("looks_ahead: admitted again later\n", ""))
        if task == "readmission"
        else mimic(task, change)
    )
    assert any("looks past" in warning for warning in warnings.warnings()) == is_warned
