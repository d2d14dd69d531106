"""Read the validation part of a pretrained model's `metrics.json`: metrics, guesses and verdicts."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import ContractError
from schemas.io.verify import verified


class Judgement(BaseModel):
    """The part of `metrics.json` that the asset, its checks and the page read; other keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    validation: dict[str, float | None]
    yardsticks: dict[str, dict[str, float]]  # see `yardsticks.yardsticks`
    not_learnt: list[str]  # sentences, see `verdicts`
    not_judged: list[str]

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
