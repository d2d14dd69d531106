import pytest

from nest_model.config import ModelConfig
from nest_model.evidence.rows import EvidenceAssets, all_rows, clashes, refuse_unknown, rows_by_name
from nest_model.model.encoder import encoder_class
from nest_model.options import FineTuningOptions, PretrainingOptions
from nest_model.systems import BLOCKS, systems
from nest_model.training.freezing import freeze_blocks
from schemas.errors import NestError


def test_every_system_has_a_row_and_no_two_rows_share_a_name():
    names = [row.name for row in all_rows()]
    assert len(names) == len(set(names))
    assert set(systems()) <= set(names)


def test_the_papers_speed_table_alone_has_the_systems_that_are_made_by_name_alone():
    by_name_alone = {row.name for row in all_rows() if row.system == row.name and not row.is_default}
    assert by_name_alone == {"longformer", "performer", "nystromformer"}


def test_a_rows_assets_begin_with_the_source_and_have_no_suffix_of_a_cohorts_steps():
    row, names = rows_by_name()["bert"], EvidenceAssets("mimic")
    assert names.pretraining(row) == "mimic_evidence_bert"
    assert names.cell(row, "mimic_mortality") == "mimic_evidence_bert_mortality"
    assert names.cell(row, "sepsis") == "mimic_evidence_bert_sepsis"


def test_nest_and_lightgbm_are_the_models_every_cohort_has():
    rows, names = rows_by_name(), EvidenceAssets("mimic")
    assert names.cell(rows["nest"], "mimic_mortality") == "mimic_mortality_nest"
    assert names.cell(rows["lightgbm"], "mimic_mortality") == "mimic_mortality_lightgbm"
    assert names.pretraining(rows["nest"]) == "mimic_nest"


def test_a_run_s_options_reach_a_system_as_far_as_they_mean_something():
    of_nest = PretrainingOptions.from_text(
        "epochs=2 position=days_since_prior msm_weight=0.5 set_mask_share=0.3"
    ).flags()
    rows = rows_by_name()
    assert rows["bert"].pretraining_flags(of_nest, "tiny") == {"system": "bert", "epochs": "2"}
    of_mlm = rows["nest_mlm"].pretraining_flags(of_nest, "tiny")
    assert of_mlm["msm-weight"] == "0", "what makes the row wins over the run's options"
    assert of_mlm["position"] == "days_since_prior"
    assert "set-mask-share" not in of_mlm, "without MSM no set is masked"


def test_gt_behrt_without_types_is_made_by_name_alone_and_differs_by_its_switch():
    with_types, without = (rows_by_name()[name] for name in ("gt_behrt", "gt_behrt_without_types"))
    assert (with_types.is_default, without.is_default) == (True, False)
    flags = without.pretraining_flags(PretrainingOptions.from_text("epochs=2").flags(), "tiny")
    assert flags == {**with_types.pretraining_flags({}, "tiny"), "visit-types": "False", "epochs": "2"}
    assert PretrainingOptions.from_flags({"visit-types": flags["visit-types"]}).visit_types is False


@pytest.mark.parametrize(
    "text", ["set_position=hours", "token_mask_share=0.15", "time2vec=hours layers=3", "own_set_weight=0"]
)
def test_every_row_can_be_pretrained_with_whatever_nest_can(text):
    of_nest = PretrainingOptions.from_text(text).flags()
    for row in all_rows():
        flags = row.pretraining_flags(of_nest, "tiny")
        if flags:
            PretrainingOptions.from_flags({k: v for k, v in flags.items() if k != "system"}).changes(
                "tiny", row.system
            )


def test_a_flat_system_leaves_out_blocks_that_it_does_not_have():
    rows, options = rows_by_name(), FineTuningOptions.from_text("freeze=embedding,swe epochs=2")
    assert rows["nest_mlm"].finetuning_flags(options) == {"freeze": "embedding,swe", "epochs": "2"}
    assert rows["bert"].finetuning_flags(options) == {"freeze": "embedding", "epochs": "2"}
    assert rows["freeze_cse"].finetuning_flags(options)["freeze"] == "cse"
    assert rows["bert"].finetuning_flags(FineTuningOptions.from_text("freeze=swe")) == {}


@pytest.mark.parametrize("blocks", [("swe",), ("cse",), ("embedding", "cse"), BLOCKS])
def test_every_row_freezes_those_blocks_of_a_runs_options_that_its_encoder_has(blocks):
    options = FineTuningOptions.from_text(f"freeze={','.join(blocks)}")
    rows = [row for row in all_rows() if row.system is not None and not row.frozen_blocks]
    assert {"nest", "mean_pool", "no_cse", "heart", "labels_05_core_behrt"} <= {row.name for row in rows}
    for row in rows:
        changes = PretrainingOptions.from_flags(row.pretraining or {}).changes("tiny", row.system)
        encoder = encoder_class(row.system)(ModelConfig.preset("tiny", 64, system=row.system, **changes))
        freeze = row.finetuning_flags(options).get("freeze", "")
        frozen = [block for block in freeze.split(",") if block]
        present = blocks if blocks == BLOCKS else [block for block in blocks if block in encoder.parts()]
        assert frozen == list(present), row.name
        freeze_blocks(encoder, frozen)


def test_cohorts_whose_cells_would_share_a_name_are_found():
    assert clashes(["mimic_mortality", "mimic_readmission"]) == []
    assert clashes(["mimic_mortality", "mortality"]) == ["mortality"]
    assert clashes(["pcornet_mortality", "mortality"]) == ["mortality"]
    assert clashes(["double"]) == ["double"], "mean_pool of double would be mean_pool_double"
    with pytest.raises(NestError, match="'mortality' would have cells of the same name as another cohort"):
        refuse_unknown(((), ("mimic_mortality", "mortality")), ["mimic_mortality", "mortality"])


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (
            (("brt",), ()),
            r"NEST_EVIDENCE_SYSTEMS: 'brt' is unknown \(do you mean 'bert'\?\); choose from nest",
        ),
        (
            ((), ("mortality",)),
            r"NEST_EVIDENCE_TASKS: 'mortality' is unknown \(do you mean 'mimic_mortality'\?\)",
        ),
    ],
)
def test_unknown_rows_and_tasks_are_refused_with_the_nearest(names, sentence):
    with pytest.raises(NestError, match=sentence):
        refuse_unknown(names, ["mimic_mortality", "mimic_long_stay"])


def test_ablations_stand_on_the_paper_s_three_tasks_and_systems_on_all():
    rows, tasks = rows_by_name(), ["mimic_mortality", "mimic_icd_chapter"]
    assert rows["bert"].tasks(tasks) == tasks
    assert rows["shuffle"].tasks(tasks) == ["mimic_mortality"]
    assert rows["shuffle"].tasks(["my_cohort"]) == ["my_cohort"]
    assert rows["objective_msm"].tasks(tasks) == []


def test_an_ablation_with_twice_the_layers_doubles_the_presets():
    rows = rows_by_name()
    flags = rows["no_cse_double"].pretraining_flags({}, "tiny")
    assert flags == {"system": "nest", "layers": "4", "cross-set": "False"}
    assert rows["no_cse_double"].pretraining_flags({"layers": "3"}, "tiny")["layers"] == "6"
    assert rows["no_cse"].pretraining_flags({}, "tiny") == {
        "system": "nest",
        "cross-set": "False",
    }
