"""Random patients and random cohort files that use the whole language, with times on a grid that hits bounds."""

from datetime import datetime, timedelta
from random import Random

import polars as pl

from schemas.tables.events import ENCOUNTERS, EVENTS, SUBJECTS
from tests.support.cohort_tables import (
    CODES,
    DAY,
    DAY_ZERO,
    HOUR,
    MICROSECOND,
    Row,
    diagnosis,
    frame,
    stay,
    subject,
)

TYPES, STATUSES = ("AV", "ED", "IP", None), ("HO", "HH", None)
LENGTHS = (None, HOUR, DAY, DAY + MICROSECOND, 2 * DAY, 5 * DAY, 14 * DAY, 31 * DAY)
DURATIONS = ("24 hours", "5 days", "10 days", "14 days", "1 month", "2 months")
UNITS = ("mg/dL", "mg/dL", "MG/DL", "g/L", "umol/L", "mmol/L", "%", None)
CODE_LISTS = {
    "heart": {"icd9cm": ["401*"], "icd10cm": ["I10"]},
    "sugar": {"icd9cm": ["250.00", "V58*"], "atc": ["A10*"]},
    "shot": {"cvx": ["08"]},
    "creatinine": {"itemid": ["50912"]},
}


def world(random: Random, patients: int = 10) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return subjects, encounters and events of a few patients; the value of an event is its number."""
    subjects, encounters, events = list[Row](), list[Row](), list[Row]()
    for of in range(1, patients + 1):
        dead = random.choice([None, None, DAY_ZERO + 20 * DAY])
        birth_date = random.choice(
            [None, DAY_ZERO - 365 * DAY, DAY_ZERO - 59 * DAY, DAY_ZERO, DAY_ZERO + 10 * DAY]
        )
        person = subject(of, random.choice(["train", "train", "val", "test"]), dead)
        subjects.append(person | {"birth_date": birth_date, "sex": random.choice(["F", "M", None])})
        stays = [_stay(random, of, of * 100 + place) for place in range(random.randint(0, 8))]
        encounters += stays
        events += [_event(random, of, stays) for _ in range(random.randint(0, 25))]
    random.shuffle(encounters)
    events = [row | {"value": float(number), "rank": _rank(row, number)} for number, row in enumerate(events)]
    return frame(subjects, SUBJECTS), frame(encounters, ENCOUNTERS), frame(events, EVENTS)


def _rank(event: Row, number: int) -> int | None:
    return number % 3 + 1 if event["kind"] == "DX" else None


def _stay(random: Random, of: int, number: int) -> Row:
    start = DAY_ZERO + random.randint(0, 18) * 5 * DAY + random.choice([0, 0, 9]) * HOUR
    length = random.choice(LENGTHS)
    died, dead_after = random.random() < 0.15, random.choice(LENGTHS)
    row = stay(
        number,
        start,
        None if length is None else start + length,
        died=died,
        death_time=None if dead_after is None else start + dead_after,
        of=of,
    )
    attributes = {
        "admission_type": ["URGENT", "ELECTIVE", None],
        "insurance": ["A", "B"],
        "race": ["X", None],
    }
    row |= {column: random.choice(values) for column, values in attributes.items()}
    return row | {"type": random.choice(TYPES), "discharge_status": random.choice(STATUSES)}


def _event(random: Random, of: int, stays: list[Row]) -> Row:
    home = random.choice([None, *stays, *stays])
    start = DAY_ZERO + random.randint(0, 90) * DAY if home is None else home["start"]
    assert isinstance(start, datetime)
    time = start + random.choice([timedelta(), HOUR, DAY, 5 * DAY])
    kind, vocab, code, target = random.choice(
        [
            *(("DX", "icd10cm" if code == target else "icd9cm", code, target) for code, target in CODES),
            *[("DX", "icd9cm", "4019", "I10")] * 4,
            *[("MED", "name", "metformin", "A10BA02")] * 3,
            ("IMM", "cvx", "08", None),
            *[("LAB", "itemid", "50912", None)] * 6,
        ]
    )
    number = 0 if home is None else home["encounter_id"]
    row = diagnosis(number, code, target, vocab=vocab, of=of) | {"kind": kind, "time": time}  # type: ignore[arg-type]
    return row | {
        "encounter_id": number or None,
        "unit": random.choice(UNITS) if kind == "LAB" else None,
        "available_at": time + random.choice([timedelta(), DAY, 5 * DAY]),
    }


def spec(random: Random) -> dict:
    """Return a valid cohort file over `world`, as plain data."""
    at_end = random.random() < 0.6
    offset = random.choice(("24 hours", "2 days"))
    outcome = _outcome(random, at_end=at_end)
    reads_dx = "class_of" in outcome or "labels_of" in outcome
    require = [{f"step {place}": _condition(random)} for place in range(random.randint(0, 2))]
    predict_at = random.choice(["index.end", "index.end", "index.end + 5 days"])
    if not at_end:
        predict_at = random.choice(["index.start", f"index.start + {offset}"])
        require.append({"still there": {"index_longer_than": "2 days"}})
    return {
        "cohort": "made_up",
        "about": "made up",
        "source": "pcornet",
        "codes": CODE_LISTS,
        "index": _index(random),
        "require": require,
        "predict_at": predict_at,
        "features": _features(random, ["DX"] if reads_dx else random.choice([[], ["LAB"], ["DX", "MED"]])),
        "outcome": outcome,
        "split": {"test_if_birth_day": [17, 24]},
    }


def episodes_spec(random: Random) -> dict:
    """Return a file with an outcome of episodes whose lengths are on the grid."""
    outcome = {
        "episodes_of": "heart",
        "new_episode_after": random.choice(["4 days", "5 days", "10 days"]),
        "at_least": random.choice([["2 in 10 days"], ["3 in 20 days", "4 in 1 month"], ["2 in 15 days"]]),
        "within": random.choice(["20 days", "2 months", "end_of_data"]),
    }
    return spec(random) | {
        "index": {"encounter": {}},
        "require": [],
        "predict_at": "index.end",
        "features": {"until": "predict_at"},
        "outcome": outcome,
    }


def number_spec(random: Random) -> dict:
    """Return a file whose outcome is a number: days left, or a value of an event."""
    value = {
        "value_of": "creatinine",
        "which": random.choice(["first", "last", "lowest", "highest"]),
        "unit": "mg/dL",
        "within": random.choice(["5 days", "20 days", "2 months", "end_of_data"]),
    }
    value |= random.choice([{}, {"substance": "creatinine"}])
    at_end = random.random() < 0.5
    return spec(random) | {
        "index": {"encounter": {}},
        "require": [] if at_end else [{"still there": {"index_longer_than": "24 hours"}}],
        "predict_at": random.choice(
            ["index.end", "index.end + 5 days"] if at_end else ["index.start + 24 hours"]
        ),
        "features": {"until": "predict_at"},
        "outcome": value if at_end or random.random() < 0.5 else {"index_days_left": True},
    }


def time_spec(random: Random) -> dict:
    """Return a file whose outcome is a time to an event, an encounter or death."""
    window = random.choice([{"within": "20 days"}, {"within": "2 months"}, {"within": "end_of_data"}])
    until = {"until": random.choice(["birth + 4 months", "index.end + 10 days"])}
    to = random.choice(
        [{"died": True}, {"died": True}, {"any_event": "heart"}, {"any_encounter": _filter(random)}]
    )
    return spec(random) | {
        "index": {"encounter": {}},
        "require": [],
        "predict_at": random.choice(["index.end", "index.end + 5 days"]),
        "features": {"until": "predict_at"},
        "outcome": {"time_to": to} | random.choice([window, window, until]),
    }


def _index(random: Random) -> dict:
    index: dict = {"encounter": _filter(random)}
    if random.random() < 0.2:
        index["from"] = (DAY_ZERO + 10 * DAY).date()
    if random.random() < 0.2:
        index["to"] = (DAY_ZERO + 60 * DAY).date()
    if random.random() < 0.2:
        index["age"] = random.choice([["0 days", "1 year"], ["59 days", "2 years"], ["1 month", "3 months"]])
    return index | {"keep": random.choice(["every", "every", "first", "nearest 2 months", "nearest 1 year"])}


def _filter(random: Random) -> dict:
    filters: dict = {}
    if random.random() < 0.2:
        filters["type"] = random.choice([["IP"], ["AV", "ED"]])
    if random.random() < 0.2:
        filters["discharge_status"] = ["HO"]
    if random.random() < 0.2:
        filters["with"] = random.choice(list(CODE_LISTS))
    if random.random() < 0.2:
        filters["sex"] = "F"
    if random.random() < 0.2:
        filters |= random.choice([{"admission_type": ["URGENT", "NEVER"]}, {"insurance": "A"}, {"race": "X"}])
    return filters


def _comparison(random: Random) -> dict:
    limit = random.choice(
        [
            {"above": "40 mg/dL"},
            {"below": "60 mg/dL"},
            {"at_least": "100 mg/dL"},
            {"at_most": "20.5 mg/dL"},
            {"between": ["30 mg/dL", "90 mg/dL"]},
        ]
    )
    which = random.choice(
        [
            *[{}] * 2,
            *[{"which": word} for word in ("first", "last", "any")],
            *[{"times": times} for times in ("2 in 5 days", "3 in 1 month")],
        ]
    )
    return {"lab": "creatinine"} | limit | which | random.choice([{}, {"substance": "creatinine"}])


def _time(random: Random) -> str:
    anchor = random.choice(["index.start", "index.end", "predict_at", "birth", "end_of_data"])
    return anchor + random.choice(["", f" + {random.choice(DURATIONS)}", f" - {random.choice(DURATIONS)}"])


def _condition(random: Random, depth: int = 0) -> dict:
    """Return a condition; at `depth` 0 and 1 it may be made of others."""
    if depth < 2 and random.random() < 0.25:
        parts = [_condition(random, depth + 1) for _ in range(random.randint(2, 3))]
        return random.choice(
            [
                {"any_of": parts},
                {"all_of": parts},
                {"of": parts, "at_least": random.randint(1, len(parts))},
                {"not": parts[0]},
            ]
        )
    codes, time = random.choice(list(CODE_LISTS)), _time(random)
    return random.choice(
        [
            {"index_is": _filter(random)},
            {"index_age": ["1 month", "1 year"]},
            _comparison(random) | {"before": time},
            _comparison(random) | {"after": "index.start - 2 months", "before": time},
            _comparison(random) | {"after": time},
            {"index_has": "principal_dx"},
            {"index_without": codes},
            {"index_longer_than": random.choice(DURATIONS)},
            {"index_alive": True},
            {"data_until": time},
            {"event": codes, "before": time},
            {"event": codes, "after": "birth", "before": time},
            {"no_event": codes, "before": time},
            {"any_encounter": _filter(random), "after": time},
            {"any_encounter": _filter(random), "after": "index.start - 2 months", "before": time},
        ]
    )


def _outcome(random: Random, *, at_end: bool) -> dict:
    codes = random.choice(list(CODE_LISTS))
    window = random.choice(
        [
            {"within": random.choice(DURATIONS)},
            *[{"within": "end_of_data"}] * 2,
            {"until": "birth + 4 months"},
        ]
    )
    choices: list[dict] = [
        {"any_encounter": _filter(random)} | window,
        {"any_event": codes} | window,
        {"any_event": codes, "first_ever": True} | window,
        {"died": True} | window,
        _comparison(random) | window,
        {
            "lab_class": "creatinine",
            "classes": [{"low": {"below": "40 mg/dL"}}, {"middle": {"at_most": "90 mg/dL"}}],
            "otherwise": "high",
            "which": random.choice(["first", "last"]),
        }
        | random.choice([{}, {"substance": "creatinine"}])
        | window,
        {
            "encounters_with": codes,
            "at_least": random.randint(1, 3),
            "on_distinct_days": random.random() < 0.5,
        }
        | window,
        {
            "episodes_of": codes,
            "new_episode_after": random.choice(["5 days", "14 days", "1 month"]),
            "at_least": random.choice(
                [["2 in 10 days"], ["2 in 1 month", "3 in 2 months"], ["3 in 3 months"]]
            ),
        }
        | window,
        {"class_of": "DX", "rank": random.randint(1, 2), "map": "icd10_chapter"},
        {"labels_of": "DX", "map": "icd10_3char", "min_index": random.randint(1, 3)},
    ]
    if not at_end:
        choices += [{"index_died": True}, {"index_longer_than": random.choice(["5 days", "1 month"])}]
    return random.choice(choices)


def _features(random: Random, drop_from_index: list[str]) -> dict:
    rule: dict = {"until": "predict_at", "drop_from_index": drop_from_index}
    if random.random() < 0.2:
        rule["drop_types"] = ["IMM"]
    start = random.choice(
        [None, None, "predict_at - 10 days", "predict_at - 1 month", "index.start - 1 month"]
    )
    return rule | ({"since": start} if start else {})
