"""Write the made-up MIMIC-IV: block by block, compressed block by block, put in place at the end."""

import io
import logging
import time
import zlib
from collections import Counter
from pathlib import Path

import polars as pl
import pyarrow as pa

from pipelines.sources.synthetic.block import draw_block, planted_rows
from pipelines.sources.synthetic.catalog import CROSSWALKS, catalog, read
from pipelines.sources.synthetic.ids import BLOCK_PATIENTS
from pipelines.sources.synthetic.tables import hosp_tables
from schemas.cards import StepCard
from schemas.contract import write_table
from schemas.errors import InputError

log = logging.getLogger("nest")

TABLES = (
    "patients",
    "admissions",
    "diagnoses_icd",
    "procedures_icd",
    "labevents",
    "emar",
    "prescriptions",
)
PLANTED = pa.schema(
    [
        pa.field("subject_id", pa.int64(), nullable=False),
        pa.field("encounter_id", pa.int64(), nullable=False),
        pa.field("cohort", pa.string(), nullable=False),
        pa.field("probability", pa.float64(), nullable=False),
    ],
    metadata={"contract": "planted/1"},
)
CODED_TOKENS = 14  # of the median set: diagnoses and procedures, which the density leaves alone
DENSITY_ONE_TOKENS = 120


def write_mimic(
    out: Path, planted: Path, *, patients: int, seed: int, tokens_per_set_median: int = DENSITY_ONE_TOKENS
) -> StepCard:
    """Write `out`/hosp and `out`/vocab in the real layouts, and the true outcome probabilities to `planted`.

    The same arguments give the same bytes. Nothing under its final name is touched before all is written.

    Args:
        planted: Parquet, contract planted/1; kept out of `out` so that no model can read it by accident.
        patients: those with at least one stay.
        tokens_per_set_median: how much is measured and given; real MIMIC-IV has about 228.

    Raises:
        InputError: `patients` or `tokens_per_set_median` is below 1, or the disk refuses.
    """
    if patients < 1 or tokens_per_set_median < 1:
        raise InputError("synthetic MIMIC-IV: patients and tokens per set are whole numbers from 1 on.")
    try:
        return _write(out, planted, patients, seed, tokens_per_set_median)
    except OSError as error:
        raise InputError(
            f"synthetic MIMIC-IV: cannot write {error.filename or out} "
            f"({error.strerror or type(error).__name__}). "
            "Free space or mend the folder's permissions and run again; earlier files are untouched."
        ) from None


def _write(out: Path, planted: Path, patients: int, seed: int, tokens_per_set_median: int) -> StepCard:
    density = max(tokens_per_set_median - CODED_TOKENS, 1) / (DENSITY_ONE_TOKENS - CODED_TOKENS)
    paths = {name: out / "hosp" / f"{name}.csv.gz" for name in TABLES}
    paths |= {name: out / "vocab" / f"{name}.csv.gz" for name in CROSSWALKS}
    parts = {name: path.with_name(f".{path.name}.part") for name, path in paths.items()}
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    rows: Counter[str] = Counter()
    truths, began = [], time.monotonic()
    try:
        for name in TABLES:
            parts[name].write_bytes(b"")
        for first in range(0, patients, BLOCK_PATIENTS):
            count = min(BLOCK_PATIENTS, patients - first)
            block = draw_block(catalog(), first // BLOCK_PATIENTS, count, density, seed)
            for name, table in hosp_tables(catalog(), block, seed).items():
                with parts[name].open("ab") as file:
                    file.write(_compressed(table, header=first == 0))
                rows[name] += table.height
            truths.append(planted_rows(block))
            _report(first + count, patients, began)
        for name in CROSSWALKS:
            table = read(name)
            parts[name].write_bytes(_compressed(table, header=True))
            rows[name] = table.height
        for name, path in paths.items():
            parts[name].replace(path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    truth = pl.concat(truths).sort("cohort", "subject_id", "encounter_id")
    write_table(truth.to_arrow(), planted, PLANTED, made_by="synthetic MIMIC-IV")
    return StepCard(step="mimic_synthetic", contract="planted/1", counts={"patients_asked": patients, **rows})


def _compressed(table: pl.DataFrame, *, header: bool) -> bytes:
    """Return the table as CSV in a gzip member of its own; zlib's header carries no time."""
    text = io.BytesIO()
    table.write_csv(text, include_header=header)
    packer = zlib.compressobj(level=1, wbits=31)
    return packer.compress(text.getbuffer()) + packer.flush()


def _report(done: int, patients: int, began: float) -> None:
    elapsed = time.monotonic() - began
    left = elapsed / done * (patients - done)
    if elapsed + left > 10:
        log.info(
            "synthetic MIMIC-IV: %s of %s patients, %.0f/s, %.0f s left",
            f"{done:,}",
            f"{patients:,}",
            done / elapsed,
            left,
        )
