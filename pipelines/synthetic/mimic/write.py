"""Writes the synthetic MIMIC-IV: block by block into temporary files, which are put in place at the end."""

from collections import Counter
from pathlib import Path

import polars as pl

from pipelines.engine.progress import StepProgress
from pipelines.sources.mimic.checksums import ROWS, write_rows
from pipelines.sources.mimic.tables import DICTIONARIES
from pipelines.synthetic.catalog import CROSSWALKS, lab_items, read
from pipelines.synthetic.mimic.compress import compress_csv, compressed_blocks
from pipelines.synthetic.mimic.tables import TABLES
from pipelines.synthetic.mimic.volume import DEFAULT_TOKENS_PER_SET, FULL, Volume, volume_of
from schemas.cards import StepCard
from schemas.contract import contract_name, write_table
from schemas.errors import InputError
from schemas.io.outputs import refuse_foreign, refuse_foreign_files, refuse_other_table, replace_outputs
from schemas.tables.planted import PLANTED


def write_mimic(
    out: Path,
    truth_file: Path,
    *,
    patients: int,
    seed: int,
    tokens_per_set_median: int = DEFAULT_TOKENS_PER_SET,
    full: bool = False,
    workers: int = 1,
) -> StepCard:
    """Write `out`/hosp and `out`/vocab in the real layouts, and the true outcome probabilities to `truth_file`.

    The same arguments give the same bytes, for any number of `workers`. Final files are replaced only when all are
    written; leftovers of a killed run are replaced by the next.

    Args:
        truth_file: Parquet, contract planted/3; outside of the raw folders so that no model reads it by accident.
        patients: number of patients with at least one stay.
        tokens_per_set_median: the volume of measurements and drugs; real MIMIC-IV has about 228.
        full: write as many rows per patient as the real MIMIC-IV v3.1, instead of a given median.
        workers: number of processes; 1: this process only.

    Raises:
        InputError: `patients`, `tokens_per_set_median` or `workers` is below 1, or a worker was killed.
        WriteError: the disk refuses; earlier files are untouched.
    """
    if min(patients, tokens_per_set_median, workers) < 1:
        raise InputError("synthetic MIMIC-IV: patients, tokens per set and workers must be at least 1.")
    volume = FULL if full else volume_of(tokens_per_set_median)
    return _write(out, truth_file, patients, volume, seed, workers)


def _write(out: Path, truth_file: Path, patients: int, volume: Volume, seed: int, workers: int) -> StepCard:
    paths = {name: out / "hosp" / f"{name}.csv.gz" for name in (*TABLES, *DICTIONARIES)}
    paths |= {name: out / "vocab" / f"{name}.csv.gz" for name in CROSSWALKS}
    rows: Counter[str] = Counter()
    truths, progress = [], StepProgress("synthetic MIMIC-IV", "patients", patients)
    for folder in (out / "hosp", out / "vocab"):
        refuse_foreign(folder)
    refuse_foreign_files([out / ROWS])
    refuse_other_table(truth_file, contract_name(PLANTED))
    with replace_outputs(list(paths.values())) as part_files:
        parts = dict(zip(paths, part_files, strict=True))
        for name in TABLES:
            parts[name].write_bytes(b"")
        for block in compressed_blocks(patients, volume, seed, workers):
            for name, member in block.members.items():
                with parts[name].open("ab") as file:
                    file.write(member)
            rows.update(block.rows)
            truths.append(block.planted_rows)
            progress.advance(block.patients)
        for name in (*DICTIONARIES, *CROSSWALKS):
            table = lab_items() if name == "d_labitems" else read(name)
            parts[name].write_bytes(compress_csv(table, header=True))
            rows[name] = table.height
    write_rows(out, {path: rows[name] for name, path in paths.items()})
    _write_planted(truths, truth_file)
    return StepCard(
        step="mimic_synthetic", contract=contract_name(PLANTED), counts={"patients_asked": patients, **rows}
    )


def _write_planted(truths: list[pl.DataFrame], truth_file: Path) -> None:
    """Write the planted rows sorted; 60 bytes a row are held until here, 70 MB at the size of MIMIC-IV."""
    truth = pl.concat(truths).sort("cohort", "subject_id", "encounter_id")
    as_text = truth.with_columns(pl.col("cohort").cast(pl.String))
    write_table(as_text.to_arrow(), truth_file, PLANTED, made_by="synthetic MIMIC-IV")
