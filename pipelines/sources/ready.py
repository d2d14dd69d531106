"""The input of a run: the user's own tables, or synthetic ones made on the spot."""

from pipelines.mimic import MimicSource, find_source
from pipelines.sources.synthetic.mimic import write_mimic
from schemas.layout import Layout
from schemas.settings import Settings


def ready_mimic(settings: Settings, layout: Layout) -> MimicSource:
    """Return the MIMIC-IV of `NEST_MIMIC_DIR`, or make the synthetic one under `layout.raw`.

    With a user's own input, planted probabilities of an earlier synthetic run are removed: they are of other patients.
    """
    if settings.mimic_dir is None:
        write_mimic(
            layout.raw,
            layout.planted,
            patients=settings.synthetic_patients,
            seed=settings.seed,
            tokens_per_set_median=settings.synthetic_tokens_per_set,
        )
    else:
        layout.planted.unlink(missing_ok=True)
    return find_source(settings.mimic_dir or layout.raw, settings.vocab_dir or layout.raw / "vocab")
