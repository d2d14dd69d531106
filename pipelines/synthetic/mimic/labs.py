"""Draws laboratory rows: a blood draw orders panels, and their values reflect the state of the patient."""

from dataclasses import dataclass, fields

import numpy as np

from pipelines.synthetic.catalog import FACTORS, Bools, Catalog, Floats, Ints
from pipelines.synthetic.draw import expand_counts, logit, sigmoid
from pipelines.synthetic.mimic.patients import LONG, Stays

NOT_STORED = np.iinfo(np.int64).min
_RISING = [FACTORS.index("inflammation"), FACTORS.index("acidosis")]


@dataclass(frozen=True)
class Labs:
    """Rows of labevents. Times are minutes since the admission they belong to."""

    stay: Ints
    item: Ints  # index into the catalog's items
    minute: Ints
    stored_minute: Ints  # NOT_STORED: the storetime is null
    value: Floats
    has_number: Bools  # False: the value is text and valuenum is null
    specimen: Ints  # shared by the rows of a draw
    has_hadm_id: Bools  # False: the hadm_id is null

    @property
    def available_minute(self) -> Ints:
        """The minute at which a value is known: the later of chart and store time."""
        return np.maximum(self.minute, self.stored_minute)

    def take(self, rows: Bools | Ints) -> "Labs":
        return Labs(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def join_labs(parts: list[Labs]) -> Labs:
    """Concatenate parts; specimens of different parts stay distinct."""
    columns = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Labs)
    }
    highest = np.cumsum([0, *[int(part.specimen.max(initial=-1)) + 1 for part in parts[:-1]]])
    columns["specimen"] += np.repeat(highest, [len(part.stay) for part in parts])
    return Labs(**columns)


def early_labs(catalog: Catalog, stays: Stays, density: float, rng: np.random.Generator) -> Labs:
    """Draw the rows of the first 48 hours and, for some stays, of the emergency room before them."""
    count = len(stays.patient)
    mean_draws = 1.2 * density * stays.intensity * stays.first_hours / 48 + max(density - 1, 0)
    draws = np.where(stays.is_blank | (rng.random(count) < 0.04), 0, 1 + rng.poisson(mean_draws))
    stay, index = expand_counts(draws)
    hour = np.where(index == 0, rng.uniform(0, 2, len(stay)), rng.uniform(0.5, stays.first_hours[stay]))
    emergency_stays = np.flatnonzero((rng.random(count) < 0.4) & ~stays.is_blank)
    inside = draw_lab_rows(
        catalog,
        stays,
        stay,
        hour,
        has_hadm_id=rng.random(len(stay)) > 0.06,
        is_first=index == 0,
        density=density,
        rng=rng,
    )
    emergency_hour = -rng.uniform(0.2, 8, len(emergency_stays))
    no_hadm_id = np.zeros(len(emergency_stays), dtype=bool)
    emergency = draw_lab_rows(
        catalog,
        stays,
        emergency_stays,
        emergency_hour,
        has_hadm_id=no_hadm_id,
        is_first=~no_hadm_id,
        density=density * 0.5,
        rng=rng,
    )
    return join_labs([inside, emergency])


def late_labs(
    catalog: Catalog, stays: Stays, hours: Floats, density: float, rng: np.random.Generator
) -> Labs:
    """Draw the rows from 48 hours to the end of the stay; `hours` is its length."""
    span = np.where(stays.length == LONG, hours - 48, 0.0)
    stay, _ = expand_counts(rng.poisson(0.46 * density * stays.intensity * span / 24))
    hour = 48 + rng.random(len(stay)) * span[stay]
    has_hadm_id = rng.random(len(stay)) > 0.06
    is_first = np.zeros(len(stay), dtype=bool)
    return draw_lab_rows(
        catalog, stays, stay, hour, has_hadm_id=has_hadm_id, is_first=is_first, density=density, rng=rng
    )


def outside_labs(
    catalog: Catalog,
    stays: Stays,
    hours: Floats,
    free_hours_before: Floats,
    died: Bools,
    rng: np.random.Generator,
) -> Labs:
    """Draw rows that no task may use: in the weeks before a stay, and after its end with its hadm_id.

    Args:
        free_hours_before: hours since the previous stay, [S]; infinite for the first stay.
    """
    count = len(stays.patient)
    stays_before = np.flatnonzero((rng.random(count) < 0.3) & (free_hours_before > 30))
    span = np.minimum(free_hours_before[stays_before] - 2, 60 * 24) - 25
    weeks_before = -(25 + rng.random(len(stays_before)) * span)
    stays_after = np.flatnonzero((rng.random(count) < 0.02) & ~died)
    stay = np.concatenate([stays_before, stays_after])
    hour = np.concatenate([weeks_before, hours[stays_after] + rng.uniform(0.1, 6, len(stays_after))])
    has_hadm_id = np.arange(len(stay)) >= len(stays_before)
    return draw_lab_rows(
        catalog, stays, stay, hour, has_hadm_id=has_hadm_id, is_first=~has_hadm_id, density=0.6, rng=rng
    )


def outpatient_labs(
    catalog: Catalog, stays: Stays, free_hours_before: Floats, visits: float, rng: np.random.Generator
) -> Labs:
    """Draw rows of outpatient visits in the year before each stay, `visits` on average; no task may use them."""
    has_room = free_hours_before > 30
    stay, _ = expand_counts(rng.poisson(np.where(has_room, visits, 0.0)))
    span = np.minimum(free_hours_before[stay] - 2, 365 * 24) - 25
    hour = -(25 + rng.random(len(stay)) * span)
    no_hadm_id = np.zeros(len(stay), dtype=bool)
    return draw_lab_rows(
        catalog, stays, stay, hour, has_hadm_id=no_hadm_id, is_first=~no_hadm_id, density=1.0, rng=rng
    )


def draw_lab_rows(
    catalog: Catalog,
    stays: Stays,
    stay: Ints,
    hour: Floats,
    *,
    has_hadm_id: Bools,
    is_first: Bools,
    density: float,
    rng: np.random.Generator,
) -> Labs:
    """Draw the panels of each blood draw and measure their items; a density below 1 reduces the panels."""
    labs = catalog.labs
    odds = np.where(is_first[:, None], logit(labs.first_draw), logit(labs.later_draw))
    share = sigmoid(odds + stays.factors[stay] @ labs.gain.T) * min(1.0, density)
    draw, panel = np.nonzero(rng.random(share.shape) < share)
    sizes = np.diff(labs.first_item)
    rare = len(sizes) - 1
    owner, index = expand_counts(np.where(panel == rare, 1, sizes[panel]))
    item = labs.first_item[panel[owner]] + index
    is_rare = panel[owner] == rare
    item[is_rare] += np.minimum(rng.zipf(1.25, int(is_rare.sum())) - 1, sizes[rare] - 1)
    is_measured = rng.random(len(item)) < 0.95
    draw, item = draw[owner][is_measured], item[is_measured]
    return _measure(catalog, stays, stay[draw], item, hour[draw], has_hadm_id[draw], draw, rng)


def _measure(
    catalog: Catalog,
    stays: Stays,
    stay: Ints,
    item: Ints,
    hour: Floats,
    has_hadm_id: Bools,
    specimen: Ints,
    rng: np.random.Generator,
) -> Labs:
    minute = np.floor(hour * 60).astype(np.int64)
    delay = np.exp(rng.normal(np.log(70), 0.5, len(item)))
    delay = np.where(rng.random(len(item)) < 0.02, delay * 30, delay).astype(np.int64)
    store_minute = np.where(rng.random(len(item)) < 0.01, NOT_STORED, minute + delay)
    rise = stays.slope[stay] * np.clip((hour - 20) / 24, -0.8, 1.2)
    level = _expected_level(catalog, stays, stay, item)
    level += 0.75 * rise * catalog.labs.loadings[:, _RISING].sum(axis=1)[item]
    level += stays.item_levels[stay, item] + rng.normal(0, 0.25, len(item))
    return Labs(
        stay=stay,
        item=item,
        minute=minute,
        stored_minute=store_minute,
        value=_to_units(catalog, item, level),
        has_number=rng.random(len(item)) > 0.05,
        specimen=specimen,
        has_hadm_id=has_hadm_id,
    )


def _expected_level(catalog: Catalog, stays: Stays, stay: Ints, item: Ints) -> Floats:
    """Return the expected level of each row from the factors of its stay; most items load on one or two of nine."""
    loadings = catalog.labs.loadings
    most = int((loadings != 0).sum(axis=1).max())
    level = np.zeros(len(item))
    for factor in np.argsort(loadings == 0, axis=1, kind="stable")[:, :most].T:
        weight = np.take_along_axis(loadings, factor[:, None], axis=1)[:, 0]
        level += stays.factors[stay, factor[item]] * weight[item]
    return level


def _to_units(catalog: Catalog, item: Ints, level: Floats) -> Floats:
    """Convert standard deviations into the unit of the item, rounded like the laboratory does."""
    labs = catalog.labs
    value = labs.mean[item] + labs.sd[item] * level
    is_log = labs.is_log[item]
    value[is_log] = np.exp(np.minimum(value[is_log], 12.0))
    scale = (10.0**labs.decimals)[item]
    return np.round(value * scale) / scale


def standardize(catalog: Catalog, item: Ints, value: Floats) -> Floats:
    """Return the distance of the written values from the means of their items, in standard deviations."""
    labs = catalog.labs
    is_log = np.flatnonzero(labs.is_log[item])
    level, half_a_digit = value.copy(), 0.5 / 10.0**labs.decimals
    level[is_log] = np.log(np.maximum(value[is_log], half_a_digit[item[is_log]]))
    return np.asarray((level - labs.mean[item]) / labs.sd[item])
