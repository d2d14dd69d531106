"""Paths of the files of a source below the data folder; no other module knows them.

Assets, tables and files have the same names: `mimic_events` is `<data>/mimic/events/`.
"""

from dataclasses import dataclass
from pathlib import Path

DOWNLOADS, LOGS = "downloads", "logs"
"""Folders beside those of the sources: fetched input, and the messages of each run."""


@dataclass(frozen=True)
class Layout:
    """Paths in the folder of one source, e.g. `data/mimic`; this class creates no file."""

    root: Path

    @property
    def raw(self) -> Path:
        """Synthetic or downloaded input; a user's own input is read in place."""
        return self.root / "raw"

    @property
    def downloads(self) -> Path:
        """Downloaded input of all sources, beside their folders."""
        return self.root.parent / DOWNLOADS

    @property
    def extracted(self) -> Path:
        """Tables extracted from a database, with the original ids: an input that is never copied to an object store."""
        return self.downloads / self.root.name

    @property
    def cdm(self) -> Path:
        """A synthetic CDM as a site has it, in a DuckDB database; `raw` holds the tables extracted from it."""
        return self.root / "cdm.duckdb"

    @property
    def planted(self) -> Path:
        """Outcome probabilities known to the synthetic generator but not part of the data."""
        return self.root / "planted.parquet"

    @property
    def cards(self) -> Path:
        """Folder with the `<step>.card.json` of every step: counts and hashes."""
        return self.root / "cards"

    @property
    def subjects(self) -> Path:
        return self.root / "subjects.parquet"

    @property
    def buckets(self) -> Path:
        """Table of ranges of subjects, each small enough to be processed in memory."""
        return self.root / "buckets.parquet"

    @property
    def encounters(self) -> Path:
        return self.root / "encounters.parquet"

    @property
    def events(self) -> Path:
        """Folder of Parquet files, one per kind of event and bucket of subjects."""
        return self.root / "events"

    @property
    def drug_lookup(self) -> Path:
        return self.root / "drug_lookup.parquet"

    @property
    def subject_years(self) -> Path:
        """The real years of each patient's records, for a source that shifts its dates."""
        return self.root / "subject_years.parquet"

    @property
    def meds(self) -> Path:
        """The source's tables as a MEDS dataset: `data/<split>/*.parquet` and `metadata/`."""
        return self.root / "meds"

    @property
    def vocab(self) -> Path:
        return self.root / "vocab.parquet"

    @property
    def code_names(self) -> Path:
        """Names of codes, from the dictionaries at hand; beside the vocabulary, of which it changes nothing."""
        return self.root / "code_names.parquet"

    @property
    def cuts(self) -> Path:
        """Decile cuts per (item, unit), for a source whose items are measured in several units."""
        return self.root / "cuts.parquet"

    @property
    def seqset(self) -> Path:
        """Folder of Parquet shards, one per bucket of subjects, with a card beside each."""
        return self.root / "seqset"

    @property
    def new_patients(self) -> "Layout":
        """The tables and shards of new patients, under the vocabulary of this folder, and their scores."""
        return Layout(self.root / "new")

    def scores(self, cohort: str) -> Path:
        """Folder of the scores of new patients in a cohort, one file a day."""
        return self.new_patients.root / "scores" / cohort

    @property
    def baskets(self) -> Path:
        """Folder of Parquet files, one per bucket of users: baskets by product, where sets are baskets."""
        return self.root / "baskets"

    def next_baskets(self, question: str) -> Path:
        """Folder with a folder for each system that was asked this question: its lists, scores and trials."""
        return self.root / "next_baskets" / question

    def next_basket_report(self, question: str) -> Path:
        """Folder with the comparison of the systems that were asked this question."""
        return self.report("instacart_next_basket") / question

    def cohort(self, name: str) -> Path:
        """Folder with labels.parquet, attrition.csv and cohort.lock.yaml."""
        return self.root / "cohorts" / name

    def labels(self, name: str) -> Path:
        return self.cohort(name) / "labels.parquet"

    def leak_audit(self, cohort: str) -> Path:
        """The findings about a cohort's features; not beside its labels, so as not to count as their content."""
        return self.report(f"{cohort}_leak_audit") / "leak_audit.json"

    def model(self, name: str) -> Path:
        return self.root / "models" / name

    def report(self, name: str) -> Path:
        """Folder with metrics.json, predictions.parquet and report.html."""
        return self.root / "reports" / name
