"""Plausibility of events relative to their stays and subjects, counted by kind in one pass over all events."""

from collections.abc import Mapping

from schemas.expectations.suite import Bounds, Rule, View, share_rules
from schemas.expectations.usual import KIND_NAMES, Usual
from schemas.tables.events import CODED_AT_THE_END

DAY_US = 86_400_000_000
LARGEST_USUAL, LARGEST_POSSIBLE = 1e9, 1e12
"""Bounds on any value: no measurement comes near the first (a viral load reaches 1e8)."""
CODES_OF = {"DX": "diagnosis", "PR": "procedure_code"}
IN_STAY = ("time", "encounter_id")

_STAYS = """(SELECT encounter_id, any_value(subject_id) AS subject_id, any_value(start) AS start,
    any_value("end") AS "end",
    any_value(start) - INTERVAL 1 DAY AS day_before, any_value("end") + INTERVAL 1 DAY AS day_after
    FROM encounters GROUP BY encounter_id)"""
_SUBJECTS = """(SELECT subject_id, any_value(sex) AS sex, any_value(birth_date) - INTERVAL 1 DAY AS before_birth,
    any_value(death_date) + INTERVAL 2 DAY AS after_death FROM subjects GROUP BY subject_id)"""

COUNTS = {
    "events": "true",
    "of_nobody": "s.subject_id IS NULL",
    "with_stay": "v.encounter_id IS NOT NULL",
    "of_no_such_stay": "v.encounter_id IS NOT NULL AND e.subject_id IS DISTINCT FROM v.subject_id",
    "known_before_the_end": 'v.available_at < coalesce(e."end", e.start)',
    "far": "v.time < e.day_before OR v.time > e.day_after",
    "early": f"v.time < e.start AND epoch_us(v.time) % {DAY_US} <> 0",
    "late": 'v.time > e."end"',
    "on_the_hour": f"epoch_us(v.time) % {DAY_US // 24} = 0",
    "at_midnight": f"epoch_us(v.time) % {DAY_US} = 0",
    "at_once": "v.available_at <= v.time",
    "slow": f"epoch_us(v.available_at) - epoch_us(v.time) > {7 * DAY_US}",
    "of_the_dead": "s.after_death IS NOT NULL",
    "after_death": "v.time > s.after_death",
    "before_birth": "v.time < s.before_birth",
    "with_value": "v.value IS NOT NULL",
    "large": f"isfinite(v.value) AND abs(v.value) >= {LARGEST_USUAL}",
    "impossible": f"isfinite(v.value) AND abs(v.value) >= {LARGEST_POSSIBLE}",
}


def event_counts(usual: Usual) -> View:
    """Return the view of counts by kind, with rules that hold each kind to its own bounds."""
    counts = ", ".join(f"count_if({sql}) AS {name}" for name, sql in COUNTS.items())
    query = f"""SELECT v.kind, {counts} FROM events v
        LEFT JOIN {_SUBJECTS} s USING (subject_id) LEFT JOIN {_STAYS} e USING (encounter_id) GROUP BY v.kind"""
    by_kind = (*_stay_rules(usual), *_time_of_day_rules(usual), *_availability_rules(usual))
    rules = (*_strict_rules(), *_rules_for_all_kinds(), *by_kind)
    return View("events_counted", query, rules, is_stored=True)


def rules_by_kind(
    bounds: Mapping[str, Bounds], claim: str, violations: str, of: str, *columns: str
) -> list[Rule]:
    """Return rules that bound the share of `violations` in `of` for each kind; `claim` is a template for its name."""
    return [
        rule
        for kind, kind_bounds in bounds.items()
        for rule in share_rules(
            claim.format(KIND_NAMES[kind]),
            f"CASE kind WHEN '{kind}' THEN {violations} END",
            f"CASE kind WHEN '{kind}' THEN {of} END",
            *columns,
            bounds=kind_bounds,
        )
    ]


def _strict_rules() -> list[Rule]:
    """Return rules no row may break: subject and stay exist, and codes assigned at the end are known only then."""
    none_allowed = (None, 0.0)
    stay = "encounter_is_known_and_of_its_subject"
    return [
        *share_rules("subject_is_known", "of_nobody", "events", "subject_id", bounds=none_allowed),
        *share_rules(stay, "of_no_such_stay", "with_stay", "encounter_id", "subject_id", bounds=none_allowed),
        *(rule for kind in CODED_AT_THE_END for rule in _end_coding_rules(kind)),
    ]


def _end_coding_rules(kind: str) -> list[Rule]:
    violations, of = (
        f"CASE kind WHEN '{kind}' THEN {count} END" for count in ("known_before_the_end", "with_stay")
    )
    name = f"{CODES_OF[kind]}_is_known_from_the_end_on"
    return share_rules(name, violations, of, "available_at", "encounter_id", bounds=(None, 0.0))


def _rules_for_all_kinds() -> list[Rule]:
    """Return rules for all kinds: events lie within the patient's life, and values are of a possible size."""
    bounds = (0.001, 0.05)
    return [
        *share_rules("events_precede_death", "after_death", "of_the_dead", "time", bounds=bounds),
        *share_rules("events_follow_birth", "before_birth", "events", "time", bounds=bounds),
        *share_rules("value_is_of_a_usual_size", "large", "with_value", "value", bounds=(0, None)),
        *share_rules(
            "value_is_of_a_possible_size", "impossible", "with_value", "value", bounds=(None, 0.001)
        ),
    ]


def _stay_rules(usual: Usual) -> list[Rule]:
    return [
        *rules_by_kind(usual.far, "{}_lie_near_their_stays", "far", "with_stay", *IN_STAY),
        *rules_by_kind(usual.early, "{}_seldom_precede_their_stays", "early", "with_stay", *IN_STAY),
        *rules_by_kind(usual.late, "{}_seldom_follow_their_stays", "late", "with_stay", *IN_STAY),
    ]


def _time_of_day_rules(usual: Usual) -> list[Rule]:
    return [
        *rules_by_kind(usual.midnight, "{}_have_times_of_day", "at_midnight", "events", "time"),
        *rules_by_kind(usual.on_the_hour, "{}_have_minutes", "on_the_hour", "events", "time"),
    ]


def _availability_rules(usual: Usual) -> list[Rule]:
    columns = ("available_at", "time")
    return [
        *rules_by_kind(usual.at_once, "{}_are_known_after_they_happen", "at_once", "events", *columns),
        *rules_by_kind(usual.slow, "{}_are_known_within_a_week", "slow", "events", *columns),
    ]
