"""Write scores as docs/learning.md does."""


def short(score: dict[str, float | None], *, sign: str = "", alone: bool = False) -> str:
    """Return a score as learning.md writes it: `.812 (.804 to .820)`, `.809` alone, or a difference with its sign."""
    numbers = [
        f"{score[part]:{sign}z.3f}".replace("0.", ".", 1).replace("-", "−")
        for part in ("value", "low", "high")
    ]
    return numbers[0] if alone else "{} ({} to {})".format(*numbers)
