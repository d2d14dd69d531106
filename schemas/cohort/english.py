"""Describe a cohort in plain English, so that its author can check the meaning before anything runs."""

from collections.abc import Callable, Sequence
from typing import Any

from schemas.code_names import NO_NAMES, CodeNames
from schemas.cohort.code_words import codes_in_words
from schemas.cohort.combinations import AllOf, AnyOf, Not, SomeOf, parts_of
from schemas.cohort.conditions import (
    DataUntil,
    EncounterFilter,
    EncounterSeen,
    EventNotSeen,
    EventSeen,
    InCohort,
    IndexAge,
    IndexAlive,
    IndexHas,
    IndexIs,
    IndexLongerThan,
    IndexWithout,
    LabSeen,
)
from schemas.cohort.look_ahead import cut_requirements, look_aheads
from schemas.cohort.model import HASH_SPLIT, Cohort
from schemas.cohort.outcomes import (
    AnyEncounter,
    AnyEvent,
    ClassOf,
    Died,
    EncountersWith,
    EpisodesOf,
    IndexDaysLeft,
    IndexDied,
    LabClass,
    LabelsOf,
    LabReached,
    TimeTo,
    ToDeath,
    ToEncounter,
    ValueOf,
)
from schemas.cohort.times import TimePoint
from schemas.cohort.values import COMPARISONS, Comparison, Limit

_ANCHORS = {
    "index.start": "the start of the index encounter",
    "index.end": "the end of the index encounter",
    "predict_at": "the prediction",
    "birth": "birth",
    "end_of_data": "the end of the data",
}


def in_english(cohort: Cohort, names: CodeNames = NO_NAMES) -> list[str]:
    """Return the meaning of a cohort file, one sentence per section, the code lists last, with the names of codes."""
    requirements = _requirements(cohort)
    return [
        f"{cohort.cohort}: {f'{cohort.title}: ' if cohort.title else ''}{cohort.about}",
        f"For: {_index(cohort)}.",
        *(["Required, in this order:", *requirements] if requirements else []),
        *(
            f"Known only after the prediction: {name}, as {reason}."
            for name, reason in look_aheads(cohort).items()
        ),
        *(
            f"Of {name}: diagnoses and procedures of a stay that has not ended by the prediction are not counted."
            for name in cut_requirements(cohort)
        ),
        f"Predicted at: {_time(cohort.predict_at)}.",
        f"From: {_features(cohort)}.",
        f"Outcome: {_OUTCOMES[type(cohort.outcome)](cohort.outcome)}.",
        f"Split: {_split(cohort)}.",
        *(f"Codes of {name}: {codes_in_words(codes, names)}." for name, codes in cohort.codes.items()),
        *(line for inner in cohort.family[1:] for line in _members(inner, cohort, names)),
    ]


def _members(cohort: Cohort, outer: Cohort, names: CodeNames) -> list[str]:
    """Return whom a cohort that is named in another is about, and when it predicts if that is another time."""
    requirements, moment = _requirements(cohort), cohort.predict_at
    prediction = f", with the prediction at {_time(moment)}" if moment != outer.predict_at else ""
    lists = [f"  - codes of {name}: {codes_in_words(codes, names)}." for name, codes in cohort.codes.items()]
    return [
        f"Index encounters of {cohort.cohort}: {_index(cohort)}{prediction}.",
        *(["Required of them, in this order:", *requirements] if requirements else []),
        *lists,
    ]


def _requirements(cohort: Cohort) -> list[str]:
    return [f"  - {name}: {_CONDITIONS[type(part)](part)}" for name, part in cohort.requirements]


def _index(cohort: Cohort) -> str:
    index = cohort.index
    phrases = [f"{_encounter(index.encounter)} that has ended"]
    phrases += [f"from {index.from_} on"] if index.from_ else []
    phrases += [f"until {index.to}"] if index.to else []
    if index.age:
        phrases.append(f"at an age from {index.age[0]} to under {index.age[1]}")
    determiner = {"every": "every ", "first": "each patient's first "}.get(index.keep.rule, "each patient's ")
    near = f", the one closest to the age of {index.keep.age}" if index.keep.age else ""
    return determiner + ", ".join(phrases) + near


def _features(cohort: Cohort) -> str:
    rule = cohort.features
    sentence = "everything known by the prediction"
    sentence += f", starting after {_time(rule.since)}" if rule.since else ""
    sentence += f", except {_or(rule.drop_types)} of any encounter" if rule.drop_types else ""
    return sentence + (
        f", except the index encounter's own {_or(rule.drop_from_index)}" if rule.drop_from_index else ""
    )


def _split(cohort: Cohort) -> str:
    days = cohort.split.test_if_birth_day
    if days:
        return f"patients born on days {days[0]} to {days[1]} of a month are the test set"
    train, val, test = HASH_SPLIT
    shares = f"{train} % of the patients for training, {val} % for validation, {test} % for testing"
    return f"{shares}, the same for every task"


def _encounter(encounter: EncounterFilter) -> str:
    phrase = "encounter"
    phrase += f" of type {_or(encounter.type)}" if encounter.type else ""
    phrase += f" discharged to {_or(encounter.discharge_status)}" if encounter.discharge_status else ""
    phrase += f" with a code of {encounter.with_}" if encounter.with_ else ""
    words = {"admission_type": "admission type", "insurance": "insurance", "race": "race", "sex": "sex"}
    conditions = [
        f"{word} {_or(encounter.values[key])}" for key, word in words.items() if key in encounter.values
    ]
    return phrase + (f" with {' and '.join(conditions)}" if conditions else "")


def _time(time: TimePoint) -> str:
    if not time.offset.count:
        return _ANCHORS[time.anchor]
    return f"{time.offset} {'after' if time.sign > 0 else 'before'} {_ANCHORS[time.anchor]}"


def _comparison(part: Limit) -> str:
    if part.between:
        return f"from {part.between[0]} to {part.between[1]}"
    key = next(key for key in COMPARISONS if getattr(part, key) is not None)
    return f"{key.replace('_', ' ')} {getattr(part, key)}"


def _value(part: Comparison, when: str) -> str:
    """Return which values meet a comparison: `there is a value of potassium above 6 mmol/L, taken …`."""
    if part.times:
        many = f"{part.times.count} values of {part.lab} {_comparison(part)}"
        return f"there are {many} within {part.times.period} of one another,{when}"
    if part.which in ("first", "last"):
        return f"the {part.which} value of {part.lab}{when} is {_comparison(part)}"
    return f"there is a value of {part.lab} {_comparison(part)},{when}"


def _lab_class(outcome: LabClass) -> str:
    classes = [f"{name} if {_comparison(limit)}" for item in outcome.classes for name, limit in item.items()]
    value = f"the {outcome.which} value of {outcome.lab_class} taken {_window(outcome)}"
    return f"the class of {value}: {', else '.join([*classes, outcome.otherwise])}; an index without one is left out"


def _lab_seen(part: LabSeen) -> str:
    after = f" taken after {_time(part.after)}" if part.after else ""
    before = f" known by {_time(part.before)}" if part.before else ""
    return _value(part, f"{after}{' and' if after and before else ''}{before}")


def _combination(part: AnyOf | AllOf | SomeOf | Not) -> str:
    phrases = [f"({_CONDITIONS[type(inner)](inner)})" for _, inner in parts_of(part)]
    match part:
        case Not():
            return f"it is not so that {phrases[0]}"
        case AnyOf():
            return " or ".join(phrases)
        case AllOf():
            return " and ".join(phrases)
    return f"at least {part.at_least} of these hold: {', '.join(phrases)}"


def _span(part: EventSeen | EncounterSeen) -> str:
    lower = f" after {_time(part.after)}" if part.after else ""
    upper = f" by {_time(part.before)}" if part.before else ""
    return f"{lower}{' and' if lower and upper else ''}{upper}"


def _window(
    outcome: Died
    | LabClass
    | LabReached
    | AnyEncounter
    | AnyEvent
    | EncountersWith
    | EpisodesOf
    | TimeTo
    | ValueOf,
) -> str:
    if outcome.until:
        return f"after the prediction, by {_time(outcome.until)}"
    if outcome.within == "end_of_data":
        return "after the prediction, by the end of the data"
    return f"within {outcome.within} after the prediction"


def _any_event(outcome: AnyEvent) -> str:
    if not outcome.first_ever:
        return f"a code of {outcome.any_event} {_window(outcome)}"
    return f"the first code of {outcome.any_event} in all that is known of the patient, {_window(outcome)}"


def _encounters_with(outcome: EncountersWith) -> str:
    days = ", on different days" if outcome.on_distinct_days else ""
    count = "at least one encounter" if outcome.at_least == 1 else f"at least {outcome.at_least} encounters"
    return f"{count} with a code of {outcome.encounters_with}{days}, {_window(outcome)}"


def _episodes_of(outcome: EpisodesOf) -> str:
    rates = " or ".join(f"{rate.count} within {rate.period}" for rate in outcome.at_least)
    new = f"an encounter more than {outcome.new_episode_after} after the previous one with a code starts a new one"
    first = f"the index encounter is the first episode, and {new}"
    return f"episodes of {outcome.episodes_of}, {rates}, the last of them {_window(outcome)}; {first}"


def _class_of(outcome: ClassOf) -> str:
    return f"the {outcome.map} of the index encounter's diagnosis of rank {outcome.rank}"


def _labels_of(outcome: LabelsOf) -> str:
    frequency = f"that at least {outcome.min_index} training index encounters have"
    return f"every {outcome.map} of the index encounter's diagnoses {frequency}"


def _value_of(outcome: ValueOf) -> str:
    value = f"the {outcome.which} value of {outcome.value_of} taken {_window(outcome)}, in {outcome.unit}"
    return f"a number: {value}; an index without one is left out"


def _time_to(outcome: TimeTo) -> str:
    ends = "of the window, of the data or at death"
    match outcome.time_to:
        case ToDeath():
            event, ends = "death, in hospital or after it", "of the window or of the data"
        case ToEncounter(any_encounter=encounter):
            event = f"the start of another {_encounter(encounter)}"
        case to_event:
            event = f"the first code of {to_event.any_event}"
    otherwise = f"a patient without it is followed to the end {ends}, whichever comes first"
    return f"a time: from the prediction to {event}, {_window(outcome)}; {otherwise}"


def _or(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


_CONDITIONS: dict[type, Callable[[Any], str]] = {
    IndexHas: lambda part: {"end": "it has ended", "principal_dx": "it has a first diagnosis"}[
        part.index_has
    ],
    IndexWithout: lambda part: f"it has no code of {part.index_without}",
    IndexLongerThan: lambda part: f"it lasts longer than {part.index_longer_than}",
    IndexAlive: lambda _: "the patient leaves it alive",
    IndexIs: lambda part: f"it is an {_encounter(part.index_is)}",
    IndexAge: lambda part: f"it starts at an age from {part.index_age[0]} to under {part.index_age[1]}",
    InCohort: lambda part: f"it is an index encounter of the cohort {part.in_cohort}",
    LabSeen: _lab_seen,
    AnyOf: _combination,
    AllOf: _combination,
    SomeOf: _combination,
    Not: _combination,
    DataUntil: lambda part: f"the data reach to {_time(part.data_until)}",
    EventSeen: lambda part: f"there is a code of {part.event}{_span(part)}",
    EventNotSeen: lambda part: f"there is no code of {part.no_event} by {_time(part.before)}",
    EncounterSeen: lambda part: f"another {_encounter(part.any_encounter)} starts{_span(part)}",
}
_OUTCOMES: dict[type, Callable[[Any], str]] = {
    IndexDied: lambda _: "death in the index encounter",
    IndexLongerThan: lambda part: f"the index encounter lasts longer than {part.index_longer_than}",
    AnyEncounter: lambda part: f"another {_encounter(part.any_encounter)} starts {_window(part)}",
    Died: lambda part: f"death, in hospital or after it, {_window(part)}",
    AnyEvent: _any_event,
    EncountersWith: _encounters_with,
    EpisodesOf: _episodes_of,
    LabClass: _lab_class,
    LabReached: lambda part: _value(part, f" taken {_window(part)}"),
    ClassOf: _class_of,
    LabelsOf: _labels_of,
    IndexDaysLeft: lambda _: "a number: the days from the prediction to the end of the index encounter",
    ValueOf: _value_of,
    TimeTo: _time_to,
}
