"""The input of a run: the user's own tables, or synthetic ones made on the spot."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from pipelines.corpus import build as corpus
from pipelines.inputs.steps import SourceSteps, Step
from pipelines.sources.mimic import steps as mimic
from pipelines.sources.mimic.steps import MimicSource, find_source
from pipelines.sources.mimic.tables import READ, TABLE_OF_KIND
from pipelines.synthetic.mimic.write import write_mimic
from schemas.cards import StepCard
from schemas.io.outputs import OWN_TABLES, refuse_foreign, remove_outputs
from schemas.layout import Layout
from schemas.settings import Settings


class MimicSteps(SourceSteps):
    """MIMIC-IV from its raw tables to shards."""

    CODE = {
        "raw": ("pipelines.sources.mimic.steps", "pipelines.synthetic.mimic.write"),
        "vocab": ("pipelines.corpus.build",),
        "seqset": ("pipelines.corpus.build", "pipelines.sources.mimic.tables"),
        "code_names": ("pipelines.reading.code_names",),
        "other": ("pipelines.sources.mimic.steps",),
    }

    @property
    def source(self) -> MimicSource:
        """The tables of this run: the user's own, or the synthetic ones in the data folder."""
        return _source(self.settings, self.layout)

    @property
    def input_files(self) -> Sequence[Path]:
        return input_files(self.settings, self.layout)

    @property
    def locations(self) -> Mapping[str, Path]:
        return {"found_in": self.source.hosp, "crosswalks": self.source.crosswalks}

    @property
    def dictionary_folders(self) -> Sequence[Path]:
        return [self.source.hosp, self.source.crosswalks]

    def raw(self) -> Step:
        def make() -> StepCard:
            card = mimic.inspect_raw(ready_mimic(self.settings, self.layout), self.layout)
            return card.model_copy(update={"synthetic": self.settings.mimic_dir is None})

        return Step(
            make,
            made_with(self.settings),
            synthetic_unless="" if self.settings.mimic_dir else "NEST_MIMIC_DIR",
        )

    def subjects(self) -> Step:
        rules, size = self.settings.rules, {"subjects_per_bucket": self.settings.subjects_per_bucket}
        return Step(
            lambda: mimic.extract_subjects(self.source, self.layout, rules, **size),
            size | rules.model_dump(include={"pretrain_split"}),
            also_writes=(self.layout.buckets,),
        )

    def encounters(self) -> Step:
        return Step(lambda: mimic.extract_encounters(self.source, self.layout))

    def subject_years(self) -> Step:
        return Step(lambda: mimic.extract_subject_years(self.source, self.layout), reads_splits=False)

    def events(self) -> Step:
        rules = self.settings.rules
        return Step(
            lambda: mimic.extract_events(self.source, self.layout, rules),
            rules.model_dump(include={"med_link"}),
            reads_splits=False,
        )

    def drug_lookup(self) -> Step:
        rules = self.settings.rules
        return Step(
            lambda: mimic.fit_drug_lookup(self.source, self.layout, rules),
            rules.model_dump(include={"fit_on"}),
        )

    def seqset(self) -> Step:
        rules = self.settings.rules
        return Step(
            partial(corpus.write_seqset, self.layout, rules, tables=TABLE_OF_KIND), rules.model_dump()
        )


def ready_mimic(settings: Settings, layout: Layout) -> MimicSource:
    """Return the MIMIC-IV of `NEST_MIMIC_DIR`, or make the synthetic one under `layout.raw`.

    With a user's own input, planted probabilities of an earlier synthetic run are removed: they are of other patients.
    """
    if settings.mimic_dir is None:
        refuse_foreign(layout.raw, hint=OWN_TABLES.format(setting="NEST_MIMIC_DIR"))
        write_mimic(
            layout.raw,
            layout.planted,
            patients=settings.synthetic_patients,
            seed=settings.seed,
            tokens_per_set_median=settings.synthetic_tokens_per_set,
        )
    else:
        remove_outputs(layout.planted)
    return _source(settings, layout)


def _source(settings: Settings, layout: Layout) -> MimicSource:
    return find_source(settings.mimic_dir or layout.raw, settings.vocab_dir or layout.raw / "vocab")


def input_files(settings: Settings, layout: Layout) -> list[Path]:
    """Return what a run starts from: the user's own tables, or the synthetic ones made or to be made.

    Raises:
        InputError: a table or crosswalk of the user's is missing.
    """
    if settings.mimic_dir is None:
        return [layout.raw, layout.planted]
    source = find_source(settings.mimic_dir, settings.vocab_dir or settings.mimic_dir)
    return [source.path(name) for name in READ]


def made_with(settings: Settings) -> dict[str, int]:
    """Return the settings a synthetic input depends on; a user's own depends on none."""
    if settings.mimic_dir is not None:
        return {}
    return settings.model_dump(include={"synthetic_patients", "synthetic_tokens_per_set", "seed"})
