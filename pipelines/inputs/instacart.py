"""The input of an Instacart run: the user's own files, or synthetic ones made on the spot."""

from pathlib import Path

from pipelines.sources.instacart.tables import READ, InstacartSource, find_source
from pipelines.synthetic.instacart import write_instacart
from schemas.io.outputs import OWN_TABLES, refuse_foreign
from schemas.layout import Layout
from schemas.settings import Settings


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
