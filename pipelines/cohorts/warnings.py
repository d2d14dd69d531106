"""Warnings a clinician should read before trusting a cohort, with counts under 11 suppressed."""

import difflib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import takewhile

import polars as pl

from pipelines.cohorts.codes import ResolvedCodes
from pipelines.cohorts.derive import CohortLabels
from pipelines.cohorts.tables import Tables, pattern_expr
from pipelines.cohorts.unanswerable import filters
from schemas.cohort import AnyEncounter, Cohort, EncounterFilter, LabelsOf
from schemas.cohort.look_ahead import DATED_EARLY, ONE_END_OF_DATA, cut_requirements, look_aheads
from schemas.nouns import with_noun
from schemas.rules import DataRules
from schemas.suppress import SMALLEST_SHOWN, is_disclosing, vague_count
from schemas.tables.events import SPLIT_WORDS
from schemas.tables.labels import WITHOUT_CLASSES

_WITHOUT_A_SCORE = {
    "val": "no threshold is chosen and no model recalibrated",
    "test": "no score will be shown",
}
"""The splits besides training, and what a page lacks without enough patients in each."""

MOST_VALUES = 12
"""How many values of a column a warning names where none is close to the one written."""

CLASSIFICATIONS = frozenset({"icd10cm", "icd9cm", "icd10pcs", "icd9pcs", "atc"})
"""The vocabularies whose codes say with their first characters what they are a kind of."""

LEAST_START = 2
"""How many first characters two codes of a classification share to be called near."""


def warnings_of(
    cohort: Cohort,
    labels: CohortLabels,
    codes: ResolvedCodes,
    existing: Callable[[str], Mapping[str, int]],
    rules: DataRules,
    *,
    is_everyone: bool = True,
) -> list[str]:
    """Return the warnings of a derived cohort, those about the file first.

    Args:
        cohort, labels, rules: the cohort, its labels and the rules.
        codes: the resolved code lists.
        existing: a function from a vocabulary to its codes in the data with their patients, called only if a pattern
            matches no code.
        is_everyone: whether the labels are those of all patients, so that few patients are few.
    """
    return [
        *cohort.warnings(),
        *_codes_before_discharge(cohort, rules),
        *_diagnoses_before_discharge(cohort, rules),
        *_unmatched_patterns(cohort, codes, existing),
        *_uncovered_windows(cohort, labels),
        *not_trainable(cohort, labels),
        *_poor_splits(cohort, labels, is_everyone=is_everyone),
    ]


def _codes_before_discharge(cohort: Cohort, rules: DataRules) -> list[str]:
    """Warn of requirements that count codes before their stay ends, as the clock "time" dates them."""
    if rules.clock != "time":
        return []
    return [
        f"'{name}' looks past the prediction under the preset paper: {DATED_EARLY}"
        for name in cut_requirements(cohort)
    ]


def _diagnoses_before_discharge(cohort: Cohort, rules: DataRules) -> list[str]:
    """Warn if the clock "time" reveals diagnoses that are coded after the stay but dated at its start."""
    drops = cohort.features.drop_from_index + cohort.features.drop_types
    if rules.clock != "time" or cohort.predict_at.anchor != "index.start" or "DX" in drops:
        return []
    return [
        "features: under the preset paper, diagnoses of a stay count as known from its start, though they are coded "
        "after its end; add 'drop_from_index: [DX]', or the model sees the final diagnoses of the stay"
    ]


def _unmatched_patterns(
    cohort: Cohort, codes: ResolvedCodes, existing: Callable[[str], Mapping[str, int]]
) -> list[str]:
    sentences, codes_in_data = [], cache(existing)
    for name, code_list in cohort.codes.items():
        for vocab, patterns in code_list.patterns.items():
            present = codes[name].get(vocab, {})
            for pattern in patterns:
                if not _is_matched(pattern, present) and not _is_matched(pattern, codes_in_data(vocab)):
                    hint = _nearest(pattern, vocab, codes_in_data(vocab))
                    sentences.append(f"codes.{name}.{vocab}: '{pattern}' matches no event{hint}")
    return sentences


def unknown_value_warnings(cohort: Cohort, tables: Tables) -> Iterator[str]:
    """Yield a warning for each value of a filter that no encounter of these data has."""
    encounters = tables.encounters.join(
        tables.subjects.select("subject_id", "sex"), on="subject_id", how="left"
    )
    for member in cohort.family:
        for path, encounter_filter in filters(member):
            for column, values in encounter_filter.values.items():
                patients = pl.col("subject_id").n_unique()
                existing = dict(encounters.group_by(column).agg(patients).collect().iter_rows())
                where = ".".join(key for key in (*path, column) if isinstance(key, str))
                for value in sorted(set(values) - set(existing)):
                    yield f"{where}: '{value}' matches no encounter{_nearest_values(value, existing)}"


def _nearest_values(value: str, patients: Mapping[str | None, int]) -> str:
    """Name existing values, the closest first, but only those with enough patients to be disclosed."""
    common = [word for word, count in patients.items() if word is not None and count >= SMALLEST_SHOWN]
    near = difflib.get_close_matches(value, common, n=3, cutoff=0.5) or sorted(common)[:MOST_VALUES]
    return f"; the values that exist are {', '.join(near)}" if near else ""


def _is_matched(pattern: str, codes: Mapping[str, int]) -> bool:
    table = pl.Series("code", list(codes), dtype=pl.String).to_frame()
    return not table.filter(pattern_expr(pl.col("code"), pattern)).is_empty()


def _nearest(pattern: str, vocab: str, patients: Mapping[str, int]) -> str:
    """Name existing codes close to a pattern, but only codes with enough patients to be disclosed."""
    common = [code for code, count in patients.items() if count >= SMALLEST_SHOWN]
    stem = pattern.removesuffix("*")
    # the commonest slip in a number
    transpositions = [code for code in common if sorted(code) == sorted(stem)]
    swapped = difflib.get_close_matches(stem, transpositions, n=3, cutoff=0)
    # in a classification N18 and N19 are near N17, and I10 and C17 are not
    kin = [code for code in common if _common_start(code, stem) >= LEAST_START and vocab in CLASSIFICATIONS]
    kin.sort(key=lambda code: (-_common_start(code, stem), -patients[code], code))
    close = kin or difflib.get_close_matches(stem, common, n=3, cutoff=0.5)
    similar_codes = list(dict.fromkeys(swapped + close))[:3]
    if similar_codes:
        return f"; the nearest that exist are {', '.join(similar_codes)}"
    return f"; the data hold no similar {vocab} code with at least {SMALLEST_SHOWN} patients"


def _common_start(code: str, stem: str) -> int:
    """Return how many first characters two codes share."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(code, stem, strict=False)))


def _uncovered_windows(cohort: Cohort, labels: CohortLabels) -> list[str]:
    """Warn about negative rows whose window exceeds the data, and about rows without a window."""
    length, end = getattr(cohort.outcome, "within", None), getattr(cohort.outcome, "until", None)
    rows, sentences = labels.rows, []
    if labels.label_type in WITHOUT_CLASSES:
        return []  # an index without a number or follow-up is no negative row but left out
    if labels.short_follow_up and not _is_followed_by_definition(cohort):
        num_negative = rows.filter(~pl.col("label")).height
        share = vague_count(labels.short_follow_up, num_negative)
        period = f"for less than {length}" if end is None else f"to an earlier time than {end}"
        of_all = f" of the {num_negative:,}" if is_disclosing() and share != "all" else ""
        verb, count = ("is", "it counts") if share == "1" else ("are", "they count")
        sentences.append(
            f"{share}{of_all} rows without the outcome {verb} followed {period}: what came later is not in the data, "
            f"and {count} as having no outcome"
        )
    if labels.windowless:
        share = vague_count(labels.windowless, rows.height)
        owner, count = ("its", "it counts") if share == "1" else ("their", "they count")
        sentences.append(
            f"{share} {_rows(share, 'has', 'have')} no window: {owner} prediction is at or after {end}, so {count} as "
            "negative"
        )
    return sentences


def _rows(share: str, verb_of_one: str, verb: str) -> str:
    """Return the noun and the verb after a count or a share."""
    return f"row {verb_of_one}" if share == "1" else f"rows {verb}"


def _is_followed_by_definition(cohort: Cohort) -> bool:
    """Return whether a missing return is negative by definition, as data end with the last stay of a patient."""
    outcome = cohort.outcome
    if not isinstance(outcome, AnyEncounter) or outcome.within is None or cohort.source in ONE_END_OF_DATA:
        return False
    return outcome.any_encounter == EncounterFilter() and not look_aheads(cohort)


def not_trainable(cohort: Cohort, labels: CohortLabels) -> list[str]:
    """Return why no model can learn from the labels: no rows, or only one outcome; empty if it can."""
    if labels.rows.is_empty():
        return ["not trainable: the cohort is empty; see where its rows go in the attrition table"]
    if isinstance(cohort.outcome, LabelsOf):
        if not labels.classes:
            return [f"not trainable: no category has {with_noun(cohort.outcome.min_index, 'admission')}"]
        return []
    faults = _few_classes(labels, "train")  # of a number: a single value
    return [f"not trainable: {fault}" for fault in faults]


def _poor_splits(cohort: Cohort, labels: CohortLabels, *, is_everyone: bool) -> list[str]:
    """Warn about splits unsuitable for validation or test, and about classes without rows."""
    if labels.rows.is_empty() or isinstance(cohort.outcome, LabelsOf):
        return []
    sentences = []
    for split, consequence in _WITHOUT_A_SCORE.items():
        if faults := _few_classes(labels, split):
            sentences += faults
        elif is_everyone and has_few_patients(labels, split):
            outcome = "" if labels.label_type == "number" else " with, or without, the outcome"
            sentences.append(
                f"the {SPLIT_WORDS[split]} split has under {SMALLEST_SHOWN} patients{outcome}, so that {consequence}"
            )
    if labels.label_type == "class":
        absent = len(set(labels.classes) - set(labels.rows["label"]))
        if absent:
            sentences.append(
                f"{absent} of {len(labels.classes)} classes {'has' if absent == 1 else 'have'} no row"
            )
    return sentences


def has_few_patients(labels: CohortLabels, split: str, least: int = SMALLEST_SHOWN) -> bool:
    """Return whether a split has too few patients for a score: under `least` with the outcome, or without it."""
    rows = labels.rows.filter(pl.col("split") == split)
    match labels.label_type:
        case "number":
            return rows["subject_id"].n_unique() < least
        case "time":
            has_outcome = pl.col("label").struct.field("event")
        case "bool":
            has_outcome = pl.col("label")
        case _:
            return False  # a class with few patients is left out by itself
    return any(rows.filter(side)["subject_id"].n_unique() < least for side in (has_outcome, ~has_outcome))


def _few_classes(labels: CohortLabels, split: str) -> list[str]:
    label = labels.rows.filter(pl.col("split") == split)["label"]
    one = {
        "bool": "has only rows with the outcome, or only without",
        "number": "has one value only",
        "time": "has only rows with the event, or only without",
    }.get(labels.label_type, "has one class only")
    if labels.label_type == "time":
        label = label.struct.field("event")
    classes = label.n_unique()
    return [] if classes > 1 else [f"the {SPLIT_WORDS[split]} split {one if classes else 'has no rows'}"]
