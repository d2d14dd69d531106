"""The Markdown page of the recipe's parts."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.pretraining_scores import GUESSES, guess_cells, model_cells
from nest_model.report.table import interval
from schemas.markdown import markdown_table

ABOUT = """# What each part of the recipe is worth

Made by `make bench-recipe`: [the recipe](../learning.md#how-the-recipe-differs-from-the-papers) with one
part taken away, on the same patients. AUROC on test patients, the mean over the seeds of the
fine-tuning ± their standard deviation, and the mean of the three tasks less the recipe's, on test and on validation
patients, with 95 % intervals of resampled patients. A variant that is pretrained anew has one pretraining; what another
seed of it changes, about .01 on test patients, is not in the intervals. Nothing is chosen here.
"""


def page(report: Mapping[str, Any]) -> str:
    """Return the page of a report's rows; the first is the recipe."""
    rows = report["rows"]
    parts = [
        ABOUT,
        f"{report['train_patients']:,} {'synthetic ' * report['synthetic']}training patients. Seeds of the "
        f"fine-tuning: {', '.join(map(str, report['seeds']))}.\n",
        *(
            [
                f"Variants that were not run: `{'`, `'.join(report['not_run'])}`. "
                "[learning.md](../learning.md#results-on-the-test-split) has earlier runs of them.\n"
            ]
            if report["not_run"]
            else []
        ),
        "## Tasks\n",
        markdown_table([_task_cells(row) for row in rows]) + "\n",
        "## Pretraining, on validation patients\n",
        "In nats; lists as NDCG@10. Bold: not better than the constant guess.\n",
        markdown_table(_validation_rows(rows)) + "\n",
    ]
    return "\n".join(parts)


def _task_cells(row: Mapping[str, Any]) -> dict[str, str]:
    is_recipe = row["name"] == "recipe"
    differences = {
        words: "" if is_recipe else interval(row["less_recipe"][split], with_sign=True)
        for split, words in {"test": "less the recipe, test", "val": "validation"}.items()
    }
    return {
        "variant": row["words"],
        "pretrained anew": "yes" if row["is_pretrained_anew"] else "",
        **{title: _mean_and_sd(score) for title, score in row["tasks"].items()},
        **differences,
    }


def _mean_and_sd(score: Mapping[str, Any]) -> str:
    return interval(dict(score) | {"low": None, "high": None})


def _validation_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return a row for the recipe and for each pretraining of its own, and the two guesses of the recipe."""
    own_rows = [row for row in rows if row["is_pretrained_anew"] or row["name"] == "recipe"]
    guesses = rows[0]["validation"]
    return [
        *({"variant": row["words"]} | model_cells(row["validation"]) for row in own_rows),
        *({"variant": words} | guess_cells(guesses, guess) for guess, words in GUESSES.items()),
    ]
