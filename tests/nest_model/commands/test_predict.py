# ruff: noqa: F811 (fixtures of another file)
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from nest_model.__main__ import main
from nest_model.commands.predict import last_sets, predict, predictions_of
from nest_model.data.history import add_months
from nest_model.data.seqsets import SeqSets
from nest_model.model.checkpoint import load_model
from nest_model.training.device import launch_fabric
from nest_model.training.telemetry import Telemetry
from schemas.errors import InputError, NestError
from schemas.io.outputs import claim
from schemas.tables.labels import Features, Task
from tests.nest_model.commands.test_finetune import pretrained_model, tune, world  # noqa: F401 (fixtures)
from tests.support.factories.shards import DAY_US, HOUR_US, read_rows, rewrite_card, set_row
from tests.support.factories.world import make_world

TASK = Task(
    cohort="made_up",
    about="",
    label_type="bool",
    classes=("false", "true"),
    features=Features(),
    predict_at="index.end",
    predict_anchor="index.end",
    cohort_sha256="c" * 64,
)
ROWS = [
    set_row(1, 0, 10, 0, end_us=DAY_US),
    set_row(1, 1, 11, 9 * DAY_US, end_us=12 * DAY_US),
    set_row(2, 0, 20, 0),  # still in hospital
    set_row(3, 0, 30, 0, end_us=12 * HOUR_US),  # left after half a day
]


@pytest.fixture(scope="module")
def finetuned_run(world, pretrained_model, tmp_path_factory):
    return tune(world, pretrained_model, tmp_path_factory.mktemp("tuned"))


def score(model, seqset, out, index=None):
    predict(
        model=model / "model",
        seqset=seqset,
        index=index,
        out=out,
        fabric=launch_fabric("cpu", threads=1),
        telemetry=Telemetry(out.parent),
    )
    return pq.read_table(out)


def test_a_patient_in_hospital_has_no_prediction_at_the_end(tmp_path):
    rows = last_sets(read_rows(tmp_path, ROWS), TASK)

    assert rows.subject_id.tolist() == [1, 3]
    assert rows.encounter_id.tolist() == [11, 30]
    assert rows.predict_at_us.tolist() == [12 * DAY_US, 12 * HOUR_US]


def test_log_suppresses_counts_under_eleven(tmp_path, caplog):
    with caplog.at_level("INFO", logger="nest"):
        last_sets(read_rows(tmp_path, ROWS), TASK)

    assert caplog.messages == [
        "made_up, of < 11 patients: a withheld number of patients scored; left out: a withheld number of patients "
        "still in hospital, a withheld number of patients who left before the prediction"
    ]


def test_log_does_not_disclose_a_small_number_left_out(tmp_path, caplog):
    stays = [set_row(k, 0, 10 * k, 0, end_us=DAY_US) for k in range(1, 94)]
    stays += [set_row(k, 0, 10 * k, 0) for k in range(94, 101)]  # seven still in hospital

    with caplog.at_level("INFO", logger="nest"):
        rows = last_sets(read_rows(tmp_path, stays), TASK)

    assert len(rows) == 93
    assert caplog.messages == [
        "made_up, of 100 patients: a withheld number of patients scored; left out: a withheld number of patients "
        "still in hospital, 0 patients who left before the prediction"
    ]


def test_scoring_output_does_not_disclose_a_small_number_left_out(finetuned_run, tmp_path, caplog):
    new = make_world(tmp_path / "new", subjects=40, seed=5)
    shard = next(iter(sorted(new.seqset.glob("*.parquet"))))
    table = pq.read_table(shard)
    last = np.append(np.diff(table["subject_id"].to_numpy()) != 0, True)
    early_leavers = np.flatnonzero(last)[:7]  # seven patients left after an hour
    end = table["end"].to_numpy().copy()
    end[early_leavers] = table["start"].to_numpy()[early_leavers] + np.timedelta64(1, "h")
    at = table.column_names.index("end")
    pq.write_table(table.set_column(at, table.schema.field("end"), pa.array(end, pa.timestamp("us"))), shard)
    rewrite_card(shard)

    with caplog.at_level("INFO", logger="nest"):
        predictions = score(finetuned_run, new.seqset, tmp_path / "out.parquet")

    output = "\n".join(caplog.messages) + (tmp_path / "metrics.jsonl").read_text()
    output = output.replace(str(tmp_path), "")  # the path may contain any number
    assert len(predictions) == 33
    assert "33" not in output.replace('"rate"', "")
    assert "40" in output


def test_patients_who_left_early_are_left_out_except_by_time_clock(tmp_path):
    after_a_day = {"predict_anchor": "index.start", "predict_offset_us": DAY_US}
    seqsets = read_rows(tmp_path, ROWS)
    ours = last_sets(seqsets, TASK.model_copy(update=after_a_day))
    paper = last_sets(seqsets, TASK.model_copy(update=after_a_day | {"features": Features(clock="time")}))

    assert ours.subject_id.tolist() == [1, 2]
    assert ours.predict_at_us.tolist() == [10 * DAY_US, DAY_US]
    assert paper.subject_id.tolist() == [1, 2, 3]


def test_a_month_after_the_last_of_january_is_the_last_of_february():
    moments = [datetime(2150, 1, 31, 13, 5), datetime(2152, 1, 31), datetime(2150, 12, 1, 0, 0, 1)]
    shifted_times = add_months(np.array(moments, "datetime64[us]").astype(np.int64), 1).astype(
        "datetime64[us]"
    )

    assert shifted_times.tolist() == [
        datetime(2150, 2, 28, 13, 5),
        datetime(2152, 2, 29),
        datetime(2151, 1, 1, 0, 0, 1),
    ]


def test_predict_on_the_label_rows_gives_the_same_probabilities(world, finetuned_run, tmp_path):
    first = pq.read_table(finetuned_run / "report" / "predictions.parquet")
    second = score(finetuned_run, world.seqset, tmp_path / "again.parquet", index=world.labels)

    assert second["label"].to_pylist() == first["label"].to_pylist()
    assert second["split"].to_pylist() == first["split"].to_pylist()
    assert second.schema.metadata[b"contract"] == b"predictions/1"
    probability, expected = (np.concatenate(table["probability"].to_numpy()) for table in (second, first))
    np.testing.assert_allclose(probability, expected, atol=1e-6)


def test_new_patients_are_scored_from_a_csv_or_at_the_last_set(finetuned_run, tmp_path):
    new = make_world(tmp_path / "new", subjects=9, seed=5)
    without_index = score(finetuned_run, new.seqset, tmp_path / "alone.parquet")
    index = pa.table({name: without_index[name] for name in ("subject_id", "encounter_id", "predict_at")})
    pa.csv.write_csv(index, tmp_path / "index.csv")
    with_index = score(finetuned_run, new.seqset, tmp_path / "listed.parquet", index=tmp_path / "index.csv")

    assert len(without_index) == 9
    assert set(without_index["split"].to_pylist()) == {"new"}
    assert without_index["label"].null_count == 9
    assert with_index["probability"].equals(without_index["probability"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"subject_id": [1], "encounter_id": [10]}, "no column predict_at"),
        (
            {"subject_id": ["MRN-4711"], "encounter_id": [10], "predict_at": [0]},
            "column subject_id is string",
        ),
        ({"subject_id": [1], "encounter_id": [None], "predict_at": [0]}, "empty in 1 of 1 rows"),
        (
            {"subject_id": [999], "encounter_id": [10], "predict_at": [0]},
            "1 of 1 encounters are not in the shards",
        ),
    ],
)
def test_an_invalid_index_raises_an_error_without_values(
    world,
    finetuned_run,
    tmp_path,
    columns,
    message,
):
    pq.write_table(pa.table(columns), tmp_path / "index.parquet")
    with pytest.raises(InputError, match=message) as error:
        score(finetuned_run, world.seqset, tmp_path / "out.parquet", index=tmp_path / "index.parquet")
    assert "4711" not in str(error.value)


def test_a_pretrained_model_cannot_predict(world, pretrained_model, tmp_path):
    (tmp_path / "model").symlink_to(pretrained_model)
    with pytest.raises(NestError, match="fine-tune it first"):
        score(tmp_path, world.seqset, tmp_path / "out.parquet")


def test_a_failed_prediction_leaves_no_file_in_the_folder_of_its_table(finetuned_run, tmp_path, capsys):
    folder = tmp_path / "night"
    options = {"--model": finetuned_run, "--seqset": folder / "seqset", "--out": folder / "mortality.parquet"}

    assert main(["predict", *(str(part) for option in options.items() for part in option)]) == 2
    assert "no shard in" in capsys.readouterr().err
    claim(folder)  # as a command does that writes there next


def test_predict_counts_rows_as_soon_as_they_are_scored(finetuned_run, world, monkeypatch):
    monkeypatch.setattr("nest_model.commands.predict.ROW_BUDGET", 40)
    seqsets = SeqSets.read(world.seqset)
    classifier, card = load_model(finetuned_run / "model", vocab_sha256=seqsets.vocab_sha256)
    rows, counts = last_sets(seqsets, card.task), []

    predictions_of(classifier, card, seqsets, rows, launch_fabric("cpu", threads=1), advance=counts.append)

    assert len(counts) > 5
    assert sum(counts) == len(rows)
