"""The command that runs one system, in a process: its outputs, its refusals, what it withholds, and a killed run."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nest_model.__main__ import main
from nest_model.next_set.system import load_system, names
from schemas.contract import read_table
from schemas.tables.next_sets import NEXT_SET_SCORES, RANKINGS
from tests.support.commands import ROOT
from tests.support.factories.shops import ShopFiles, Shopper, random_shoppers, write_shop

DECAYED = ("--system=decayed", "--target=held_out", "--points=4")
STEADY = ("metrics.json", "trials.json", "rankings.parquet", "scores.parquet")


def command(shop: ShopFiles, out: Path, *flags: str) -> list[str]:
    paths = [f"--{name}={path}" for name, path in shop.paths.items()]
    return ["next-basket", *paths, f"--out={out}", "--device=cpu", "--threads=1", *flags]


def run_process(
    arguments: Sequence[str], module: Sequence[str] = ("nest_model",)
) -> subprocess.CompletedProcess:
    start = [sys.executable, "-m", *module]
    return subprocess.run([*start, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120)


def run(shop: ShopFiles, out: Path, *flags: str) -> None:
    """Run the command in this process, which loads its modules only once."""
    assert main(command(shop, out, *flags)) == 0


def many(users: int = 90) -> dict[int, Shopper]:
    return random_shoppers(7, users=users)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> ShopFiles:
    return write_shop(tmp_path_factory.mktemp("shop"), many())


@pytest.fixture(scope="module")
def undisturbed_run(shop: ShopFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run whose lists can be short, on the hidden orders."""
    out = tmp_path_factory.mktemp("undisturbed")
    process = run_process(command(shop, out, *DECAYED, f"--raw={shop.root}"))
    assert process.returncode == 0, process.stderr
    return out


def test_outputs_say_what_was_run_and_what_it_gave(shop: ShopFiles, undisturbed_run: Path):
    metrics = json.loads((undisturbed_run / "metrics.json").read_text())
    trials = json.loads((undisturbed_run / "trials.json").read_text())["trials"]
    questions = shop.read("held_out").test
    assert (metrics["system"], metrics["points"], metrics["users"]) == ("decayed", 4, str(len(questions)))
    assert metrics["options"] == max(trials, key=lambda trial: trial["ndcg"])["options"]
    assert metrics["traits"]["ranks_only_repeats"]
    own, full = metrics["results"]["own"], metrics["results"]["filled"]
    assert own["recall_explore_part"] == 0
    assert full["recall"] >= own["recall"] > 0
    assert full["share_on_repeats"] <= own["share_on_repeats"] == 1


def test_means_are_those_of_the_scores_of_users(shop: ShopFiles, undisturbed_run: Path):
    metrics = json.loads((undisturbed_run / "metrics.json").read_text())["results"]
    scores = read_table(undisturbed_run / "scores.parquet", NEXT_SET_SCORES).to_pydict()
    is_filled = np.array(scores["is_filled"])
    for name, is_row in (("own", ~is_filled), ("filled", is_filled)):
        for metric in ("recall", "ndcg", "recall_at_20"):
            mean = np.array(scores[metric])[is_row].mean()
            assert metrics[name][metric] == pytest.approx(mean, abs=1e-6)
    questions = shop.read("held_out").test
    assert np.array(scores["subject_id"])[~is_filled].tolist() == questions.subject_id.tolist()
    assert np.array(scores["truths"])[~is_filled].tolist() == np.diff(questions.truth_offsets).tolist()


def test_kept_lists_are_of_every_user_and_of_the_history(shop: ShopFiles, undisturbed_run: Path):
    rankings = read_table(undisturbed_run / "rankings.parquet", RANKINGS).to_pydict()
    baskets = shop.read("held_out").test.histories.baskets
    assert rankings["subject_id"] == baskets.subject_id.tolist()
    for place, products in enumerate(rankings["product_ids"]):
        lines = slice(*baskets.item_offsets[baskets.basket_offsets[place : place + 2]])
        assert {*products} <= {*baskets.product_id[baskets.items[lines]].tolist()}
        assert 0 < len(products) <= 21


def test_published_protocol_is_not_tuned(shop: ShopFiles, tmp_path: Path):
    run(shop, tmp_path, "--system=blend", "--protocol=published", "--points=4")
    assert json.loads((tmp_path / "trials.json").read_text()) == {"trials": []}
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert (metrics["points"], metrics["options"]["decay"], metrics["protocol"]) == (0, 0.9, "published")


def scores_in(content: object, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], float]:
    """Return every number of the results and trials below a JSON value."""
    if isinstance(content, dict):
        items = [(key, value) for key, value in content.items() if key != "options"]
    elif isinstance(content, list):
        items = [(str(place), value) for place, value in enumerate(content)]
    else:
        return {path: content} if isinstance(content, float) else {}
    return {name: number for key, value in items for name, number in scores_in(value, (*path, key)).items()}


def few_of(split: str, root: Path) -> ShopFiles:
    """Return a shop with under eleven users of a split who are asked, and more of the others."""
    shoppers = {user: shopper for user, shopper in many(120).items() if shopper.split != split or user < 31}
    shop = write_shop(root, shoppers)
    parts = shop.read()
    assert parts.validation is not None
    users = {"val": len(parts.validation), "test": len(parts.test)}
    assert 0 < users.pop(split) < 11 <= min(users.values())
    return shop


def lines_of(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("split", ["val", "test"])
def test_scores_of_under_eleven_users_are_nowhere(split: str, tmp_path: Path):
    shop = few_of(split, tmp_path / "shop")
    run(shop, tmp_path / "out", "--system=p_topfreq", "--points=3")
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    trials = json.loads((tmp_path / "out" / "trials.json").read_text())
    lines = lines_of(tmp_path / "out")
    of_validation = [
        metrics.pop("validation_ndcg"),
        trials,
        [line for line in lines if line["event"] == "trial"],
    ]
    of_test = [metrics, [line for line in lines if line["event"] == "result"]]
    few, enough = (of_validation, of_test) if split == "val" else (of_test, of_validation)
    assert scores_in(few) == {}
    assert len(scores_in(enough)) > 5
    assert metrics["users"] == ("< 11" if split == "test" else str(len(shop.read().test)))


TRAINED = [name for name in names() if load_system(name).traits.has_random_start]
READS_NEST = [name for name in TRAINED if load_system(name).reads_backbone]


@pytest.mark.parametrize("name", [name for name in TRAINED if name not in READS_NEST])
def test_scores_of_few_validation_users_are_in_no_line_of_a_training(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    shop = few_of("val", tmp_path / "shop")
    quick = [f"--option={key}={value}" for key, value in load_system(name).quick.items()]
    with caplog.at_level("INFO", "nest"):
        run(shop, tmp_path / "out", f"--system={name}", "--points=2", "--seeds=1,2", *quick)
    words = {"ndcg", "recall"}
    leaks = [
        line
        for line in lines_of(tmp_path / "out")
        if line["event"] != "result"
        and words & {part for key in line.get("metrics", {}) for part in key.split("_")}
    ]
    assert leaks == []
    messages = [
        message for message in caplog.messages if "ndcg" in message and not message.startswith("result")
    ]
    assert messages == []


def test_metric_that_few_of_many_users_have_is_withheld_alone(tmp_path: Path):
    # twenty users buy what they bought, five of them something new too
    shoppers = {user: Shopper("test", [[1], [1, 2] if user < 5 else [1]]) for user in range(20)}
    shop = write_shop(tmp_path / "shop", shoppers | {99: Shopper("train", [[1, 2]])})
    run(shop, tmp_path / "out", "--system=blend")
    result = json.loads((tmp_path / "out" / "metrics.json").read_text())["results"]["own"]
    assert result["recall_of_new"] is None
    assert result["recall"] == result["recall_of_repeats"] == 1


def test_share_of_few_users_without_a_hit_is_withheld(tmp_path: Path):
    # of thirty users two buy nothing they bought before, and ties at place 10 are nobody's
    shoppers = {user: Shopper("test", [[1], [2] if user < 2 else [1]]) for user in range(30)}
    shop = write_shop(tmp_path / "shop", shoppers | {99: Shopper("train", [[1, 2]])})
    run(shop, tmp_path / "out", "--system=p_topfreq")
    result = json.loads((tmp_path / "out" / "metrics.json").read_text())["results"]["own"]
    assert result["hit"] is None
    assert (result["recall"], result["tie_share"]) == (pytest.approx(28 / 30, abs=1e-6), 0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--system=p_topfrek"], "system 'p_topfrek' is unknown (do you mean 'p_topfreq'?); choose one of "),
        (
            ["--system=decayed", "--option=deccay=0.5"],
            "decayed has no option 'deccay' (do you mean 'decay'?)",
        ),
        (["--system=decayed", "--option=decay=2"], "decayed: decay: Input should be less than or equal to 1"),
        (["--system=decayed", "--option=decay=much"], "decayed: decay: Input should be a valid number"),
        (
            ["--system=p_topfreq", "--option=tie=random"],
            "p_topfreq: tie: Input should be 'popular', 'recent' or",
        ),
        (["--system=decayed", "--option=decay"], "--option decay: write it as key=value"),
        (["--system=g_topfreq", "--option=k=1"], "g_topfreq has no option 'k'; it has none"),
        (["--system=blend", "--target=held_out"], "--target held_out needs --raw"),
    ],
)
def test_wrong_name_or_value_is_one_message(
    flags: list[str], message: str, shop: ShopFiles, tmp_path: Path, capfd: pytest.CaptureFixture
):
    assert main(command(shop, tmp_path, *flags)) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert message in line
    assert not (tmp_path / "metrics.json").exists()


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--points=0", "argument --points: '0' is no whole number of 1 or more"),
        ("--training-users=-1", "argument --training-users: '-1' is no whole number of 0 or more"),
        ("--training-users=many", "argument --training-users: 'many' is no whole number of 0 or more"),
    ],
)
def test_number_below_the_least_is_one_message(
    flag: str, message: str, shop: ShopFiles, tmp_path: Path, capfd: pytest.CaptureFixture
):
    with pytest.raises(SystemExit, match="2"):
        main(command(shop, tmp_path, "--system=blend", flag))
    assert message in capfd.readouterr().err


def outputs(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in STEADY}


@pytest.mark.parametrize("trials_before", [1, pytest.param(3, marks=pytest.mark.long)])
def test_run_killed_while_it_tunes_is_resumed_to_the_same_bytes(
    trials_before: int, shop: ShopFiles, undisturbed_run: Path, tmp_path: Path
):
    arguments = command(shop, tmp_path, *DECAYED, f"--raw={shop.root}")
    process = run_process(arguments, ("tests.support.killed_next_basket", str(trials_before)))
    assert process.returncode == -signal.SIGKILL, process.stderr
    (state,) = (tmp_path / "state").glob("*/trials.json")
    assert len(json.loads(state.read_text())["trials"]) == trials_before
    assert not (tmp_path / "metrics.json").exists()
    run(shop, tmp_path, *DECAYED, f"--raw={shop.root}")
    assert outputs(tmp_path) == outputs(undisturbed_run)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    # no trial ran twice; the last before the kill was saved but no longer reported
    trials = [line["trial"] for line in lines if line["event"] == "trial"]
    assert trials == [trial for trial in range(4) if trial != trials_before - 1]


def test_finished_run_is_not_fitted_again_unless_something_changes(
    shop: ShopFiles, undisturbed_run: Path, tmp_path: Path
):
    def fits(*flags: str) -> int:
        run(shop, tmp_path, "--system=p_topfreq", "--points=2", *flags)
        folders = [*(tmp_path / "state").iterdir()]
        assert len(folders) == 1  # another key's is gone
        return (folders[0] / "seed-42.parquet").stat().st_mtime_ns

    first = fits()
    assert fits() == first
    assert fits("--key=another") > first
    second = fits("--key=another")
    assert fits("--key=another", "--protocol=published") > second
