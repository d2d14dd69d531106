"""Any MEDS dataset: kinds by known prefixes, sets by encounters or gaps, and one message per fault."""

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.events.clock import NEVER
from pipelines.events.split import TASK_SPLIT, assign_split
from pipelines.sources.meds.codes import classify_codes
from pipelines.sources.meds.rows import number_by_gaps
from pipelines.sources.meds.steps import find_dataset
from schemas.cards import StepCard, files_of
from schemas.errors import InputError
from schemas.layout import Layout
from schemas.rules import PRESETS
from schemas.tables.meds import EXTENSIONS, MEDS_DATA
from tests.bad_inputs.files import as_ordinary_user
from tests.support.meds_tables import read_meds, write_shards

RULES = PRESETS["paper"]  # min_count 1, fitted on all: ten values are enough
DAY = datetime(2150, 3, 1)
SECRET = 40213377

TYPES = {
    "subject_id": pl.Int64,
    "time": pl.Datetime("us"),
    "code": pl.String,
    "numeric_value": pl.Float32,
    "hadm_id": pl.Int64,
}
EXTRA_TYPES = {"visit_id": pl.Int64}


def dataset(
    root: Path, rows: list[tuple], *, shard: str = "train/0", columns: tuple[str, ...] = tuple(TYPES)
) -> Path:
    """Write rows of TYPES as one shard of a MEDS dataset without our extension columns."""
    file = root / "data" / f"{shard}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    (root / "metadata").mkdir(exist_ok=True)
    (root / "metadata" / "dataset.json").write_text(json.dumps({"meds_version": "0.4.0"}))
    frame = pl.DataFrame(rows, schema={name: (TYPES | EXTRA_TYPES)[name] for name in columns}, orient="row")
    frame.write_parquet(file)
    return root


def hours(count: float) -> datetime:
    return DAY + timedelta(hours=count)


STAY = [
    (1, None, "GENDER//F", None, None),
    (1, datetime(2100, 1, 1), "MEDS_BIRTH", None, None),
    (1, hours(0), "HOSPITAL_ADMISSION//EW EMER.//EMERGENCY ROOM", None, 7),
    (1, hours(0), "RACE//WHITE", None, 7),
    (1, hours(1), "LAB//RESULT//50912//mg/dL", 1.5, 7),
    (1, hours(2), "LAB//50912//mg/dL", float("nan"), 7),
    (1, hours(2), "LAB//50912//mg/dL", float("inf"), None),
    (1, hours(3), "ICU_ADMISSION//MICU", None, None),
    (1, hours(4), "DIAGNOSIS//ICD//10//I10", None, 7),
    (1, hours(5), "ICD9CM/E888.9", None, 7),
    (1, hours(5), "PROCEDURE//ICD//9//3961", None, 7),
    (1, hours(6), "MEDICATION//Heparin//Administered", None, 7),
    (1, hours(7), "ATC//B01AC06", None, 7),
    (1, hours(48), "HOSPITAL_DISCHARGE//HOME", None, 7),
    (1, hours(900), "LAB//50912//mg/dL", 3.0, None),
    (1, hours(9000), "MEDS_DEATH", None, None),
]


@pytest.fixture
def stay(tmp_path: Path) -> Layout:
    measurements = [(2, hours(n), "LAB//RESULT//50912//mg/dL", float(n), 8) for n in range(10)]
    root = dataset(tmp_path / "set", STAY + measurements)
    return read_meds(root, Layout(tmp_path / "meds"), RULES)


def test_kinds_and_codes_come_from_declared_prefixes(stay):
    events = pl.read_parquet(stay.events / "*.parquet").filter(pl.col("subject_id") == 1)
    codes = set(events.select("kind", "vocab", "code", "mapped").iter_rows())
    assert codes == {
        ("LAB", "itemid", "50912//mg/dL", None),
        ("ITEM", "meds", "LAB//50912//mg/dL", "LAB//50912//mg/dL"),
        ("ITEM", "meds", "ICU_ADMISSION//MICU", "ICU_ADMISSION//MICU"),
        ("DX", "icd10cm", "I10", "I10"),
        ("DX", "icd9cm", "E8889", "9E8889"),
        ("PR", "icd9pcs", "3961", "3961"),
        ("ITEM", "meds", "MEDICATION//Heparin//Administered", "MEDICATION//Heparin//Administered"),
        ("MED", "atc", "B01AC06", "B01AC06"),
    }


def test_every_row_is_kept_or_dropped_for_a_reason(stay):
    card = StepCard.read(stay.cards, "events")
    flow = card.flows["rows"]
    assert flow.reconciles
    assert {reason: count for reason, count in flow.dropped.items() if count} == {
        "about_subject": 4,
        "about_encounter": 2,
    }
    assert flow.noted == {"value_not_finite": 2, "mended_code": 0}
    counts = {name: count for name, count in card.counts.items() if name.startswith("codes")}
    assert counts == {"codes_declared": 4, "codes_valued": 1, "codes_of_neither": 9}
    assert sum(flow.kept_rows for kind, flow in card.flows.items() if kind != "rows") == flow.kept_rows


def test_stay_lasts_from_admission_to_discharge_and_codes_are_known_then(stay):
    stays = pl.read_parquet(stay.encounters).filter(pl.col("encounter_id") == 7)
    assert stays.select("start", "end", "died", "admission_type", "race", "discharge_status", "age_years").row(0) == (
        hours(0), hours(48), False, "EW EMER.", "WHITE", "HOME", 50.0,
    )  # fmt: skip
    events = pl.read_parquet(stay.events / "*.parquet").filter(pl.col("subject_id") == 1)
    code_events, other_events = (
        events.filter(pl.col("kind").is_in(["DX", "PR"]) == has_code) for has_code in (True, False)
    )
    assert code_events["kind"].to_list() == ["DX", "DX", "PR"]
    assert set(code_events["available_at"]) == {hours(48)}
    assert other_events["available_at"].equals(other_events["time"])


def test_the_codes_of_a_stay_without_a_discharge_are_never_known(tmp_path):
    rows = [row for row in STAY if not row[2].startswith("HOSPITAL_DISCHARGE")]
    layout = read_meds(dataset(tmp_path / "set", rows), Layout(tmp_path / "meds"), RULES)
    events = pl.read_parquet(layout.events / "*.parquet")
    available_at = events.filter(pl.col("kind").is_in(["DX", "PR"]))["available_at"]
    assert set(available_at) == {NEVER}


def test_row_without_encounter_belongs_to_surrounding_stay(stay):
    events = pl.read_parquet(stay.events / "*.parquet").filter(pl.col("subject_id") == 1)
    at = dict(
        events.filter(pl.col("code").str.contains("ICU|50912")).select("time", "encounter_id").iter_rows()
    )
    assert at == {hours(1): 7, hours(2): 7, hours(3): 7, hours(900): None}


def test_encounter_without_admission_spans_all_rows(stay):
    assert pl.read_parquet(stay.encounters).filter(pl.col("encounter_id") == 8).select("start", "end").row(
        0
    ) == (hours(0), hours(9))


def test_the_sets_of_any_dataset_hold_its_events(stay):
    write_shards(stay, RULES)
    vocab = dict(pl.read_parquet(stay.vocab).select("token_id", "token").drop_nulls().iter_rows())
    sets = pl.read_parquet(stay.seqset / "*.parquet")
    types = dict(sets.select("encounter_id", "admission_type").iter_rows())
    assert types == {7: "EW EMER.", 8: None}  # of the code that says the admission, and without one
    tokens = {
        row[0]: [vocab[token] for token in row[1]]
        for row in sets.select("encounter_id", "tokens").iter_rows()
    }
    assert tokens[8] == [f"LAB:50912//mg/dL_Q{decile}" for decile in (1, 1, 3, 4, 5, 6, 7, 8, 9, 10)]
    assert tokens[7] == [
        "DX:I10", "DX:9E8889", "LAB:50912//mg/dL_Q2", "ITEM:LAB//50912//mg/dL", "ITEM:LAB//50912//mg/dL",
        "ITEM:ICU_ADMISSION//MICU", "PR:3961", "ITEM:MEDICATION//Heparin//Administered", "MED:B01AC06",
    ]  # fmt: skip


def test_a_code_with_too_few_values_is_a_token_without_a_decile(tmp_path):
    rows = [(1, hours(n), "HEART_RATE", 60.0 + n, 8) for n in range(9)]
    layout = read_meds(dataset(tmp_path / "set", rows), Layout(tmp_path / "meds"), RULES)
    events = pl.read_parquet(layout.events / "*.parquet")
    assert set(events.select("kind", "code").iter_rows()) == {("ITEM", "HEART_RATE")}


def test_values_of_held_out_patients_give_code_no_deciles(tmp_path):
    ids = pl.Series(range(1, 200))
    held_out = ids.filter(assign_split(ids, *TASK_SPLIT) == "test")
    rows = [(subject, hours(n), "HEART_RATE", 60.0 + n, subject) for subject in held_out for n in range(90)]
    training_id = ids.filter(assign_split(ids, *TASK_SPLIT) == "train")[0]
    root = dataset(tmp_path / "set", [*rows, (training_id, hours(0), "HEART_RATE", 60.0, training_id)])
    layout = read_meds(root, Layout(tmp_path / "meds"), PRESETS["default"])
    assert set(pl.read_parquet(layout.events / "*.parquet")["kind"]) == {"ITEM"}


def test_without_an_encounter_column_a_longer_gap_begins_a_set(tmp_path):
    rows = [
        (1, None, "GENDER//M", None),
        (1, datetime(2100, 1, 1), "MEDS_BIRTH", None),
        *((1, hours(at), "A", None) for at in (0, 20, 44, 69, 70)),
        (1, hours(100), "MEDS_DEATH", None),
        (2, hours(0), "B", None),
    ]
    root = dataset(tmp_path / "set", rows, columns=("subject_id", "time", "code", "numeric_value"))
    layout = read_meds(root, Layout(tmp_path / "meds"), RULES, gap_hours=24.0, per_bucket=1)
    stays = pl.read_parquet(layout.encounters)
    assert list(stays.select("subject_id", "encounter_id", "start", "end").iter_rows()) == [
        (1, 1, hours(0), hours(44)),
        (1, 2, hours(69), hours(70)),
        (2, 3, hours(0), hours(0) + timedelta(seconds=1)),
    ]
    events = pl.read_parquet(layout.events / "*.parquet").sort("subject_id", "time")
    assert events["encounter_id"].to_list() == [1, 1, 1, 2, 2, 3]


def test_encounter_column_follows_setting(tmp_path):
    root = dataset(tmp_path, STAY)
    assert find_dataset(root).encounter_column == "hadm_id"
    assert find_dataset(root, "none").encounter_column is None
    with pytest.raises(
        InputError, match=r"NEST_MEDS_ENCOUNTER_COLUMN: not every file .* has a column stay_id"
    ):
        find_dataset(root, "stay_id")


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 500)), min_size=1, max_size=40), st.integers(1, 50)
)
def test_rows_form_one_set_only_without_longer_gap(moments, gap):
    rows = pl.DataFrame(
        [(subject, hours(at), "A", None) for subject, at in moments],
        schema={
            "subject_id": pl.Int64,
            "time": pl.Datetime("us"),
            "code": pl.String,
            "encounter_id": pl.Int64,
        },
        orient="row",
    )
    numbered_rows = number_by_gaps(rows, gap_hours=gap)
    expected, number = {}, 0
    for subject in sorted({subject for subject, _ in moments}):
        last = None
        for at in sorted({at for moment_subject, at in moments if moment_subject == subject}):
            number += last is None or at - last > gap
            expected[subject, hours(at)], last = number, at
    assert {
        (row[0], row[1]): row[2]
        for row in numbered_rows.select("subject_id", "time", "encounter_id").iter_rows()
    } == expected


def test_dataset_split_is_kept_and_held_out_subjects_are_not_pretrained(tmp_path):
    rows = [(subject, hours(0), "A", None, subject) for subject in range(1, 41)]
    root = dataset(tmp_path / "set", rows)
    given_splits = ["train", "tuning", "held_out", "held_out"] * 10
    pl.DataFrame({"subject_id": range(1, 41), "split": given_splits}).write_parquet(
        root / "metadata/subject_splits.parquet"
    )
    layout = read_meds(root, Layout(tmp_path / "meds"), RULES)
    people = pl.read_parquet(layout.subjects)
    assert people["split"].to_list() == ["train", "val", "test", "test"] * 10
    assert people["pretrain_split"].to_list() == people["split"].to_list()


def test_an_icd9_code_never_passes_for_an_icd10_code():
    codes = pl.Series(
        [
            "DIAGNOSIS//ICD//9//E8889",
            "DIAGNOSIS//ICD//10//E8889",
            "ICD9CM//V586",
            "ICD10CM//V586",
            "ICD9CM/401.9",
        ]
    )
    code_table = classify_codes(codes, codes.clear())
    assert code_table["mapped"].to_list() == ["9E8889", "E8889", "9V586", "V586", "4019"]


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("DIAGNOSIS//ICD//9//4019.0", "code_as_float"),
        ("ICD9CM/41.11", "code_as_float"),
        ("ICD9CM/42", "code_without_its_zeros"),
        ("PROCEDURE//ICD//9//66", "code_without_its_zeros"),
        ("ICD9Proc/331.0", "code_as_float"),
        ("ICD10CM/\u041510.9", "code_in_other_letters"),
        ("ICD9CM/401.9", None),
        ("ICD9Proc/99.15", None),
        ("ICD10CM/E11.9", None),
        ("SNOMED/42", None),
        ("LAB//5\u00b5", None),
    ],
)
def test_damaged_codes_are_recognized(code: str, fault: str | None):
    codes = pl.Series([code])
    assert classify_codes(codes, codes.clear())["fault"].to_list() == [fault]


def test_full_width_letters_are_normalized_only_in_known_codes():
    codes = pl.Series(["ICD10CM/\uff25\uff11\uff11.9", "LAB//\uff25 \u00b5"])
    code_table = classify_codes(codes, codes.clear())
    assert code_table.select("code", "is_mended").rows() == [("E119", True), ("LAB//\uff25 \u00b5", False)]


def test_few_damaged_codes_are_dropped_and_counted_and_more_are_refused(tmp_path):
    rows = [(n % 9, hours(n), "ICD9CM/401.9", None, n % 9) for n in range(1, 1200)]
    bad = [(1, hours(1), "ICD9CM/4019.0", None, 1), (2, hours(2), "ICD9CM/\uff14\uff10\uff11.9", None, 2)]
    layout = read_meds(dataset(tmp_path / "set", rows + bad), Layout(tmp_path / "meds"), RULES)
    flow = StepCard.read(layout.cards, "events").flows["rows"]
    assert (flow.dropped["code_as_float"], flow.noted["mended_code"]) == (1, 1)
    with pytest.raises(InputError, match=r"column code: 2 of 1,202 rows are written as decimal numbers"):
        read_meds(dataset(tmp_path / "set", rows + bad + bad[:1]), Layout(tmp_path / "other"), RULES)


def test_the_same_rows_in_other_types_give_the_same_tables(tmp_path):
    roots = [dataset(tmp_path / name, STAY) for name in ("one", "other")]
    file = roots[1] / "data" / "train" / "0.parquet"
    casts = (
        pl.col("time").cast(pl.Datetime("ms")),
        pl.col("code").cast(pl.Categorical),
        pl.col("hadm_id").cast(pl.String),
    )
    pl.read_parquet(file).with_columns(*casts, pl.col("subject_id").cast(pl.Int32)).write_parquet(file)
    first, second = (read_meds(root, Layout(root / "out"), RULES) for root in roots)
    for path in (
        "subjects.parquet",
        "encounters.parquet",
        *(f"events/{kind}-00000.parquet" for kind in ("DX", "ITEM")),
    ):
        assert (first.root / path).read_bytes() == (second.root / path).read_bytes()


def test_unsorted_rows_are_sorted_with_warning(tmp_path):
    sorted_root, mixed_root = tmp_path / "sorted", tmp_path / "mixed"
    unsorted_rows = [STAY[place] for place in (5, 3, 1, 0, 2, 4, *range(15, 5, -1))]
    layouts = []
    for root, rows in ((sorted_root, STAY), (mixed_root, unsorted_rows)):
        layouts.append(read_meds(dataset(root, rows), Layout(root / "out"), RULES))
    assert not StepCard.read(layouts[0].cards, "raw").warnings
    assert "1 of 1 files are not sorted" in StepCard.read(layouts[1].cards, "raw").warnings[0]
    for first, second in zip(*(sorted(layout.events.glob("*.parquet")) for layout in layouts), strict=True):
        assert first.read_bytes() == second.read_bytes()
    assert layouts[0].encounters.read_bytes() == layouts[1].encounters.read_bytes()


def remove_metadata(root: Path) -> None:
    (root / "metadata" / "dataset.json").unlink()


def break_metadata(root: Path) -> None:
    (root / "metadata" / "dataset.json").write_text("[1, 2")


def remove_shard(root: Path) -> None:
    (root / "data" / "train" / "0.parquet").unlink()


def truncate_shard(root: Path) -> None:
    file = root / "data" / "train" / "0.parquet"
    file.write_bytes(file.read_bytes()[:-40])


def rewrite(**columns: pl.Expr):
    def spoil(root: Path) -> None:
        file = root / "data" / "train" / "0.parquet"
        pl.read_parquet(file).with_columns(**columns).write_parquet(file)

    return spoil


def drop_code_column(root: Path) -> None:
    file = root / "data" / "train" / "0.parquet"
    pl.read_parquet(file).drop("code").write_parquet(file)


def copy_shard(root: Path) -> None:
    file = root / "data" / "train" / "0.parquet"
    (root / "data" / "train" / "1.parquet").write_bytes(file.read_bytes())


def rename_splits(root: Path) -> None:
    pl.DataFrame({"subject_id": [SECRET], "split": ["dev"]}).write_parquet(
        root / "metadata/subject_splits.parquet"
    )


def write_splits(**columns: pl.Expr):
    def spoil(root: Path) -> None:
        splits = pl.DataFrame({"subject_id": [SECRET], "split": ["train"]}).with_columns(**columns)
        splits.write_parquet(root / "metadata/subject_splits.parquet")

    return spoil


def put_link(name: str, target: str):
    """Return a fault: a link in the dataset, in place of a file."""

    def spoil(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)

    return spoil


def link_folders_to_each_other(root: Path) -> None:
    for name, target in (("one", "other"), ("other", "one")):
        (root.parent / name).mkdir()
        (root.parent / name / "next").symlink_to(root.parent / target)
    (root / "data" / "held_out").symlink_to(root.parent / "one")


def break_two_links(root: Path) -> None:
    for name in ("1", "2"):
        put_link(f"data/train/{name}.parquet", "gone.parquet")(root)


def add_shard_without(column: str):
    """Return a fault: two more shards, the first without a column."""

    def spoil(root: Path) -> None:
        rows = pl.read_parquet(root / "data" / "train" / "0.parquet")
        for subject, shard in ((1, rows.drop(column)), (2, rows)):
            new_shard = shard.with_columns(pl.lit(subject, pl.Int64).alias("subject_id"))
            new_shard.write_parquet(root / "data" / "train" / f"{subject}.parquet")

    return spoil


def drop_extension_in_one_shard(root: Path) -> None:
    rewrite(**EXTENSION_COLUMNS)(root)
    add_shard_without("available_at")(root)


def remove_rows(root: Path) -> None:
    file = root / "data" / "train" / "0.parquet"
    for name in ("0", "1"):
        pl.read_parquet(file).clear().write_parquet(file.with_stem(name))


def hide_shard(root: Path) -> None:
    (root / "data" / "train" / "0.parquet").rename(root / "data" / "train" / ".0.parquet")


def put_folder_for_shard(root: Path) -> None:
    (root / "data" / "train" / "1.parquet").mkdir()


def put_pipe_for_splits(root: Path) -> None:
    os.mkfifo(root / "metadata" / "subject_splits.parquet")


BEYOND = pl.lit(2**63 + 5, pl.UInt64)
YEAR_9999 = pl.lit(datetime(9999, 12, 31), pl.Datetime("us"))
EXTENSION_COLUMNS = {name: pl.lit(None, pl.Schema(MEDS_DATA)[name]) for name in EXTENSIONS}
SECOND_IS = pl.int_range(pl.len()) == 1

FAULTS = [
    (remove_metadata, r"metadata/dataset\.json: no such file in .*meds_version"),
    (break_metadata, r"metadata/dataset\.json: is not a JSON object"),
    (remove_shard, r"no Parquet file there or below"),
    (truncate_shard, r"data/train/0\.parquet: is not a complete Parquet file"),
    (drop_code_column, r"data/train/0\.parquet: no column code"),
    (rewrite(time=pl.col("time").cast(pl.String)), r"column time is stored as .*string, but times without a zone"),
    (rewrite(time=pl.col("time").dt.replace_time_zone("UTC")), r"column time is stored as .*UTC"),
    (rewrite(subject_id=pl.col("subject_id").cast(pl.Float64)), r"column subject_id is stored as double"),
    (rewrite(numeric_value=pl.lit("high")), r"column numeric_value is stored as .*string, but numbers"),
    (rewrite(code=pl.when(~SECOND_IS).then("code")), r"column code: 1 of 3 rows have none"),
    (rewrite(code=pl.when(SECOND_IS).then(pl.lit(" ")).otherwise("code")), r"column code: 1 of 3 rows have none"),
    (rewrite(subject_id=pl.when(~SECOND_IS).then("subject_id")), r"column subject_id: 1 of 3 rows have none"),
    (rewrite(hadm_id=pl.lit("A-17")), r"column hadm_id: 3 of the first 3 values are not whole numbers"),
    (rewrite(hadm_id=pl.lit(17.5)), r"column hadm_id: 3 of the first 3 values are not whole numbers"),
    (rewrite(subject_id=pl.int_range(pl.len()) + SECRET), r"hadm_id: rows of 2 encounters belong to more than one"),
    (rewrite(subject_id=BEYOND), r"0\.parquet: column subject_id: 3 of the first 3 values lie beyond"),
    (rewrite(hadm_id=BEYOND), r"column hadm_id: 3 of the first 3 values are not whole numbers"),
    (rewrite(time=YEAR_9999), r"0\.parquet: column time: 3 of 3 values lie outside the years 1900 to 2299"),
    (rewrite(time=pl.when(SECOND_IS).then(datetime(1, 1, 1)).otherwise("time")), r"column time: 1 of 3 values"),
    (
        rewrite(**{**EXTENSION_COLUMNS, "available_at": YEAR_9999}),
        r"column available_at: 3 of 3 values lie outside the years",
    ),
    (write_splits(split=pl.lit(1)), r"metadata/subject_splits\.parquet: column split is stored as int32, but text"),
    (write_splits(subject_id=pl.lit("A-17")), r"splits\.parquet: column subject_id is stored as .*string, but who"),
    (write_splits(subject_id=BEYOND), r"splits\.parquet: column subject_id: 1 of the first 1 values lie beyond"),
    (write_splits(split=pl.lit(None, pl.String)), r"splits\.parquet: 1 of 1 subjects are in none of train, tuning"),
    (copy_shard, r"data: rows of 1 subject lie in more than one file"),
    (remove_rows, r"^data: 0 rows in 2 files \(.*\)\. Give a dataset with rows"),
    (
        add_shard_without("hadm_id"),
        r"^data: column hadm_id: 2 of 3 files have it\. Write it .* or to `none`: sets are then",
    ),
    (
        drop_extension_in_one_shard,
        r"^data: column available_at: 2 of 3 files have it as mimic_meds writes it\. Write the column ",
    ),
    (break_two_links, r"data/train/1\.parquet: is a broken link .* Of 3 files in data, 2 cannot"),
    (put_link("data/train/0.parquet", "0.parquet"), r"data/train/0\.parquet: is a broken link .* Of 1 file "),
    (put_link("data/held_out", "/nowhere/held_out"), r"data/held_out: is a broken link .* Give the file"),
    (put_link("data/train/up", ".."), r"data/train/up: is a link to a folder that contains it \(.*\)\. .*remove"),
    (link_folders_to_each_other, r"data/held_out/next/next: is a link to a folder that contains it \(.*\)\. .*remove"),
    (hide_shard, r"data/train/\.0\.parquet: its name begins with a dot, .*Rename it"),
    (put_folder_for_shard, r"data/train/1\.parquet: is a folder \(.*\)\. Give the file itself"),
    (put_link("metadata/subject_splits.parquet", "gone.parquet"), r"subject_splits\.parquet: is a broken link"),
    (put_pipe_for_splits, r"^metadata/subject_splits\.parquet: is not a regular file \(.*\)\. Give the file itself"),
    (rename_splits, r"subject_splits\.parquet: 1 of 1 subjects are in none of train, tuning, held_out"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "message"), FAULTS, ids=[f"{place:02}" for place in range(len(FAULTS))])
def test_a_fault_is_one_message_without_a_value(tmp_path, spoil, message):
    root = dataset(tmp_path / "set", [(SECRET, hours(n), f"SECRET//{n}", 1.0, 7) for n in range(3)])
    spoil(root)
    with pytest.raises(InputError, match=message) as error:
        read_meds(root, Layout(tmp_path / "meds"), RULES)
    text = str(error.value)
    assert not [secret for secret in (str(SECRET), "SECRET", "A-17", "dev") if secret in text]
    assert (
        error.value.__cause__ is None and error.value.__suppress_context__
    ) or error.value.__context__ is None
    assert not [*(tmp_path / "meds").glob(".*")]


def test_dataset_without_events_is_refused_with_commonest_reason(tmp_path):
    root = dataset(tmp_path / "meds", [row for row in STAY if row[2].startswith(("GENDER", "MEDS_BIRTH"))])
    with pytest.raises(InputError, match=r"events: not one row .* dropped as about_subject. Give") as error:
        read_meds(root, Layout(tmp_path / "out"), RULES)
    assert str(SECRET) not in str(error.value)
    assert not (tmp_path / "out" / "events").exists()


def test_events_are_refused_when_all_lie_outside_encounters(tmp_path):
    outside_rows = [(1, hours(500 + hour), f"MY//{hour}", None, None) for hour in range(40)]
    stay_rows = [
        (1, hours(0), "HOSPITAL_ADMISSION//A", None, 7),
        (1, hours(1), "HOSPITAL_DISCHARGE//HOME", None, 7),
    ]
    back = read_meds(dataset(tmp_path / "meds", [*stay_rows, *outside_rows]), Layout(tmp_path / "out"), RULES)
    with pytest.raises(
        InputError, match=r"seqset: there is no token in any of < 11 sets: 40 of 40 events .* no_stay, "
    ):
        write_shards(back, RULES)
    assert not back.seqset.exists()


@pytest.mark.parametrize("name", ["data/train/0.parquet", "metadata/dataset.json", "data/train"])
def test_unreadable_file_is_not_reported_as_damaged(tmp_path, name):
    root = dataset(tmp_path / "meds", STAY)
    (root / name).chmod(0)
    with (
        as_ordinary_user(tmp_path),
        pytest.raises(
            InputError, match=rf"{Path(name).name}: may not be read \(.*\)\. Give yourself permission"
        ),
    ):
        find_dataset(root)


def test_linked_shards_and_splits_are_read_and_hashed(tmp_path):
    rows = {name: [(at, hours(0), "A", None, at)] for at, name in enumerate(("train", "held_out", "tuning"))}
    root = tmp_path / "set"
    for name, shard in rows.items():
        dataset(root if name == "train" else tmp_path / name, shard, shard=f"{name}/0")
    given_splits = pl.DataFrame({"subject_id": [0, 1, 2], "split": list(rows)})
    given_splits.write_parquet(tmp_path / "splits.parquet")
    dataset_before = find_dataset(root)
    files_before = files_of(dataset_before.folders, tmp_path)

    (root / "data" / "held_out").symlink_to(tmp_path / "held_out" / "data" / "held_out")
    (root / "data" / "train" / "1.parquet").symlink_to(tmp_path / "tuning" / "data" / "tuning" / "0.parquet")
    (root / "metadata" / "subject_splits.parquet").symlink_to(tmp_path / "splits.parquet")
    people = pl.read_parquet(read_meds(root, Layout(tmp_path / "meds"), RULES).subjects)

    assert people.select("subject_id", "split").rows() == [(0, "train"), (1, "test"), (2, "val")]
    files_after = files_of(dataset_before.folders, tmp_path)
    assert files_after != files_before
    (tmp_path / "held_out" / "data" / "held_out" / "0.parquet").write_bytes(b"other")
    assert files_of(dataset_before.folders, tmp_path) != files_after


@pytest.mark.parametrize(
    ("dtype", "expected"), [(pl.Float64, [7.1, 16777217.0]), (pl.Float32, [7.1, 16777216.0])]
)
def test_value_keeps_stored_digits(tmp_path, dtype, expected):
    rows = [(1, hours(at), "HEART_RATE", 0.0, 8) for at in range(20)]
    root = dataset(tmp_path / "set", rows)
    values = pl.when(pl.int_range(pl.len()) % 2 == 0).then(7.1).otherwise(16777217.0).cast(dtype)
    rewrite(numeric_value=values)(root)
    events = pl.read_parquet(read_meds(root, Layout(tmp_path / "meds"), RULES).events / "*.parquet")
    assert events["value"].unique().sort().to_list() == expected


@pytest.mark.parametrize(
    ("column", "note"),
    [
        (None, "sets are the encounters of the column hadm_id, which every file has"),
        ("none", "sets are formed by gaps of more than 36 hours, by no column"),
    ],
)
def test_card_notes_rule_of_sets(tmp_path, column, note):
    layout = Layout(tmp_path / "meds")
    read_meds(dataset(tmp_path / "set", STAY), layout, RULES, column=column, gap_hours=36.0)
    assert StepCard.read(layout.cards, "encounters").notes == [note]


def test_sets_by_gaps_need_no_column_that_some_files_lack(tmp_path):
    root = dataset(tmp_path / "set", [(SECRET, hours(0), "A", None, 7)])
    add_shard_without("hadm_id")(root)
    assert find_dataset(root, "none").encounter_column is None
    with pytest.raises(InputError, match=r"has a column hadm_id: 2 of 3 have it\. Name a column"):
        find_dataset(root, "hadm_id")
