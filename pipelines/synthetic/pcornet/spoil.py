"""Inserts the data faults of a real CDM into columns, at the rates of `rates.py`."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.synthetic.catalog import Bools, Floats, Ints
from pipelines.synthetic.pcornet.children import END_OF_DATA, NEVER, Children
from pipelines.synthetic.pcornet.rates import RATES

EPOCH = np.datetime64("1970-01-01")
SENTINELS = {"date_1900": "1900-01-01", "date_1753": "1753-01-01", "date_9999": "9999-12-31"}
_BAD_TIMES = pl.Series(["25:61", "9.5", "NI", "1260"])
_NO_INFORMATION = pl.Series(["NI", "UN", "OT"])
_LONGEST_BEFORE_BIRTH, _LONGEST_AFTER = 400, 3_000  # days
_CLOCKS = pl.Series([f"{minute // 60:02d}:{minute % 60:02d}" for minute in range(1440)])


def day_of(text: str | np.datetime64) -> int:
    """Return a date as days since 1970."""
    return int((np.datetime64(str(text), "D") - EPOCH).astype(np.int64))


def draw_faults(name: str, count: int, rng: np.random.Generator) -> Bools:
    """Draw which of `count` rows have the named fault."""
    return rng.random(count, dtype=np.float32) < RATES[name]


def replace_where(values: pl.Series, mask: Bools, by: pl.Series | str | None) -> pl.Series:
    """Return the values, replaced by `by` where the mask is set."""
    replacement = by if isinstance(by, pl.Series) else pl.lit(by, dtype=values.dtype)
    result = pl.select(pl.when(pl.Series(mask)).then(replacement).otherwise(values))
    return result.to_series().alias(values.name)


@dataclass(frozen=True)
class Place:
    """The children and encounters of rows; `encounter` is an index into `encounter_ids`."""

    children: Children
    child: Ints
    encounter: Ints
    encounter_ids: pl.Series  # of the block

    def ids(self, rng: np.random.Generator) -> pl.Series:
        """Return ENCOUNTERID: mostly correct, some null, unknown or of another patient."""
        count, num_encounters = len(self.child), len(self.encounter_ids)
        other_encounter = (self.encounter + num_encounters // 2) % max(num_encounters, 1)
        foreign = draw_faults("encounterid_of_another", count, rng)
        ids = self.encounter_ids[np.where(foreign, other_encounter, self.encounter)]
        ids = replace_where(ids, draw_faults("encounterid_unknown", count, rng), "X" + ids)
        return replace_where(ids, draw_faults("encounterid_null", count, rng), None)

    def dates(self, day: Ints, rng: np.random.Generator) -> pl.Series:
        """Return dates from ages in days: mostly correct, some sentinels, or outside of life or data."""
        count, birth_day = len(day), self.children.birth_day[self.child]
        death = self.children.death_age[self.child]
        day = birth_day + day
        before_birth = birth_day - 2 - rng.integers(0, _LONGEST_BEFORE_BIRTH, count)
        day = np.where(draw_faults("date_before_birth", count, rng), before_birth, day)
        after_end = day_of(END_OF_DATA) + 1 + rng.integers(0, _LONGEST_AFTER, count)
        day = np.where(draw_faults("date_after_end", count, rng), after_end, day)
        after_death = draw_faults("date_long_after_death", count, rng) & (death < NEVER)
        day = np.where(after_death, birth_day + death + 31 + rng.integers(0, 60, count), day)
        for name, sentinel in SENTINELS.items():
            day = np.where(draw_faults(name, count, rng), day_of(sentinel), day)
        return as_dates(day)


def as_dates(day: Ints, present: Bools | None = None) -> pl.Series:
    """Return dates from days since 1970; null where not present."""
    dates = pl.Series(day.astype(np.int32)).cast(pl.Date)
    return dates if present is None else replace_where(dates, ~present, None)


def clocks(minute: Ints, rng: np.random.Generator) -> pl.Series:
    """Return `HH:MI`: some 24:00, some invalid, some null."""
    count = len(minute)
    text = _CLOCKS[minute % 1440]
    text = replace_where(text, draw_faults("time_24", count, rng), "24:00")
    text = replace_where(
        text, draw_faults("time_bad", count, rng), _BAD_TIMES[rng.integers(0, len(_BAD_TIMES), count)]
    )
    return replace_where(text, draw_faults("time_null", count, rng), None)


def diagnosis_codes(code: pl.Series, rng: np.random.Generator) -> pl.Series:
    """Return codes as sites write them: without dots, in lower case, with blanks, and some invalid."""
    count = len(code)
    code = replace_where(
        code, draw_faults("code_dotless", count, rng), code.str.replace(".", "", literal=True)
    )
    code = replace_where(code, draw_faults("code_lower", count, rng), code.str.to_lowercase())
    code = replace_where(code, draw_faults("code_blanks", count, rng), " " + code + " ")
    return replace_where(code, draw_faults("code_malformed", count, rng), "?" + code + "-1")


def procedure_codes(code: pl.Series, kind: pl.Series, rng: np.random.Generator) -> pl.Series:
    """Return codes, with a modifier on some CPT codes."""
    has_modifier = draw_faults("cpt_modifier", len(code), rng) & (kind == "CH").to_numpy()
    return replace_where(code, has_modifier, code + "-25")


def pad_some(text: pl.Series, rng: np.random.Generator) -> pl.Series:
    """Return the text, some of it padded like a CHAR(4) column."""
    return replace_where(text, draw_faults("padded", len(text), rng), text.str.pad_end(4))


def without_some(text: pl.Series, rng: np.random.Generator) -> pl.Series:
    """Return the text, some of it replaced by empty text or `no information`."""
    count = len(text)
    words = _NO_INFORMATION[rng.integers(0, len(_NO_INFORMATION), count)]
    text = replace_where(text, draw_faults("no_information", count, rng), words)
    return replace_where(text, draw_faults("empty_text", count, rng), "")


def round_to(values: Floats, decimals: Ints | Floats) -> Floats:
    """Return values rounded to so many decimals each."""
    scale = 10.0**decimals
    return np.asarray(np.round(values * scale) / scale)
