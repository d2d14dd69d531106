"""Where the files of one source lie under the data folder, and the only place that knows.

The asset's name, the table's name and the file's name are one: `mimic_events` is `<data>/mimic/events/`.
"""

from dataclasses import dataclass
from pathlib import Path

DOWNLOADS = "downloads"


@dataclass(frozen=True)
class Layout:
    """The folder of one source, e.g. `data/mimic`. Nothing is created here."""

    root: Path

    @property
    def raw(self) -> Path:
        """Synthetic or downloaded input; a user's own input is read where it lies."""
        return self.root / "raw"

    @property
    def downloads(self) -> Path:
        """Input from elsewhere, of all sources: beside their folders."""
        return self.root.parent / DOWNLOADS

    @property
    def extracted(self) -> Path:
        """Tables as they came out of a database, with their own ids: an input, which goes to no object store."""
        return self.downloads / self.root.name

    @property
    def cdm(self) -> Path:
        """A synthetic CDM as its site would have it, a DuckDB database; `raw` is what was extracted out of it."""
        return self.root / "cdm.duckdb"

    @property
    def planted(self) -> Path:
        """What the synthetic generator knows and the data do not say: outcome probabilities."""
        return self.root / "planted.parquet"

    @property
    def cards(self) -> Path:
        """`<step>.card.json` of every step: counts and hashes."""
        return self.root / "cards"

    @property
    def subjects(self) -> Path:
        return self.root / "subjects.parquet"

    @property
    def buckets(self) -> Path:
        """Ranges of subjects, each small enough to be worked on in memory."""
        return self.root / "buckets.parquet"

    @property
    def encounters(self) -> Path:
        return self.root / "encounters.parquet"

    @property
    def events(self) -> Path:
        """A folder of Parquet files, one for each kind and bucket of subjects."""
        return self.root / "events"

    @property
    def drug_lookup(self) -> Path:
        return self.root / "drug_lookup.parquet"

    @property
    def meds(self) -> Path:
        """The source's tables as a MEDS dataset: `data/<split>/*.parquet` and `metadata/`."""
        return self.root / "meds"

    @property
    def vocab(self) -> Path:
        return self.root / "vocab.parquet"

    @property
    def cuts(self) -> Path:
        """The cuts of every (item, unit), of a source whose items are measured in several units."""
        return self.root / "cuts.parquet"

    @property
    def seqset(self) -> Path:
        """A folder of Parquet shards, one for each bucket of subjects, with a card beside each."""
        return self.root / "seqset"

    def cohort(self, name: str) -> Path:
        """labels.parquet, attrition.csv, cohort.lock.yaml."""
        return self.root / "cohorts" / name

    def labels(self, name: str) -> Path:
        return self.cohort(name) / "labels.parquet"

    def leak_audit(self, cohort: str) -> Path:
        """What was found of a cohort's features; not beside its labels, whose content it would be."""
        return self.report(f"{cohort}_leak_audit") / "leak_audit.json"

    def model(self, name: str) -> Path:
        return self.root / "models" / name

    def report(self, name: str) -> Path:
        """metrics.json, predictions.parquet, report.html."""
        return self.root / "reports" / name
