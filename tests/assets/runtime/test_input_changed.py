"""A step refuses an input that differs from the one its raw step hashed."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from assets.resources import Workspace
from assets.sources.common import source_assets
from assets.sources.mimic_meds import mimic_meds
from pipelines.synthetic.instacart import write_instacart
from pipelines.synthetic.mimic.write import write_mimic
from schemas.errors import NestError
from schemas.io import hashing

INSTACART_ASSETS = source_assets("instacart")
MEDS_ASSETS = source_assets("meds")
MIMIC_ASSETS = source_assets("mimic")

ASSETS = [*MIMIC_ASSETS, mimic_meds, *MEDS_ASSETS, *INSTACART_ASSETS]
EXTRACTED = ("mimic_raw", "mimic_subjects", "mimic_encounters", "mimic_events")
CHANGED = "mimic_raw: the files have changed since it was made; materialize it again first"


def materialize(workspace: Workspace, *steps: str) -> set[str]:
    """Materialize these steps and return those that ran."""
    resources = {"workspace": workspace, "pipes": dg.PipesSubprocessClient()}
    result = dg.materialize(ASSETS, resources=resources, selection=list(steps))
    events = result.get_asset_materialization_events()
    return {
        event.asset_key.to_user_string()
        for event in events
        if "unchanged" not in event.materialization.metadata
    }


def assert_refused(workspace: Workspace, step: str, message: str) -> None:
    with pytest.raises(Exception, match=message) as error:
        materialize(workspace, step)
    assert not isinstance(error.value, NestError), "the error must be shown without a traceback"


def cut_in_half(table: Path) -> None:
    lines = gzip.decompress(table.read_bytes()).splitlines(keepends=True)
    table.write_bytes(gzip.compress(b"".join(lines[: len(lines) // 2])))


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of two hospitals, and the data extracted from the first."""
    folder = tmp_path_factory.mktemp("hospitals")
    for name, seed in (("one", 1), ("two", 2)):
        write_mimic(folder / name, folder / "planted", patients=40, seed=seed)
    first = folder / "one"
    workspace = Workspace(data_dir=str(folder / "data"), mimic_dir=str(first), vocab_dir=str(first / "vocab"))
    assert materialize(workspace, *EXTRACTED) == set(EXTRACTED)
    return folder


@pytest.fixture
def hospital(hospitals: Path, tmp_path: Path) -> Callable[..., Workspace]:
    """Return a function that makes a workspace on a copy of the extracted data folder."""
    for name in ("one", "two", "data"):
        shutil.copytree(hospitals / name, tmp_path / name)

    def workspace(name: str = "one", **settings: str) -> Workspace:
        folder = tmp_path / name
        return Workspace(
            data_dir=str(tmp_path / "data"),
            mimic_dir=str(folder),
            vocab_dir=str(folder / "vocab"),
            **settings,
        )

    return workspace


def test_truncated_table_is_refused_by_a_step_after_raw(hospital, tmp_path):
    cut_in_half(tmp_path / "one" / "hosp" / "labevents.csv.gz")
    assert_refused(hospital(), "mimic_events", CHANGED)
    assert materialize(hospital(), *EXTRACTED) == {"mimic_raw", *EXTRACTED}


def test_files_of_another_hospital_are_refused(hospital):
    assert_refused(hospital("two"), "mimic_events", CHANGED)
    assert materialize(hospital("one"), "mimic_events") == set()


def test_changed_rule_with_changed_files_is_refused(hospital, tmp_path):
    cut_in_half(tmp_path / "one" / "hosp" / "labevents.csv.gz")
    assert_refused(hospital(med_link="pharmacy"), "mimic_events", CHANGED)
    assert (tmp_path / "data" / "mimic" / "cards" / "events.card.json").exists(), (
        "existing outputs must be kept"
    )


def test_changed_preset_redoes_the_split_and_no_extraction(hospital, tmp_path):
    events = {file: file.read_bytes() for file in (tmp_path / "data" / "mimic" / "events").iterdir()}
    assert materialize(hospital(preset="paper"), *EXTRACTED) == {"mimic_subjects"}
    assert {file: file.read_bytes() for file in events} == events
    assert materialize(hospital(preset="paper", subjects_per_bucket=10), *EXTRACTED) == {
        "mimic_subjects",
        "mimic_events",
    }
    assert_refused(hospital(preset="paper"), "mimic_vocab", "mimic_drug_lookup")


def test_unreadable_file_is_one_message(hospital, tmp_path, monkeypatch):
    open_path = Path.open

    def refusing(path: Path, *arguments, **options):
        if path.name == "labevents.csv.gz":
            raise PermissionError(13, "Permission denied", str(path))  # root may read all
        return open_path(path, *arguments, **options)

    hashing._cache.clear()
    monkeypatch.setattr(Path, "open", refusing)
    assert_refused(
        hospital(), "mimic_raw", r"labevents.csv.gz: cannot be read or written \(Permission denied\)"
    )


def test_moved_files_are_the_same_input_and_raw_records_the_new_path(hospital, tmp_path):
    card = tmp_path / "data" / "mimic" / "cards" / "raw.card.json"
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    assert materialize(hospital("copy"), "mimic_events") == set()
    assert str(tmp_path / "copy") not in card.read_text()
    assert materialize(hospital("copy"), "mimic_raw") == set()
    assert str(tmp_path / "copy") in card.read_text()


def test_changed_synthetic_input_is_refused(tmp_path):
    workspace = Workspace(data_dir=str(tmp_path), synthetic_patients=40)
    materialize(workspace, *EXTRACTED)
    cut_in_half(tmp_path / "mimic" / "raw" / "hosp" / "labevents.csv.gz")
    assert_refused(workspace, "mimic_events", CHANGED)


@pytest.mark.long
def test_changed_instacart_files_are_refused_after_raw(tmp_path):
    write_instacart(tmp_path / "one", users=30, seed=1)
    write_instacart(tmp_path / "two", users=30, seed=2)
    steps = [f"instacart_{step}" for step in ("raw", "subjects", "encounters", "events")]
    data = str(tmp_path / "data")
    first, second = (Workspace(data_dir=data, instacart_dir=str(tmp_path / name)) for name in ("one", "two"))
    materialize(first, *steps)
    for step in steps[1:]:
        assert materialize(first, step) == set()
        assert_refused(
            second,
            step,
            "instacart_raw: the files have changed since it was made; materialize it again first",
        )


@pytest.mark.long  # every day a truncated table of MIMIC-IV is refused likewise
def test_changed_meds_dataset_is_refused_after_raw(hospital, tmp_path):
    materialize(hospital(), "mimic_drug_lookup", "mimic_code_names", "mimic_meds")
    shutil.move(tmp_path / "data" / "mimic" / "meds", tmp_path / "meds")
    workspace = hospital(meds_dir=str(tmp_path / "meds"))
    steps = [f"meds_{step}" for step in ("raw", "subjects", "encounters", "events")]
    materialize(workspace, *steps)
    next((tmp_path / "meds" / "data").rglob("*.parquet")).unlink()
    for step in steps[1:]:
        assert_refused(
            workspace, step, "meds_raw: the files have changed since it was made; materialize it again first"
        )


def test_run_without_settings_keeps_the_synthetic_data_of_the_folder(tmp_path: Path):
    first = Workspace(data_dir=str(tmp_path), synthetic_patients=12, synthetic_tokens_per_set=20, seed=7)
    assert materialize(first, "mimic_raw") == {"mimic_raw"}
    admissions = tmp_path / "mimic" / "raw" / "hosp" / "admissions.csv.gz"
    patients_of_the_first = admissions.read_bytes()
    assert materialize(Workspace(data_dir=str(tmp_path)), "mimic_raw") == set()
    assert admissions.read_bytes() == patients_of_the_first
    assert materialize(Workspace(data_dir=str(tmp_path), synthetic_patients=13), "mimic_raw") == {"mimic_raw"}
    assert admissions.read_bytes() != patients_of_the_first


def test_synthetic_data_never_replace_what_was_made_from_tables_of_a_user(hospital, tmp_path: Path):
    data = tmp_path / "data" / "mimic"
    hospital()
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    message = "an input of your own, and this run would put synthetic data .* Set NEST_MIMIC_DIR as before"
    assert_refused(Workspace(data_dir=str(tmp_path / "data"), synthetic_patients=12), "mimic_raw", message)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
