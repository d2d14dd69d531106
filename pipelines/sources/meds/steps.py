"""The steps from a MEDS dataset to events: each reads the dataset's files, calls transforms, writes files."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import polars as pl

from pipelines.corpus import shards
from pipelines.corpus.training_subjects import fitted_on
from pipelines.engine.buckets import Buckets, Spill, write_buckets
from pipelines.engine.executor import each_bucket
from pipelines.events.store import events_file, write_events
from pipelines.sources.meds import rows as rows_of
from pipelines.sources.meds.codes import OTHER, declare
from pipelines.sources.meds.dataset import MedsDataset, find_dataset
from pipelines.sources.meds.inspect import Inspected, refuse_shared, refuse_shared_encounters
from pipelines.sources.meds.splits import splits
from schemas.cards import Flow, StepCard
from schemas.contract import contract_name, read_table, write_table
from schemas.errors import InputError
from schemas.io.atomic import writing
from schemas.io.folders import replace_folder
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.settings import Settings
from schemas.suppress import shown_count
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


def ready_dataset(settings: Settings, written: Path) -> MedsDataset:
    """Return the MEDS dataset the settings name, or the one `mimic_meds` wrote at `written`.

    Raises:
        InputError: there is neither, or it is no MEDS dataset.
    """
    if settings.meds_dir is None and not written.exists():
        raise InputError(
            f"{written}: no such folder. Set NEST_MEDS_DIR to the root of a MEDS dataset, or materialize mimic_meds "
            "first."
        )
    return find_dataset(settings.meds_dir or written, settings.meds_encounter_column)


def inspect_raw(dataset: MedsDataset, layout: Layout) -> StepCard:
    """Say which files there are, their rows and hashes; refuse what MEDS forbids and we cannot mend.

    Raises:
        InputError: there is no row, a subject or code is missing, a time lies in no year of ours, a subject lies in
            two files, a file is damaged.
    """
    counts, unsorted = Counter[str](files=len(dataset.files)), 0
    ids = []
    read = ("subject_id", "time", "code", *(["available_at"] if dataset.is_ours else []))
    for file in dataset.files:
        found = Inspected()
        for rows in dataset.batches_of(file, *read):
            found.add(rows)
        found.refuse_gaps(dataset.name(file))
        found.refuse_years(dataset.name(file))
        counts["rows"] += found.rows
        unsorted += not found.is_sorted
        ids.append(found.subjects())
    if not counts["rows"]:
        raise InputError(
            f"data: 0 rows in {len(dataset.files):,} files ({dataset.root}). Give a dataset with rows, or copy it "
            "again, whole."
        )
    counts["subjects"] = refuse_shared(ids)
    card = StepCard(
        step="raw",
        contract="meds/0.4",
        counts=dict(counts),
        hashes=shards.input_sha256("meds_raw", {dataset.name(file): file for file in dataset.files}),
        warnings=[
            f"data: {unsorted:,} of {len(dataset.files):,} files are not sorted by subject and time, as MEDS asks; "
            "they are sorted on the way in."
        ]
        if unsorted
        else [],
    )
    return shards.write_card(card, layout)


def extract_subjects(
    dataset: MedsDataset, layout: Layout, rules: DataRules, *, subjects_per_bucket: int
) -> StepCard:
    """Write subjects/1 and buckets/1: who, and in which split, which is the dataset's own where it has one."""
    told, everyone = [], []
    for rows in dataset.batches("subject_id", "time", "code"):
        told.append(rows.filter(rows_of.IS_ABOUT_SUBJECT))
        everyone.append(rows.unique("subject_id"))
    found = rows_of.subjects(pl.concat(told + everyone))
    people = found.with_columns(death_date=pl.col("death").dt.truncate("1d"))
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
    found: list[pl.DataFrame] = []
    with _scratch(layout.root / ".encounters.spill") as folder:
        spill = _spill(dataset, layout, folder, "subject_id", "time", "code", "encounter_id", "end")
        work = partial(encounters_of_bucket, dataset, spill, gap_hours)
        for stays in each_bucket("meds_encounters", work, len(spill.buckets)):
            before = sum(part.height for part in found) if dataset.encounter_column is None else 0
            found.append(stays.with_columns(pl.col("encounter_id") + before))
    stays = pl.concat(found)
    refuse_shared_encounters(stays, dataset.encounter_column)
    write_table(stays.to_arrow(), layout.encounters, ENCOUNTERS, made_by=MADE_BY)
    odd = stays["end"].null_count()
    card = StepCard(
        step="encounters",
        contract=contract_name(ENCOUNTERS),
        flows={"encounters": Flow(source_rows=stays.height, kept_rows=stays.height, noted={"no_end": odd})},
        counts={"subjects": stays["subject_id"].n_unique(), "died": int(stays["died"].sum())},
        notes=[_told_rule(dataset, gap_hours)],
        warnings=[
            f"data: {shown_count(odd, stays.height)} of {stays.height:,} encounters have an admission and no discharge "
            "after it; kept, never an index, and they contain no time."
        ]
        if odd
        else [],
    )
    return shards.write_card(card, layout)


def _told_rule(dataset: MedsDataset, gap_hours: float) -> str:
    """Say by which rule sets were made, which may be one nobody chose."""
    if dataset.encounter_column is None:
        return f"sets are formed by gaps of more than {gap_hours:g} hours, by no column"
    return f"sets are the encounters of the column {dataset.encounter_column}, which every file has"


def encounters_of_bucket(dataset: MedsDataset, spill: Spill, gap_hours: float, bucket: int) -> pl.DataFrame:
    """Return encounters/1 of one bucket; those formed by gaps are numbered from 1."""
    rows, by_gaps = spill.read(ROWS, bucket), dataset.encounter_column is None
    if by_gaps:
        rows = rows_of.number_by_gaps(rows, gap_hours=gap_hours)
    return rows_of.encounters(rows, is_ours=dataset.is_ours, by_gaps=by_gaps)


def extract_events(dataset: MedsDataset, layout: Layout, rules: DataRules) -> StepCard:
    """Write events/1: every row with a time that is about neither a subject nor an encounter."""
    columns = (*CORE, *EXTENSIONS) if dataset.is_ours else (*CORE, "encounter_id")
    flow, kinds = Flow(source_rows=0, kept_rows=0), Counter[str]()
    with replace_folder(layout.events) as aside:
        spill = _spill(dataset, layout, aside / "spill", *columns)
        count = len(spill.buckets)
        declared = None if dataset.is_ours else _declare(spill, fitted_on(layout, rules), rules)
        for part, of_kind in each_bucket(
            "meds_events", partial(events_of_bucket, dataset, layout, spill, declared, aside), count
        ):
            flow, kinds = flow + part, kinds + of_kind
        if declared is not None:
            is_coded = pl.col("vocab") != OTHER
            rows_of.refuse_damaged_codes(flow, int(declared.filter(is_coded)["rows"].sum()))
        rows_of.refuse_no_event(flow)
        _fill_up(aside, kinds, count)
        shutil.rmtree(spill.folder)
    # as they were counted file by file, before any was routed to a bucket
    flow = flow.model_copy(update={"source_rows": StepCard.read(layout.cards, "raw").counts["rows"]})
    written = {kind: kinds[kind] for kind in KINDS if kinds[kind]}
    card = StepCard(
        step="events",
        contract=contract_name(EVENTS),
        flows={"rows": flow, **{kind: Flow(source_rows=n, kept_rows=n) for kind, n in written.items()}},
        counts={
            "events": flow.kept_rows,
            **{f"events_{kind}": n for kind, n in written.items()},
            **_count_codes(declared),
        },
    )
    return shards.write_card(card, layout)


def events_of_bucket(
    dataset: MedsDataset,
    layout: Layout,
    spill: Spill,
    declared: pl.DataFrame | None,
    folder: Path,
    bucket: int,
) -> tuple[Flow, Counter[str]]:
    """Write the events of one bucket into `folder`, and return the flow of its rows and the events of each kind."""
    rows = spill.read(ROWS, bucket)
    stays = pl.DataFrame(read_table(layout.encounters, ENCOUNTERS)).filter(spill.buckets.within(bucket))
    if declared is None:
        events, flow = rows_of.our_events(rows, stays if dataset.encounter_column is None else None)
    else:
        events, flow = rows_of.any_events(rows, declared, stays)
    counted = Counter[str]()
    for (kind,), of_kind in events.partition_by("kind", as_dict=True).items():
        write_events(of_kind, folder, str(kind), bucket, made_by=MADE_BY)
        counted[str(kind)] = of_kind.height
    return flow, counted


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Give a folder that is gone afterwards, whatever happens; one a killed run left is removed."""
    try:
        with writing(folder):
            shutil.rmtree(folder, ignore_errors=True)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _spill(dataset: MedsDataset, layout: Layout, folder: Path, *columns: str) -> Spill:
    """Return all rows of a dataset, routed to the buckets of their subjects."""
    spill = Spill(folder, Buckets.read(layout))
    spill.write(ROWS, dataset.batches(*columns))
    return spill


def _declare(spill: Spill, known: pl.DataFrame, rules: DataRules) -> pl.DataFrame:
    """Return what each code is to us, and its rows; valued are those whose deciles can hold `min_count` values each."""
    finite = pl.col("numeric_value").is_finite().fill_null(False)
    fitted = pl.col("subject_id").is_in(known["subject_id"].implode())
    held = (finite & fitted).sum().cast(pl.Int64)
    counted = [
        spill.read(ROWS, bucket).group_by("code").agg(pl.len().alias("rows"), values=held)
        for bucket in range(len(spill.buckets))
    ]
    values = pl.concat(counted).group_by("code").agg(pl.col("rows", "values").sum()).sort("code")
    enough = values.filter(pl.col("values") >= DECILES * rules.min_count)
    return declare(values["code"], enough["code"]).with_columns(values["rows"])


def _count_codes(declared: pl.DataFrame | None) -> dict[str, int]:
    """Return how many codes a prefix declares, how many are valued, and how many are neither."""
    if declared is None:
        return {}
    known, valued = declared["kind"] != "ITEM", declared["is_valued"]
    return {
        "codes_declared": int(known.sum()),
        "codes_valued": int(valued.sum()),
        "codes_of_neither": int((~known & ~valued).sum()),
    }


def _fill_up(folder: Path, kinds: Counter[str], buckets: int) -> None:
    """Give every kind that occurs a file in every bucket."""
    for kind in kinds:
        for bucket in range(buckets):
            if not events_file(folder, kind, bucket).exists():
                empty = pl.DataFrame(schema=pl.Schema(EVENTS))
                write_events(empty, folder, kind, bucket, made_by=MADE_BY)
