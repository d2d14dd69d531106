"""Read from a pretrained model's `metrics.json` what it learnt and how much its context leaves out."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from nest_model.data.selection import ContextCut
from nest_model.training.seeds import list_other_seeds, model_of_seed
from schemas.errors import ContractError
from schemas.io.verify import is_written, verified

MOST_EVENTS_LEFT_OUT = 0.5
"""The share of the events above which the context is too short for the records."""


class Judgement(BaseModel):
    """The part of `metrics.json` that the asset, its checks and the page read; other keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    validation: dict[str, float | None]
    yardsticks: dict[str, dict[str, float]]  # see `yardsticks.yardsticks`
    not_learnt: list[str]  # sentences, see `verdicts`
    not_judged: list[str]
    context_cut: ContextCut

    @property
    def events_left_out(self) -> list[str]:
        """A sentence if the context leaves out more than half of the events; LightGBM reads them all."""
        share = self.context_cut.events_share
        if share <= MOST_EVENTS_LEFT_OUT:
            return []
        return [
            f"The context leaves out {share:.0%} of the events, from which no task can learn. Raise it, e.g. by "
            'NEST_PRETRAINING="max_sets=32".'
        ]

    @classmethod
    def read(cls, model: Path) -> Self:
        """Read it from a model's folder.

        Raises:
            ContractError: the file is missing, or was written by an earlier version.
        """
        file = model / "metrics.json"
        try:
            return cls.model_validate_json(verified(file).read_bytes())
        except FileNotFoundError:
            raise ContractError(f"no file {file}; materialize {model.name} first.") from None
        except ValidationError:
            raise ContractError(
                f"{file}: lacks the losses of model-free guesses, so an earlier version wrote it; "
                f"materialize {model.name} again."
            ) from None


def findings_of_seeds(model: Path) -> dict[str, list[str]]:
    """Return the sentences on the models of all seeds of a pretraining, by field of `Judgement`.

    A sentence on several models is returned once. Those on a later seed's model alone come after “Pretraining seed N:”.
    A seed whose training was interrupted is left out.

    Args:
        model: the folder of the first seed's model.

    Raises:
        ContractError: see `Judgement.read`.
    """
    later = {f"Pretraining seed {seed}:": model_of_seed(model, seed) for seed in list_other_seeds(model)}
    folders = {"": model} | {
        heading: folder for heading, folder in later.items() if is_written(folder / "metrics.json")
    }
    findings: dict[str, list[str]] = {"not_learnt": [], "not_judged": [], "events_left_out": []}
    for heading, folder in folders.items():
        judgement = Judgement.read(folder)
        for name, sentences in findings.items():
            if more := [sentence for sentence in getattr(judgement, name) if sentence not in sentences]:
                sentences += [heading, *more] if heading else more
    return findings
