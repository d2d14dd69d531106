"""Plausibility of the events of a sample of subjects: checks that would be too expensive on all of them.

At least a thousand subjects are drawn by a hash of their id, the same ones every time: a fault in a whole table, or
in a part of it, is in the sample too. If there are fewer than two thousand subjects, all are used.
"""

from schemas.expectations.plausible_events import rules_by_kind
from schemas.expectations.plausible_values import item_values
from schemas.expectations.sex_codes import is_sex_specific
from schemas.expectations.suite import Rule, View, holds, share_rules
from schemas.expectations.usual import KIND_NAMES, Usual

SAMPLED = 1000
STAYS_OF_A_PART, MOST_PARTS = 50, 10  # parts of the subjects; a truncated file has no events in the last ones
FEWEST_STAYS = 100  # stays with events of a kind, for a meaningful median
LEAST_OF_A_PART = 0.25  # relative to the share of all stays that have an event of a kind
FEWEST_OF_A_PART = 20  # expected stays with a kind in a part; with fewer it may have none by chance
IS_SAMPLED = f"""subject_id IN (SELECT subject_id FROM subjects
    WHERE hash(subject_id) % (SELECT greatest(1, count(*) // {SAMPLED}) FROM subjects) = 0)"""

_SAMPLE = f"""SELECT subject_id, encounter_id, time, kind, vocab, code, mapped, value, unit
    FROM events WHERE {IS_SAMPLED}"""
_REPEATS = """SELECT kind, sum(copies) AS events, sum(copies - 1) AS repeated FROM (
    SELECT kind, count(*) AS copies FROM events_sampled GROUP BY kind, hash(subject_id, time, code, value))
    GROUP BY kind"""
_SEX_CODES = f"""SELECT count_if(sex = 'M' AND of_women OR sex = 'F' AND of_men) AS contradicted,
    count_if(of_women OR of_men) AS codes FROM (
        SELECT s.sex, {is_sex_specific(female=True)} AS of_women, {is_sex_specific(female=False)} AS of_men
        FROM events_sampled v JOIN subjects s USING (subject_id)
        WHERE v.kind IN ('DX', 'PR') AND s.sex IN ('F', 'M'))"""
_COVERED = f"""
    WITH stays AS (
        SELECT encounter_id, start, "end",
            (row_number() OVER (ORDER BY subject_id, start) - 1)
                * least({MOST_PARTS}, greatest(1, count(*) OVER () // {STAYS_OF_A_PART})) // count(*) OVER () AS part,
            percent_rank() OVER (ORDER BY start) AS place_in_time
        FROM encounters WHERE {IS_SAMPLED} AND type IS DISTINCT FROM 'hidden'),
    spans AS (
        SELECT encounter_id, kind, min(time) AS first, max(time) AS last
        FROM events_sampled WHERE encounter_id IS NOT NULL GROUP BY ALL),
    parts AS (
        SELECT kinds.kind, stays.part, count(*) AS stays, count(spans.kind) AS covered,
            count_if(place_in_time >= 0.9) AS last_stays,
            count(spans.kind) FILTER (place_in_time >= 0.9) AS last_covered
        FROM stays CROSS JOIN (SELECT DISTINCT kind FROM spans) kinds
        LEFT JOIN spans ON spans.encounter_id = stays.encounter_id AND spans.kind = kinds.kind GROUP BY ALL),
    middles AS (
        SELECT kind, median(epoch(first) - epoch(start)) / 3600 AS first_hours,
            median(epoch("end") - epoch(last)) / 3600 AS last_hours
        FROM spans JOIN stays USING (encounter_id) GROUP BY kind)
    SELECT kind, sum(stays) AS stays, sum(covered) AS covered, count(*) AS parts, min(covered / stays) AS least_covered,
        sum(last_stays) AS last_stays, sum(last_covered) / sum(last_stays) AS last_covered,
        any_value(first_hours) AS first_hours, any_value(last_hours) AS last_hours
    FROM parts JOIN middles USING (kind) GROUP BY kind"""


def event_samples(usual: Usual) -> list[View]:
    """Return the views on a sample of the subjects: the sample itself, then the counts in it."""
    duplicates = rules_by_kind(
        usual.duplicates, "{}_are_recorded_once", "repeated", "events", "time", "code", "value"
    )
    sex_rules = share_rules(
        "codes_of_one_sex_fit_the_subject", "contradicted", "codes", "code", "sex", bounds=(0.02, 0.50)
    )
    return [
        View("events_sampled", _SAMPLE, is_stored=True),
        View("events_repeated", _REPEATS, tuple(duplicates), is_stored=True),
        View("codes_of_one_sex", _SEX_CODES, tuple(sex_rules), is_stored=True),
        View("stays_with_events", _COVERED, tuple(_coverage_rules(usual)), is_stored=True, label="kind"),
        item_values(),
    ]


def _coverage_rules(usual: Usual) -> list[Rule]:
    return [
        *rules_by_kind(usual.stays_without, "stays_have_{}", "stays - covered", "stays", "encounter_id"),
        *(rule for kind in usual.duplicates for rule in _spread_rules(kind)),
        *(_start_rule(kind, *bounds) for kind, bounds in usual.first_hours.items()),
        *(_end_rule(kind, hours) for kind, hours in usual.last_hours.items()),
    ]


def _spread_rules(kind: str) -> list[Rule]:
    """Return rules that a kind is not nearly absent in a tenth of the subjects or in the last tenth of the time."""
    least = f"{LEAST_OF_A_PART} * covered / stays"
    has_parts = f"parts > 1 AND covered >= {FEWEST_OF_A_PART} * parts"
    has_last = f"last_stays >= {STAYS_OF_A_PART} AND covered * last_stays >= {FEWEST_OF_A_PART} * stays"
    return [
        _kind_rule(
            kind, "{}_are_spread_over_the_subjects", has_parts, f"least_covered >= {least}", "subject_id"
        ),
        _kind_rule(kind, "{}_reach_the_last_stays", has_last, f"last_covered >= {least}", "time"),
    ]


def _start_rule(kind: str, low: float, high: float) -> Rule:
    return _kind_rule(
        kind,
        "{}_begin_with_their_stays",
        f"covered >= {FEWEST_STAYS}",
        f"first_hours BETWEEN {low} AND {high}",
        "time",
    )


def _end_rule(kind: str, hours: float) -> Rule:
    return _kind_rule(
        kind,
        "{}_last_until_their_stays_end",
        f"covered >= {FEWEST_STAYS}",
        f"last_hours <= {hours}",
        "time",
    )


def _kind_rule(kind: str, claim: str, applies: str, sql: str, column: str) -> Rule:
    return holds(
        claim.format(KIND_NAMES[kind]),
        f"CASE WHEN kind = '{kind}' AND {applies} THEN {sql} END",
        column,
        severity="WARN",
    )
