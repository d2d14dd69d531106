"""A cohort file said again in plain English, so that whoever wrote it sees what it means before anything runs."""

from collections.abc import Callable, Sequence
from typing import Any

from schemas.cohort.codes import VOCAB_NAMES
from schemas.cohort.conditions import (
    DataUntil,
    EncounterFilter,
    EncounterSeen,
    EventNotSeen,
    EventSeen,
    IndexAlive,
    IndexHas,
    IndexLongerThan,
    IndexWithout,
)
from schemas.cohort.look_ahead import look_aheads
from schemas.cohort.model import HASH_SPLIT, Cohort
from schemas.cohort.outcomes import (
    AnyEncounter,
    AnyEvent,
    ClassOf,
    EncountersWith,
    EpisodesOf,
    IndexDied,
    LabelsOf,
)
from schemas.cohort.times import TimePoint

_ANCHORS = {
    "index.start": "the start of the index encounter",
    "index.end": "the end of the index encounter",
    "predict_at": "the prediction",
    "birth": "birth",
    "end_of_data": "the end of the data",
}


def in_english(cohort: Cohort) -> list[str]:
    """Return what a cohort file means, a sentence for each of its parts, the code lists last."""
    excluded = [f"  - {name}: unless {_CONDITIONS[type(part)](part)}" for name, part in cohort.requirements]
    return [
        f"{cohort.cohort}: {cohort.about}",
        f"For: {_index(cohort)}.",
        *(["Excluded, in this order:", *excluded] if excluded else []),
        *(f"Known only after the prediction: {name}, as {why}." for name, why in look_aheads(cohort).items()),
        f"Predicted at: {_time(cohort.predict_at)}.",
        f"From: {_features(cohort)}.",
        f"Outcome: {_OUTCOMES[type(cohort.outcome)](cohort.outcome)}.",
        f"Split: {_split(cohort)}.",
        *(f"Codes of {name}: {_codes(cohort, name)}." for name in cohort.codes),
    ]


def _index(cohort: Cohort) -> str:
    index = cohort.index
    found = [f"{_encounter(index.encounter)} that has ended"]
    found += [f"from {index.from_} on"] if index.from_ else []
    found += [f"until {index.to}"] if index.to else []
    if index.age:
        found.append(f"at an age from {index.age[0]} to under {index.age[1]}")
    which = {"every": "every ", "first": "each patient's first "}.get(index.keep.which, "each patient's ")
    near = f", the one nearest to the age of {index.keep.age}" if index.keep.age else ""
    return which + ", ".join(found) + near


def _features(cohort: Cohort) -> str:
    rule = cohort.features
    said = "everything known by the prediction"
    said += f", but nothing up to {_time(rule.since)}" if rule.since else ""
    said += f", without {_or(rule.drop_types)} of any encounter" if rule.drop_types else ""
    return said + (
        f", without the index encounter's own {_or(rule.drop_from_index)}" if rule.drop_from_index else ""
    )


def _split(cohort: Cohort) -> str:
    days = cohort.split.test_if_birth_day
    if days:
        return f"patients born on days {days[0]} to {days[1]} of a month are tested on"
    train, val, test = HASH_SPLIT
    return f"{train} % of the patients to learn from, {val} % to choose by, {test} % to test on, alike for every task"


def _codes(cohort: Cohort, name: str) -> str:
    patterns = cohort.codes[name].patterns
    return "; ".join(f"{VOCAB_NAMES[vocab]} {', '.join(found)}" for vocab, found in patterns.items())


def _encounter(wanted: EncounterFilter) -> str:
    said = "encounter"
    said += f" of type {_or(wanted.type)}" if wanted.type else ""
    said += f" discharged to {_or(wanted.discharge_status)}" if wanted.discharge_status else ""
    return said + (f" with a code of {wanted.with_}" if wanted.with_ else "")


def _time(time: TimePoint) -> str:
    if not time.offset.count:
        return _ANCHORS[time.anchor]
    return f"{time.offset} {'after' if time.sign > 0 else 'before'} {_ANCHORS[time.anchor]}"


def _span(part: EventSeen | EncounterSeen) -> str:
    after = f" after {_time(part.after)}" if part.after else ""
    before = f" by {_time(part.before)}" if part.before else ""
    return f"{after}{' and' if after and before else ''}{before}"


def _window(outcome: AnyEncounter | AnyEvent | EncountersWith | EpisodesOf) -> str:
    if outcome.until:
        return f"after the prediction, by {_time(outcome.until)}"
    if outcome.within == "end_of_data":
        return "after the prediction, by the end of the data"
    return f"within {outcome.within} after the prediction"


def _encounters_with(outcome: EncountersWith) -> str:
    days = ", each on another day" if outcome.on_distinct_days else ""
    many = "one encounter or more" if outcome.at_least == 1 else f"{outcome.at_least} encounters or more"
    return f"{many} with a code of {outcome.encounters_with}{days}, {_window(outcome)}"


def _episodes_of(outcome: EpisodesOf) -> str:
    rates = " or ".join(f"{rate.count} within {rate.within}" for rate in outcome.at_least)
    new = f"a day more than {outcome.new_episode_after} after the last one with a code begins a new one"
    first = f"the index encounter is the first episode, and {new}"
    return f"episodes of {outcome.episodes_of}, {rates}, the last of them {_window(outcome)}; {first}"


def _class_of(outcome: ClassOf) -> str:
    return f"which {outcome.map} the index encounter's diagnosis of rank {outcome.rank} is of"


def _labels_of(outcome: LabelsOf) -> str:
    common = f"that {outcome.min_index} training index encounters or more have"
    return f"each {outcome.map} of the index encounter's diagnoses {common}"


def _or(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


_CONDITIONS: dict[type, Callable[[Any], str]] = {
    IndexHas: lambda part: {"end": "it has ended", "principal_dx": "it has a first diagnosis"}[
        part.index_has
    ],
    IndexWithout: lambda part: f"it has no code of {part.index_without}",
    IndexLongerThan: lambda part: f"it lasts longer than {part.index_longer_than}",
    IndexAlive: lambda _: "the patient leaves it alive",
    DataUntil: lambda part: f"the data reach to {_time(part.data_until)}",
    EventSeen: lambda part: f"there is a code of {part.event}{_span(part)}",
    EventNotSeen: lambda part: f"there is no code of {part.no_event} by {_time(part.before)}",
    EncounterSeen: lambda part: f"another {_encounter(part.any_encounter)} starts{_span(part)}",
}
_OUTCOMES: dict[type, Callable[[Any], str]] = {
    IndexDied: lambda _: "death in the index encounter",
    IndexLongerThan: lambda part: f"the index encounter lasts longer than {part.index_longer_than}",
    AnyEncounter: lambda part: f"another {_encounter(part.any_encounter)} starts {_window(part)}",
    AnyEvent: lambda part: f"a code of {part.any_event} {_window(part)}",
    EncountersWith: _encounters_with,
    EpisodesOf: _episodes_of,
    ClassOf: _class_of,
    LabelsOf: _labels_of,
}
