"""The input of an Instacart run: the user's own files, or synthetic ones made on the spot."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.inputs.steps import SourceSteps, Step
from pipelines.sources.instacart import corpus as instacart_corpus
from pipelines.sources.instacart import steps as instacart
from pipelines.sources.instacart.baskets import write_baskets
from pipelines.sources.instacart.tables import READ, InstacartSource, find_source
from pipelines.synthetic.instacart import write_instacart
from schemas.cards import StepCard
from schemas.io.outputs import OWN_TABLES, refuse_foreign
from schemas.layout import Layout
from schemas.settings import Settings


class InstacartSteps(SourceSteps):
    """Instacart from its raw files to shards."""

    CODE = {
        "raw": ("pipelines.sources.instacart.steps", "pipelines.synthetic.instacart.write"),
        "vocab": ("pipelines.sources.instacart.corpus",),
        "seqset": ("pipelines.sources.instacart.corpus",),
        "baskets": ("pipelines.sources.instacart.baskets",),
        "other": ("pipelines.sources.instacart.steps",),
    }

    @property
    def source(self) -> InstacartSource:
        """The files of this run: the user's own, or the synthetic ones in the data folder."""
        return find_source(self.settings.instacart_dir or self.layout.raw)

    @property
    def input_files(self) -> Sequence[Path]:
        return input_files(self.settings, self.layout)

    @property
    def locations(self) -> Mapping[str, Path]:
        return {"found_in": self.source.folder}

    def raw(self) -> Step:
        def make() -> StepCard:
            card = instacart.inspect_raw(ready_instacart(self.settings, self.layout), self.layout)
            return card.model_copy(update={"synthetic": self.settings.instacart_dir is None})

        return Step(
            make,
            made_with(self.settings),
            synthetic_unless="" if self.settings.instacart_dir else "NEST_INSTACART_DIR",
        )

    def subjects(self) -> Step:
        size = {"subjects_per_bucket": self.settings.subjects_per_bucket}
        return Step(
            lambda: instacart.extract_subjects(self.source, self.layout, **size),
            size,
            also_writes=(self.layout.buckets,),
        )

    def encounters(self) -> Step:
        return Step(lambda: instacart.extract_encounters(self.source, self.layout))

    def events(self) -> Step:
        return Step(lambda: instacart.extract_events(self.source, self.layout))

    def vocab(self) -> Step:
        rules = self.settings.rules
        return Step(lambda: instacart_corpus.fit_vocab(self.layout, rules), rules.model_dump())

    def seqset(self) -> Step:
        rules = self.settings.rules
        return Step(lambda: instacart_corpus.write_seqset(self.layout, rules), rules.model_dump())

    def baskets(self) -> Step:
        return Step(lambda: write_baskets(self.layout), reads_splits=False)


def ready_instacart(settings: Settings, layout: Layout) -> InstacartSource:
    """Return the Instacart of `NEST_INSTACART_DIR`, or make the synthetic one under `layout.raw`."""
    if settings.instacart_dir is None:
        refuse_foreign(layout.raw, hint=OWN_TABLES.format(setting="NEST_INSTACART_DIR"))
        write_instacart(layout.raw, users=settings.synthetic_users, seed=settings.seed)
    return find_source(settings.instacart_dir or layout.raw)


def input_files(settings: Settings, layout: Layout) -> list[Path]:
    """Return what a run starts from: the user's own files, or the folder of the synthetic ones, made or to be made.

    Raises:
        InputError: a file of the user's is missing.
    """
    if settings.instacart_dir is None:
        return [layout.raw]
    source = find_source(settings.instacart_dir)
    return [source.path(name) for name in READ]


def made_with(settings: Settings) -> dict[str, int]:
    """Return the settings a synthetic input depends on; a user's own depends on none."""
    return {} if settings.instacart_dir else settings.model_dump(include={"synthetic_users", "seed"})
