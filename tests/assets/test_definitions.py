"""The definitions in the UI: every asset has a description, an owner and checks."""

from pathlib import Path

import dagster as dg
import pytest

from assets.cohorts import COHORT_FOLDER, described, labels_asset, unreadable_cohort_asset
from assets.definitions import build, defs
from assets.metadata import card_metadata, column_schema
from nest_model.evidence.rows import EvidenceAssets, all_rows
from nest_model.next_set.system import names as system_names
from schemas.cards import Flow, StepCard
from schemas.code_names import CodeNames
from schemas.cohort import parse_cohort, read_folder
from schemas.sources import sources
from schemas.tables.events import EVENTS

REPOSITORY = defs().get_repository_def()
SPECS = sorted(REPOSITORY.asset_graph.asset_nodes, key=lambda node: node.key)
TASKS = ["mortality", "readmission", "long_stay", "icd_chapter", "icd_category"]
PAEDIATRIC = ["recurrent_aom", "autism", "readmission_30d_home"]
COHORTS = [f"{source}_{task}" for source in ("mimic", "meds") for task in TASKS]
COHORTS += ["mimic_readmission_any", *(f"pcornet_{task}" for task in PAEDIATRIC)]


@pytest.mark.parametrize("node", SPECS, ids=lambda node: node.key.to_user_string())
def test_every_asset_has_a_description_a_group_a_kind_and_an_owner(node):
    assert node.description
    assert node.group_name != "default"
    assert node.kinds
    assert node.owners


def test_asset_names_are_the_documented_ones():
    names = {node.key.to_user_string() for node in SPECS}
    tables = {"raw", "subjects", "encounters", "events", "vocab", "seqset", "nest", "report", "code_names"}
    chains = {f"{source}_{table}" for source in ("mimic", "meds", "pcornet") for table in tables}
    per_cohort = {
        f"{cohort}_{step}"
        for cohort in COHORTS
        for step in ("labels", "leak_audit", "nest", "lightgbm", "yardsticks", "report")
    }
    classes = {"mimic_icd_chapter", "mimic_icd_category", "meds_icd_chapter", "meds_icd_category"}
    few_shot = {f"{cohort}_few_shot" for cohort in COHORTS if cohort not in classes}
    fetch_assets = {"mimic_demo_files", "crosswalk_files"}
    baskets = {
        f"instacart_{table}" for table in (tables - {"report", "code_names"}) | {"baskets", "next_basket"}
    }
    baskets |= {f"instacart_system_{system}" for system in system_names()}
    rows, tasks = [row for row in all_rows() if row.is_default], sources()["mimic"].evidence.cohorts
    evidence = {f"mimic_evidence_{name}" for name in ("inputs", "page", "removals")} | {
        f"mimic_evidence_{row.name}" for row in rows if row.is_pretrained_anew
    }
    evidence |= {
        EvidenceAssets("mimic").cell(row, task) for row in rows for task in row.tasks(tasks)
    } - per_cohort
    assert len(evidence) > 90
    study = ("inputs", "objective_msm", "objective_mlm", "objective_both", "page")
    evidence |= {f"pcornet_evidence_{name}" for name in study}
    others = {"mimic_drug_lookup", "mimic_meds", "mimic_subject_years"}
    assert names == chains | others | per_cohort | few_shot | fetch_assets | baskets | evidence


def test_definitions_load_as_the_ui_loads_them():
    REPOSITORY.load_all_definitions()  # a job and an asset of one name, for example, conflict only here


def test_groups_of_mimic_full_hang_together_with_the_evidence_by_three_assets():
    """The UI draws each neighbour of a group on the group's page, where a hundred rows hid the group itself."""
    graph = REPOSITORY.asset_graph
    in_full = REPOSITORY.get_job("mimic_full").asset_layer.executable_asset_keys
    neighbours = {child.to_user_string() for key in in_full for child in graph.get(key).child_keys}
    evidence = {name for name in neighbours if name.startswith("mimic_evidence_")}
    assert evidence == {f"mimic_evidence_{name}" for name in ("inputs", "page", "removals")}


def test_job_names_are_the_documented_ones():
    chains = {
        f"{source}_{job}"
        for source in ("mimic", "meds", "pcornet")
        for job in ("full", "etl", "pretrain", "finetune")
    }
    other_jobs = {
        "fetch_mimic_demo",
        "fetch_crosswalks",
        "mimic_evidence",
        "pcornet_evidence",
        "instacart_full",
        "instacart_etl",
        "instacart_pretrain",
    }
    cohorts = {f"one_cohort_{cohort}" for cohort in COHORTS}
    names = {name for name in REPOSITORY.job_names if not name.startswith("__")}
    assert names == chains | other_jobs | cohorts
    assert min(cohorts) > "mimic_full", "the UI sorts by name: the jobs of the first run must come first"


def test_each_cohort_file_has_a_job_also_an_invalid_one(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(GOOD.replace("cohort: mimic_mortality", "cohort: mine"))
    (tmp_path / "broken.yaml").write_text(GOOD.replace("index:", "indexes:"))
    repository = build(tmp_path).get_repository_def()

    jobs = [name for name in repository.job_names if name.startswith("one_cohort_")]
    assert jobs == ["one_cohort_mine", "one_cohort_broken"]
    layer = repository.get_job("one_cohort_mine").asset_layer
    asset_names = {key.to_user_string() for key in layer.executable_asset_keys}
    assert asset_names == {
        "mine_labels",
        "mine_leak_audit",
        "mine_nest",
        "mine_lightgbm",
        "mine_yardsticks",
        "mine_report",
    }
    checks = {
        check.name for check in repository.get_job("one_cohort_mine").asset_layer.asset_graph.asset_check_keys
    }
    assert {"contract", "no_feature_after_prediction"} <= checks


@pytest.mark.parametrize("source", ["mimic", "meds", "pcornet"])
def test_full_job_selects_all_assets_of_one_source(source):
    full = REPOSITORY.get_job(f"{source}_full").asset_layer.executable_asset_keys
    groups = {f"{source}_{group}" for group in ("etl", "cohorts", "models", "report")}
    assert f"{source}_raw" in {key.to_user_string() for key in full}
    assert full == {node.key for node in SPECS if node.group_name in groups}


GOOD = (COHORT_FOLDER / "mimic_mortality.yaml").read_text()
BAD_FILES = {
    "a wrong key": ("broken.yaml", GOOD.replace("predict_at:", "predicts_at:"), "predicts_at"),
    "a copy whose name was not changed": ("zz_copy.yaml", GOOD, "mimic_mortality.yaml; give each file"),
    "a copy that comes first by name": ("aa_copy.yaml", GOOD, "mimic_mortality.yaml; give each file"),
    "broken beside the good one": ("mimic_mortality.yml", GOOD.replace("index:", "indexes:"), "indexes"),
    "a name that is taken": (
        "taken.yaml",
        GOOD.replace("cohort: mimic_mortality", "cohort: mimic"),
        "mimic_nest",
    ),
    "a blank in the file's name": ("my cohort.yaml", GOOD.replace("outcome:", "outcomes:"), "outcomes"),
    "letters beyond ASCII": ("Übersicht.yaml", GOOD.replace("outcome:", "outcomes:"), "outcomes"),
}


@pytest.mark.parametrize("fault", BAD_FILES, ids=list(BAD_FILES))
def test_invalid_cohort_file_is_one_failing_asset_and_the_rest_loads(fault: str, tmp_path: Path):
    name, text, message = BAD_FILES[fault]
    (tmp_path / "mimic_mortality.yaml").write_text(GOOD)
    (tmp_path / name).write_text(text)

    repository = build(tmp_path).get_repository_def()

    cohorts, bad = read_folder(tmp_path, {"mimic_nest"})
    assert [cohort.cohort for cohort in cohorts] == ["mimic_mortality"]
    ((asset, error),) = bad.items()
    keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    assert {
        f"{asset}_cannot_be_read",
        "mimic_mortality_labels",
        "mimic_mortality_nest",
        "mimic_report",
    } <= keys
    assert message in str(error)
    assert str(error).startswith(str(tmp_path / name))
    result = dg.materialize([unreadable_cohort_asset("mimic", asset, error)], raise_on_error=False)
    (evaluation,) = result.get_asset_check_evaluations()
    assert result.success
    assert result.get_asset_materialization_events() == []
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert message in str(evaluation.description)
    if asset not in {cohort.cohort for cohort in cohorts}:
        own_job = repository.get_job(f"one_cohort_{asset}").execute_in_process(raise_on_error=False)
        assert not own_job.success
        (failure,) = own_job.filter_events(lambda event: event.is_step_failure)
        assert message in failure.event_specific_data.error.to_string()


def test_run_continues_despite_an_invalid_cohort_file(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(GOOD.replace("outcome: index_died", "outcome: index_dies"))
    _, bad = read_folder(tmp_path)

    @dg.asset
    def other() -> None: ...

    result = dg.materialize(
        [unreadable_cohort_asset("mimic", "mine", bad["mine"]), other], raise_on_error=False
    )
    assert result.success
    assert [event.asset_key.to_user_string() for event in result.get_asset_materialization_events()] == [
        "other"
    ]


def test_description_of_labels_names_the_codes():
    cohort = parse_cohort(COHORT_FOLDER / "examples" / "meds_dev_elevated_creatinine.yaml")
    names = CodeNames({"itemid": dict.fromkeys(cohort.codes["creatinine"].patterns["itemid"], "Creatinine")})
    assert "MIMIC item Creatinine" in described(cohort, names)


def test_faults_of_a_cohort_file_come_first_in_the_description(tmp_path: Path):
    (tmp_path / "mine.yaml").write_text(GOOD.replace("outcome: index_died", "outcome: index_dies"))
    repository = build(tmp_path).get_repository_def()

    (node,) = [node for node in repository.asset_graph.asset_nodes if "mine" in node.key.to_user_string()]
    (check,) = [key for key in repository.asset_graph.asset_check_keys if key.name == "cohort_file"]
    fault = f"{tmp_path / 'mine.yaml'}:9: outcome: 'index_dies' is not an outcome; did you mean 'index_died'?"
    assert node.description.replace("\\", "").startswith(fault)
    assert node.group_name == "mimic_cohorts_to_mend"
    assert "unreadable" in node.kinds
    assert repository.asset_graph.get_check_spec(check).description == fault
    assert node.key in repository.get_job("mimic_full").asset_layer.executable_asset_keys


@pytest.mark.parametrize(
    ("name", "text", "source"),
    [
        ("mine.yaml", "cohort: mine\nsource: pcornet\n", "pcornet"),
        ("mine.yaml", "cohort: mine\nsource: 'meds' # ours\n", "meds"),
        ("pcornet_mine.yaml", "cohort: [", "pcornet"),
        ("meds_mine.yaml", "source: pcornett\n", "meds"),
        ("mine.yaml", "", "mimic"),
        ("pcornet.yaml/inside", None, "pcornet"),
    ],
)
def test_invalid_cohort_file_is_in_the_jobs_of_the_intended_source(name, text, source, tmp_path: Path):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text or "")  # in the last case the cohort "file" is a folder
    repository = build(tmp_path).get_repository_def()
    (node,) = [node for node in repository.asset_graph.asset_nodes if "unreadable" in node.kinds]
    assert node.group_name == f"{source}_cohorts_to_mend"
    for job_source in ("mimic", "meds", "pcornet"):
        keys = repository.get_job(f"{job_source}_full").asset_layer.executable_asset_keys
        assert (node.key in keys) is (job_source == source)


def test_card_metadata_hides_small_counts_and_the_shares_revealing_them():
    card = StepCard(
        step="seqset",
        contract="seqset/2",
        flows={"DX": Flow(source_rows=1000, kept_rows=997, dropped={"NoDx": 3})},
        counts={"sets": 275, "empty_sets": 3, "sets_per_subject[1,2)": 4},
        shares={"empty_sets": 3 / 275, "unk": 1 / 29.1},
    )
    metadata = card_metadata(card)
    assert metadata["sets"].value == 275
    assert metadata["empty_sets"].value == "< 11"
    assert set(metadata) == {"sets", "empty_sets", "share_unk", "rows"}
    assert metadata["share_unk"].value == 0.03436
    assert "997" not in metadata["rows"].value
    assert " 3 " not in metadata["rows"].value


def test_column_schema_has_the_descriptions_of_the_contract():
    columns = {column.name: column.description for column in column_schema(EVENTS).columns}
    assert columns["available_at"] == "when it could be known"


@pytest.mark.parametrize(
    ("first", "later"),
    [
        # it takes longest, and made last it would be made alone
        ("mimic_report", "mimic_mortality_report"),
        # they take seconds, and the fine-tunings keep every slot busy for minutes
        ("mimic_nest_checks", "mimic_mortality_nest"),
    ],
)
def test_these_steps_begin_before_others_that_are_ready_too(first: str, later: str):
    steps = REPOSITORY.get_job("mimic_full").graph.node_defs
    priority_by_step = {step.name: int(step.tags.get("dagster/priority", 0)) for step in steps}
    assert priority_by_step[first] > priority_by_step[later]


def test_every_scientific_check_is_blocking():
    guards = {
        "contract",
        "rows_reconcile",
        "no_test_subject_was_trained_on",
        "split_is_that_of_the_hash",
        "no_feature_after_prediction",
        "future_changes_nothing",
        "as_published",
    }
    specs = [spec for check in defs().asset_checks for spec in check.check_specs]
    assert {spec.name for spec in specs if spec.blocking} == guards
    assert {spec.name for spec in specs if not spec.blocking} == {
        "plausible",
        "nothing_odd",
        "no_leak_suspected",
        "learnt_more_than_a_constant",
        "can_be_judged",
        "context_holds_half_the_events",
        "every_cell_was_made",
    }
    labels = {spec.asset_key.to_user_string() for spec in specs if spec.name == "no_feature_after_prediction"}
    assert labels == {f"{cohort}_labels" for cohort in COHORTS}


def test_labels_of_a_cohort_depend_on_the_file_of_a_cohort_it_names(tmp_path):
    text = (COHORT_FOLDER / "mimic_readmission_any.yaml").read_text()
    inner, outer = tmp_path / "named.yaml", tmp_path / "outer.yaml"
    outer.write_text(
        text.replace("cohort: mimic_readmission_any", "cohort: outer").replace(
            "require:\n", "require:\n  - named: {in_cohort: named}\n"
        )
    )

    def code_version():
        inner.write_text(text.replace("cohort: mimic_readmission_any", "cohort: named"))
        (asset,) = labels_asset("mimic", parse_cohort(outer)).code_versions_by_key.values()
        return asset

    before = code_version()
    text = text.replace("keep: every", "keep: first")
    assert code_version() != before
