"""The input of a run: the user's own tables, or synthetic ones made on the spot."""

from pathlib import Path

from pipelines.sources.mimic.steps import MimicSource, find_source
from pipelines.sources.mimic.tables import READ
from pipelines.synthetic.mimic.write import write_mimic
from schemas.io.outputs import OWN_TABLES, refuse_foreign, remove_outputs
from schemas.layout import Layout
from schemas.settings import Settings


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
