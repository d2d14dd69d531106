"""The steps from a MEDS dataset to events: each reads the dataset's files, calls transforms, writes files."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import polars as pl

from pipelines.corpus import shards
from pipelines.corpus.training_subjects import training_subjects
from pipelines.engine.buckets import Buckets, Spill, write_buckets
from pipelines.engine.workers import each_bucket
from pipelines.events.store import events_file, write_events
from pipelines.sources.meds import rows as transforms
from pipelines.sources.meds.codes import OTHER_VOCAB, classify_codes
from pipelines.sources.meds.dataset import MedsDataset, find_dataset
from pipelines.sources.meds.inspect import FileChecks, refuse_ambiguous_encounters, refuse_split_subjects
from pipelines.sources.meds.splits import splits
from schemas.cards import Flow, StepCard
from schemas.contract import contract_name, read_table, write_table
from schemas.errors import InputError
from schemas.io.atomic import writing
from schemas.io.folders import replace_folder
from schemas.layout import Layout
from schemas.nouns import with_noun
from schemas.rules import DataRules
from schemas.settings import Settings
from schemas.suppress import suppress_fraction
from schemas.tables.events import ENCOUNTERS, EVENTS, KINDS, SUBJECTS
from schemas.tables.meds import CORE, EXTENSIONS

__all__ = [
    "extract_encounters",
    "extract_events",
    "extract_subjects",
    "find_dataset",
    "inspect_raw",
    "ready_dataset",
]

MADE_BY = "from_meds"
ROWS = "rows"
DECILES = 10


def ready_dataset(settings: Settings, export_folder: Path) -> MedsDataset:
    """Return the MEDS dataset the settings name, or the one `mimic_meds` wrote at `export_folder`.

    Raises:
        InputError: neither exists, or it is not a MEDS dataset.
    """
    if settings.meds_dir is None and not export_folder.exists():
        raise InputError(
            f"{export_folder}: no such folder. Set NEST_MEDS_DIR to the root of a MEDS dataset, or materialize "
            "mimic_meds first."
        )
    return find_dataset(settings.meds_dir or export_folder, settings.meds_encounter_column)


def inspect_raw(dataset: MedsDataset, layout: Layout) -> StepCard:
    """Write the card of the files, their rows and hashes; refuse what MEDS forbids and we cannot repair.

    Raises:
        InputError: the dataset has no rows; a subject or code is missing; a time is outside the accepted years; a
            subject lies in two files; a file is damaged.
    """
    counts, num_unsorted = Counter[str](files=len(dataset.files)), 0
    ids = []
    columns = ("subject_id", "time", "code", *(["available_at"] if dataset.is_nest_export else []))
    for file in dataset.files:
        checks = FileChecks()
        for rows in dataset.file_batches(file, *columns):
            checks.add(rows)
        checks.refuse_missing_values(dataset.name(file))
        checks.refuse_impossible_times(dataset.name(file))
        counts["rows"] += checks.rows
        num_unsorted += not checks.is_sorted
        ids.append(checks.subjects())
    if not counts["rows"]:
        raise InputError(
            f"data: 0 rows in {with_noun(len(dataset.files), 'file')} ({dataset.root}). Give a dataset with rows, or "
            "copy the whole dataset again."
        )
    counts["subjects"] = refuse_split_subjects(ids)
    card = StepCard(
        step="raw",
        contract="meds/0.4",
        counts=dict(counts),
        hashes=shards.input_sha256("meds_raw", {dataset.name(file): file for file in dataset.files}),
        warnings=[
            f"data: {num_unsorted:,} of {len(dataset.files):,} files are not sorted by subject and time, as MEDS "
            "requires; their rows are sorted as they are read."
        ]
        if num_unsorted
        else [],
    )
    return shards.write_card(card, layout)


def extract_subjects(
    dataset: MedsDataset, layout: Layout, rules: DataRules, *, subjects_per_bucket: int
) -> StepCard:
    """Write subjects/1, split as the dataset splits them where it does, and buckets/1."""
    subject_parts, id_parts = [], []
    for rows in dataset.batches("subject_id", "time", "code"):
        subject_parts.append(rows.filter(transforms.IS_ABOUT_SUBJECT))
        id_parts.append(rows.unique("subject_id"))
    subjects = transforms.subjects(pl.concat(subject_parts + id_parts))
    people = subjects.with_columns(death_date=pl.col("death").dt.truncate("1d"))
    split = splits(dataset.splits(), people["subject_id"], rules)
    people = people.with_columns(split)
    write_table(people.to_arrow(), layout.subjects, SUBJECTS, made_by=MADE_BY)
    buckets = write_buckets(people["subject_id"], layout, subjects_per_bucket=subjects_per_bucket)
    card = StepCard(
        step="subjects",
        contract=contract_name(SUBJECTS),
        flows={"subjects": Flow(source_rows=people.height, kept_rows=people.height)},
        counts={
            **{
                f"{column}_{name}": count
                for column in ("split", "pretrain_split")
                for name, count in sorted(people[column].value_counts().iter_rows())
            },
            "buckets": buckets,
        },
    )
    return shards.write_card(card, layout)


def extract_encounters(dataset: MedsDataset, layout: Layout, *, gap_hours: float) -> StepCard:
    """Write encounters/1: by the dataset's encounter column, or by gaps of more than `gap_hours`."""
    parts: list[pl.DataFrame] = []
    with _scratch(layout.root / ".encounters.spill") as folder:
        spill = _spill(dataset, layout, folder, "subject_id", "time", "code", "encounter_id", "end")
        work = partial(extract_bucket_encounters, dataset, spill, gap_hours)
        for stays in each_bucket("meds_encounters", work, len(spill.buckets)):
            num_before = sum(part.height for part in parts) if dataset.encounter_column is None else 0
            parts.append(stays.with_columns(pl.col("encounter_id") + num_before))
    stays = pl.concat(parts)
    refuse_ambiguous_encounters(stays, dataset.encounter_column)
    write_table(stays.to_arrow(), layout.encounters, ENCOUNTERS, made_by=MADE_BY)
    odd = stays["end"].null_count()
    card = StepCard(
        step="encounters",
        contract=contract_name(ENCOUNTERS),
        flows={"encounters": Flow(source_rows=stays.height, kept_rows=stays.height, noted={"no_end": odd})},
        counts={"subjects": stays["subject_id"].n_unique(), "died": int(stays["died"].sum())},
        notes=[_set_rule(dataset, gap_hours)],
        warnings=[
            f"data: {suppress_fraction(odd, stays.height)} encounters have an admission and no "
            "discharge after it; they are kept, are never an index, and contain no time."
        ]
        if odd
        else [],
    )
    return shards.write_card(card, layout)


def _set_rule(dataset: MedsDataset, gap_hours: float) -> str:
    """Return the rule by which sets were formed, since it may be a default."""
    if dataset.encounter_column is None:
        return f"sets are formed by gaps of more than {gap_hours:g} hours, by no column"
    return f"sets are the encounters of the column {dataset.encounter_column}, which every file has"


def extract_bucket_encounters(
    dataset: MedsDataset, spill: Spill, gap_hours: float, bucket: int
) -> pl.DataFrame:
    """Return encounters/1 of one bucket; encounters formed by gaps are numbered from 1."""
    rows, by_gaps = spill.read(ROWS, bucket), dataset.encounter_column is None
    if by_gaps:
        rows = transforms.number_by_gaps(rows, gap_hours=gap_hours)
    return transforms.encounters(rows, is_nest_export=dataset.is_nest_export, by_gaps=by_gaps)


def extract_events(dataset: MedsDataset, layout: Layout, rules: DataRules) -> StepCard:
    """Write events/1: every row with a time that is about neither a subject nor an encounter."""
    columns = (*CORE, *EXTENSIONS) if dataset.is_nest_export else (*CORE, "encounter_id")
    flow, kinds = Flow(source_rows=0, kept_rows=0), Counter[str]()
    with replace_folder(layout.events) as aside:
        spill = _spill(dataset, layout, aside / "spill", *columns)
        count = len(spill.buckets)
        code_table = (
            None
            if dataset.is_nest_export
            else _classify_codes(spill, training_subjects(layout, rules), rules)
        )
        for part, part_kinds in each_bucket(
            "meds_events", partial(extract_bucket_events, dataset, layout, spill, code_table, aside), count
        ):
            flow, kinds = flow + part, kinds + part_kinds
        if code_table is not None:
            is_coded = pl.col("vocab") != OTHER_VOCAB
            transforms.refuse_damaged_codes(flow, int(code_table.filter(is_coded)["rows"].sum()))
        transforms.refuse_without_events(flow)
        _write_missing_files(aside, kinds, count)
        shutil.rmtree(spill.folder)
    # the rows counted file by file, before they were routed to buckets
    flow = flow.model_copy(update={"source_rows": StepCard.read(layout.cards, "raw").counts["rows"]})
    kind_counts = {kind: kinds[kind] for kind in KINDS if kinds[kind]}
    card = StepCard(
        step="events",
        contract=contract_name(EVENTS),
        flows={"rows": flow, **{kind: Flow(source_rows=n, kept_rows=n) for kind, n in kind_counts.items()}},
        counts={
            "events": flow.kept_rows,
            **{f"events_{kind}": n for kind, n in kind_counts.items()},
            **_count_codes(code_table),
        },
    )
    return shards.write_card(card, layout)


def extract_bucket_events(
    dataset: MedsDataset,
    layout: Layout,
    spill: Spill,
    code_table: pl.DataFrame | None,
    folder: Path,
    bucket: int,
) -> tuple[Flow, Counter[str]]:
    """Write the events of one bucket into `folder`, and return the flow of its rows and the events of each kind."""
    rows = spill.read(ROWS, bucket)
    stays = pl.DataFrame(read_table(layout.encounters, ENCOUNTERS)).filter(spill.buckets.is_in(bucket))
    if code_table is None:
        events, flow = transforms.nest_events(rows, stays if dataset.encounter_column is None else None)
    else:
        events, flow = transforms.classified_events(rows, code_table, stays)
    counts = Counter[str]()
    for (kind,), kind_events in events.partition_by("kind", as_dict=True).items():
        write_events(kind_events, folder, str(kind), bucket, made_by=MADE_BY)
        counts[str(kind)] = kind_events.height
    return flow, counts


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Provide an empty folder and remove it afterwards, whatever happens, with what a killed run left there."""
    try:
        with writing(folder):
            shutil.rmtree(folder, ignore_errors=True)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _spill(dataset: MedsDataset, layout: Layout, folder: Path, *columns: str) -> Spill:
    """Route all rows of a dataset to the buckets of their subjects."""
    spill = Spill(folder, Buckets.read(layout))
    spill.write(ROWS, dataset.batches(*columns))
    return spill


def _classify_codes(spill: Spill, training_subjects: pl.DataFrame, rules: DataRules) -> pl.DataFrame:
    """Return `classify_codes` with the rows of each code; values are used where each decile can hold `min_count`."""
    is_finite = pl.col("numeric_value").is_finite().fill_null(False)
    is_training = pl.col("subject_id").is_in(training_subjects["subject_id"].implode())
    num_values = (is_finite & is_training).sum().cast(pl.Int64)
    bucket_counts = [
        spill.read(ROWS, bucket).group_by("code").agg(pl.len().alias("rows"), values=num_values)
        for bucket in range(len(spill.buckets))
    ]
    values = pl.concat(bucket_counts).group_by("code").agg(pl.col("rows", "values").sum()).sort("code")
    enough = values.filter(pl.col("values") >= DECILES * rules.min_count)
    return classify_codes(values["code"], enough["code"]).with_columns(values["rows"])


def _count_codes(code_table: pl.DataFrame | None) -> dict[str, int]:
    """Return how many codes have a known prefix, how many have values, and how many neither."""
    if code_table is None:
        return {}
    is_known, is_valued = code_table["kind"] != "ITEM", code_table["is_valued"]
    return {
        "codes_declared": int(is_known.sum()),
        "codes_valued": int(is_valued.sum()),
        "codes_of_neither": int((~is_known & ~is_valued).sum()),
    }


def _write_missing_files(folder: Path, kinds: Counter[str], buckets: int) -> None:
    """Write an empty file for each bucket in which a kind of the dataset is missing."""
    for kind in kinds:
        for bucket in range(buckets):
            if not events_file(folder, kind, bucket).exists():
                empty = pl.DataFrame(schema=pl.Schema(EVENTS))
                write_events(empty, folder, kind, bucket, made_by=MADE_BY)
