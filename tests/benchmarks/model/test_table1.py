import json
import math

import numpy as np
import pytest
import torch

from benchmarks.model import scaling, table1
from benchmarks.model.measure import peak_bytes, seconds
from benchmarks.model.models import MODELS
from benchmarks.model.scaling_figure import draw_scaling
from benchmarks.model.sizes import Sizes
from benchmarks.model.statistics import paired_p, pooled_sd
from schemas.errors import NestError
from tests.benchmarks.model.small import SMALL

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
FLAGS = "--device cpu --subjects 2 --sets 32 --set-rows 32 --vocab-size 64 --d-model 16 --heads 2 --d-ff 16"


def test_pooled_sd_is_the_formula_of_the_paper():
    rates = np.array([[1.0, 3.0], [4.0, 8.0]])  # variances 2 and 8, means 2 and 6, their variance 8
    assert pooled_sd(rates) == pytest.approx(math.sqrt(5 + 8))
    assert pooled_sd(rates[:1]) == pytest.approx(math.sqrt(2))
    assert pooled_sd(rates[:, :1]) == pytest.approx(math.sqrt(4.5))


def test_paired_p_pairs_the_means_of_the_seeds():
    other_rates = np.array([[5.0, 7.0], [1.0, 1.0], [9.0, 7.0]])
    rates = other_rates + np.array([[0.0, 2.0], [2.0, 2.0], [5.0, 1.0]])  # means apart by 1, 2, 3: t = 2 √3
    assert paired_p(rates, other_rates) == pytest.approx(
        1 - math.sqrt(12 / 14)
    )  # of t with 2 degrees of freedom
    assert paired_p(rates[:1], other_rates[:1]) is None
    assert paired_p(rates, rates) is None


@pytest.mark.long
def test_table1_command_reports_throughput_and_memory_of_each_model(tmp_path):
    models = ["bert", "nest"]
    flags = ["--layers", "1", "--protocols", "D", "--batches", "2", "--seeds", "1", "2", "--models", *models]
    assert table1.main([*FLAGS.split(), *flags, "--out", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "table1.json").read_text())
    models_report = report["protocols"]["D"]["models"]
    assert list(models_report) == models
    assert all(figures["median_tokens_per_s"] > 0 for figures in models_report.values())
    assert models_report["bert"]["nest_times_as_fast"] > 0
    assert 0 < models_report["bert"]["paired_t_test_p"] <= 1
    scores = 2 * 2 * 1024**2 * 4  # subjects · heads · N² float32
    assert models_report["bert"]["peak_bytes"] - models_report["nest"]["peak_bytes"] > scores
    text = (tmp_path / "table1.md").read_text()
    assert all(f"| {MODELS[model].label} |" in text for model in models)


@pytest.mark.long
def test_scaling_command_writes_points_and_a_figure(tmp_path):
    flags = ["--layers", "1", "--lengths", "64", "--batches", "1", "--models", "nystromformer", "nest"]
    assert scaling.main([*FLAGS.split(), *flags, "--out", str(tmp_path)]) == 0
    points = json.loads((tmp_path / "scaling.json").read_text())["points"]
    assert [point["model"] for point in points] == ["nystromformer", "nest"]
    for point in points:
        assert (point["length"], point["sets"]) == (64, 2)
        assert point["subjects"] == 32  # as many rows as 2 subjects of 1,024
        assert point["median_tokens_per_s"] > 0
        assert point["peak_bytes"] > 0
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_length_with_a_fraction_of_a_set_is_refused(tmp_path, caplog):
    assert scaling.main([*FLAGS.split(), "--lengths", "100", "--out", str(tmp_path)]) == 2
    assert "100 must be a multiple of the 32 rows of a set" in caplog.text
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_point_too_large_for_memory_is_empty_and_table1_gives_advice(tmp_path, caplog):
    size_flags = ["--sets", "32768", "--subjects", "1", "--layers", "1", "--models", "bert"]
    million = [*FLAGS.split(), *size_flags]  # rows; 4 TiB of scores a head
    assert scaling.main([*million, "--lengths", str(1 << 20), "--out", str(tmp_path)]) == 0
    (point,) = json.loads((tmp_path / "scaling.json").read_text())["points"]
    assert (point["median_tokens_per_s"], point["peak_bytes"]) == (None, None)
    assert table1.main([*million, "--protocols", "A", "--out", str(tmp_path)]) == 2
    assert "bert, N = 1,048,576: does not fit into the machine's memory" in caplog.text
    assert not (tmp_path / "table1.json").exists()


@pytest.mark.parametrize("refusal", [torch.OutOfMemoryError, "DefaultCPUAllocator: can't allocate memory"])
@pytest.mark.parametrize(
    ("most", "measured_models"), [(1, ["bert", "nest", "performer"]), (0, ["nest", "performer"])]
)
def test_largest_model_is_measured_alone_when_memory_is_short(
    refusal, most, measured_models, tmp_path, monkeypatch
):
    """This happens if the weights of all models and one model's step do not fit; a test cannot fill the memory."""
    really = scaling.measure

    def full(names, *rest, **options):
        if "bert" in names and len(names) > most:
            raise RuntimeError(refusal) if isinstance(refusal, str) else refusal
        return really(names, *rest, **options)

    monkeypatch.setattr(scaling, "measure", full)
    peaks = {"bert": 3 << 20, "nest": 1 << 20, "performer": 2 << 20}
    monkeypatch.setattr(scaling, "peak_bytes", lambda name, *_: peaks[name])
    flags = ["--layers", "1", "--lengths", "64", "--batches", "1", "--models", *peaks]
    assert scaling.main([*FLAGS.split(), *flags, "--out", str(tmp_path)]) == 0
    points = json.loads((tmp_path / "scaling.json").read_text())["points"]
    assert {point["model"]: point["peak_bytes"] for point in points} == peaks
    assert [point["model"] for point in points if point["median_tokens_per_s"]] == measured_models


def test_odd_window_is_refused():
    with pytest.raises(NestError, match="window must be even"):
        Sizes(window=31)


def test_empty_point_ends_the_line_in_the_scaling_figure():
    points = [
        {"model": name, "length": length, "median_tokens_per_s": 10.0 * length, "peak_bytes": length << 20}
        for name in MODELS
        for length in (512, 1024)
    ]
    points.append({"model": "bert", "length": 2048, "median_tokens_per_s": None, "peak_bytes": None})
    rate, _ = draw_scaling(points).axes
    assert {line.get_label(): len(line.get_xdata()) for line in rate.lines} == {
        entry.label: 2 for entry in MODELS.values()
    }


@needs_cuda
def test_peak_memory_and_time_are_positive_on_cuda():
    device = torch.device("cuda")
    assert peak_bytes("nest", SMALL, "A", device) > 0
    ones = torch.ones(2048, 2048, device=device)
    assert seconds(lambda: ones @ ones, device) > 0
