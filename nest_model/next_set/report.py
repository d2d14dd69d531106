"""Write the comparison of all systems: `metrics.json` and the page drawn from it."""

from pathlib import Path

from nest_model.next_set.compare import compare, read_rows
from nest_model.report.pretraining import pretraining
from nest_model.training.telemetry import Telemetry
from schemas.errors import NestError
from schemas.io.outputs import write_json, write_text
from schemas.suppress import shown_scores


def write_next_basket_report(
    *, systems: Path, pretrained: Path | None = None, out: Path, telemetry: Telemetry
) -> None:
    """Write `out`/metrics.json and `out`/report.html on every system below a folder.

    Args:
        systems: a folder with a folder for each system, as `next-basket` writes it.
        pretrained: the folder of the pretrained NEST; None: the page says nothing about a pretraining.

    Raises:
        NestError: there is no finished system, or two answer different users or another question.
    """
    from nest_model.next_set.page import render  # matplotlib: only where it draws

    folders = {path.parent.name: path.parent for path in sorted(systems.glob("*/metrics.json"))}
    if not folders:
        raise NestError(f"{systems}: no finished system; run `python -m nest_model next-basket` first.")
    metrics = shown_scores(compare(*read_rows(folders)))
    metrics["pretraining"] = pretraining(pretrained) if pretrained else None
    write_text(out / "report.html", render(metrics))
    write_json(out / "metrics.json", metrics)
    scores = {row["name"]: row["scores"]["ndcg"]["value"] for row in metrics["rows"]}
    telemetry.result({f"{name}_ndcg": value for name, value in scores.items() if value is not None})
