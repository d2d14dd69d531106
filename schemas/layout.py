"""Paths of the files of a source below the data folder; no other module knows them.

Assets, tables and files have the same names: `mimic_events` is `<data>/mimic/events/`.
"""

from dataclasses import dataclass
from pathlib import Path

DOWNLOADS, LOGS = "downloads", "logs"
"""Folders beside those of the sources: fetched input, and the messages of each run."""
EXPERIMENTS = "experiments"
"""Folder of a source with a folder for each named experiment."""


@dataclass(frozen=True)
class Layout:
    """Paths in the folder of one source, e.g. `data/mimic`, or of an experiment on it; this class creates no file.

    An experiment, e.g. `data/mimic/experiments/wide`, has models, reports and cards of its own. Its tables and labels
    are the source's.
    """

    root: Path

    @property
    def tables(self) -> Path:
        """Folder of the source, where tables and labels are."""
        return source_folder(self.root)

    @property
    def source(self) -> str:
        """Name of the source."""
        return self.tables.name

    @property
    def is_experiment(self) -> bool:
        """Whether this is the folder of an experiment."""
        return self.root != self.tables

    @property
    def of_source(self) -> "Layout":
        """The layout of the source itself, of whose tables an experiment is made."""
        return Layout(self.tables)

    def experiment(self, name: str) -> "Layout":
        """Return the layout of a named experiment on this source."""
        return Layout(self.root / EXPERIMENTS / name)

    @property
    def experiments(self) -> list[str]:
        """The names of the experiments on this source that have a model or a page."""
        return sorted(folder.parent.name for folder in (self.tables / EXPERIMENTS).glob("*/cards"))

    @property
    def raw(self) -> Path:
        """Synthetic or downloaded input; a user's own input is read in place."""
        return self.tables / "raw"

    @property
    def downloads(self) -> Path:
        """Downloaded input of all sources, beside their folders."""
        return self.tables.parent / DOWNLOADS

    @property
    def extracted(self) -> Path:
        """Tables extracted from a database, with the original ids: an input that is never copied to an object store."""
        return self.downloads / self.source

    @property
    def cdm(self) -> Path:
        """A synthetic CDM as a site has it, in a DuckDB database; `raw` holds the tables extracted from it."""
        return self.tables / "cdm.duckdb"

    @property
    def planted(self) -> Path:
        """Outcome probabilities known to the synthetic generator but not part of the data."""
        return self.tables / "planted.parquet"

    @property
    def cards(self) -> Path:
        """Folder with the `<step>.card.json` of every step: counts and hashes."""
        return self.root / "cards"

    @property
    def subjects(self) -> Path:
        return self.tables / "subjects.parquet"

    @property
    def buckets(self) -> Path:
        """Table of ranges of subjects, each small enough to be processed in memory."""
        return self.tables / "buckets.parquet"

    @property
    def encounters(self) -> Path:
        return self.tables / "encounters.parquet"

    @property
    def events(self) -> Path:
        """Folder of Parquet files, one per kind of event and bucket of subjects."""
        return self.tables / "events"

    @property
    def drug_lookup(self) -> Path:
        return self.tables / "drug_lookup.parquet"

    @property
    def subject_years(self) -> Path:
        """The real years of each patient's records, for a source that shifts its dates."""
        return self.tables / "subject_years.parquet"

    @property
    def meds(self) -> Path:
        """The source's tables as a MEDS dataset: `data/<split>/*.parquet` and `metadata/`."""
        return self.tables / "meds"

    @property
    def vocab(self) -> Path:
        return self.tables / "vocab.parquet"

    @property
    def code_names(self) -> Path:
        """Names of codes, from the dictionaries at hand; beside the vocabulary, of which it changes nothing."""
        return self.tables / "code_names.parquet"

    @property
    def cuts(self) -> Path:
        """Decile cuts per (item, unit), for a source whose items are measured in several units."""
        return self.tables / "cuts.parquet"

    @property
    def seqset(self) -> Path:
        """Folder of Parquet shards, one per bucket of subjects, with a card beside each."""
        return self.tables / "seqset"

    @property
    def new_patients(self) -> "Layout":
        """The tables and shards of new patients, under the vocabulary of this folder, and their scores."""
        return Layout(self.tables / "new")

    def scores(self, cohort: str) -> Path:
        """Folder of the scores of new patients in a cohort, one file a day."""
        return self.new_patients.root / "scores" / cohort

    @property
    def baskets(self) -> Path:
        """Folder of Parquet files, one per bucket of users: baskets by product, where sets are baskets."""
        return self.tables / "baskets"

    def next_baskets(self, question: str) -> Path:
        """Folder with a folder for each system that was asked this question: its lists, scores and trials."""
        return self.root / "next_baskets" / question

    def next_basket_report(self, question: str) -> Path:
        """Folder with the comparison of the systems that were asked this question."""
        return self.report("instacart_next_basket") / question

    def cohort(self, name: str) -> Path:
        """Folder with labels.parquet, attrition.csv and cohort.lock.yaml."""
        return self.tables / "cohorts" / name

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


def source_folder(root: Path) -> Path:
    """Return the folder of the source of an experiment's folder; a source's folder is its own."""
    return root.parents[1] if root.parent.name == EXPERIMENTS else root
