"""The input of a MEDS run: the user's own dataset, or the one written from MIMIC-IV."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import polars as pl

from pipelines.inputs.steps import SourceSteps, Step
from pipelines.sources.meds import steps as meds
from pipelines.sources.meds.code_names import described_codes
from pipelines.sources.meds.dataset import MedsDataset
from schemas.layout import Layout

COLUMN = "meds_encounter_column"


class MedsSteps(SourceSteps):
    """Any MEDS dataset from its files to shards."""

    CODE = {
        "vocab": ("pipelines.corpus.build",),
        "seqset": ("pipelines.corpus.build",),
        "code_names": ("pipelines.reading.code_names", "pipelines.sources.meds.code_names"),
        "other": ("pipelines.sources.meds.steps",),
    }

    @cached_property
    def dataset(self) -> MedsDataset:
        """The dataset of this run: the user's own, or the one `mimic_meds` wrote."""
        return meds.ready_dataset(self.settings, Layout(self.layout.root.with_name("mimic")).meds)

    @property
    def input_files(self) -> Sequence[Path]:
        return self.dataset.folders

    @property
    def locations(self) -> Mapping[str, Path]:
        return {"found_in": self.dataset.root}

    @property
    def dictionary_folders(self) -> Sequence[Path]:
        """The folders of MIMIC-IV too, where `mimic_meds` wrote the dataset."""
        folders = super().dictionary_folders
        if self.settings.meds_dir is not None:
            return folders
        tables = self.settings.mimic_dir or Layout(self.layout.root.with_name("mimic")).raw
        return [tables / "hosp", tables, *folders, tables / "vocab"]

    def named_codes(self) -> tuple[pl.DataFrame | None, list[str]]:
        return described_codes(self.dataset.root)

    def raw(self) -> Step:
        return Step(
            lambda: meds.inspect_raw(self.dataset, self.layout), self.settings.model_dump(include={COLUMN})
        )

    def subjects(self) -> Step:
        rules, size = self.settings.rules, {"subjects_per_bucket": self.settings.subjects_per_bucket}
        return Step(
            lambda: meds.extract_subjects(self.dataset, self.layout, rules, **size),
            {**rules.model_dump(include={"pretrain_split"}), **size},
            also_writes=(self.layout.buckets,),
        )

    def encounters(self) -> Step:
        hours = self.settings.meds_gap_hours
        return Step(
            lambda: meds.extract_encounters(self.dataset, self.layout, gap_hours=hours),
            self.settings.model_dump(include={COLUMN, "meds_gap_hours"}),
        )

    def events(self) -> Step:
        rules = self.settings.rules
        return Step(
            lambda: meds.extract_events(self.dataset, self.layout, rules),
            {
                **rules.model_dump(include={"fit_on", "min_count"}),
                **self.settings.model_dump(include={COLUMN}),
            },
        )
