"""Check the shards against the events: derive the sets of a sample of subjects a second time, in SQL.

The pipeline tokenizes with NumPy, Arrow and dictionaries of texts; this module states the same rules as plain joins,
so that a fault in either shows up as different sets.
"""

from dataclasses import replace

from schemas.contract import table_metadata
from schemas.expectations.sequences import seqset, vocab
from schemas.expectations.suite import Suite, SuiteTable, View, holds
from schemas.io.verify import is_written
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.events import DRUG_LOOKUP, ENCOUNTERS, EVENTS, KINDS, SUBJECTS
from schemas.tables.vocab import UNK

SUBJECTS_DERIVED = 300
"""Number of subjects, drawn by a hash of the id: the same in every run and spread over all buckets."""

_PREFIXES = """
    CASE
        WHEN contains(code, '/') THEN [code]
        WHEN kind = 'DX' THEN list_transform(range(3, greatest(len(code), 3) + 1), lambda n: left(code, n))
        WHEN kind = 'MED' THEN [code] || list_transform(
            list_filter([1, 3, 4, 5], lambda n: n < len(code)), lambda n: left(code, n)
        )
        ELSE [code]
    END"""
"""A code and its ancestors: ICD-10-CM codes shortened down to 3 characters, ATC higher levels (spec: Vocabulary).

A code that names its vocabulary, such as SNOMED/38341003, has no ancestors.
"""


def vocab_with_counts(layout: Layout, *, below_age: int | None = None) -> Suite:
    """Return the suite of a hospital's vocab/1, checked against the events of the patients it was fitted on.

    Args:
        below_age: fit only on encounters that start before that birthday; None: fit on all.
    """
    rules = _rules(layout)
    is_fitted_on = "encounter_id IS NOT NULL"
    if rules.fit_on != "all":
        is_fitted_on += " AND subject_id IN (SELECT subject_id FROM subjects WHERE split = 'train')"
    if below_age is not None:
        above_age_limit = f"SELECT encounter_id FROM encounters WHERE age_years >= {below_age}"
        is_fitted_on += f" AND encounter_id NOT IN ({above_age_limit})"
    return _with_recounts(
        layout, _procedure_counts(is_fitted_on), _diagnosis_counts(is_fitted_on, rules.min_count)
    )


def _procedure_counts(is_fitted_on: str) -> View:
    """Return a view that counts procedures again; they have no parents to add to."""
    query = f"""
        SELECT v.token, v.count_train, coalesce(counted.events, 0) AS events
        FROM vocab v LEFT JOIN (
            SELECT mapped AS code, count(*) AS events FROM events
            WHERE kind = 'PR' AND {is_fitted_on} GROUP BY mapped
        ) counted USING (code)
        WHERE v.kind = 'PR'"""
    name = "procedure_is_counted_in_the_fitted_on_patients_alone"
    rule = holds(name, "count_train = events", "token", "count_train")
    return View("vocab_as_derived", query, (rule,), is_stored=True)


def _diagnosis_counts(is_fitted_on: str, min_count: int) -> View:
    """Return a view that counts patients per category of diagnoses without a token; a frequent category has one."""
    query = f"""
        WITH fitted AS (
            SELECT DISTINCT subject_id, kind, mapped AS code FROM events
            WHERE kind = 'DX' AND mapped IS NOT NULL AND {is_fitted_on}
        ),
        ancestors AS (
            SELECT code, kind || ':' || unnest({_PREFIXES}) AS token FROM (SELECT DISTINCT kind, code FROM fitted)
        ),
        known AS (SELECT DISTINCT code FROM ancestors SEMI JOIN vocab USING (token))
        SELECT if(contains(code, '/'), code, left(code, 3)) AS category, count(DISTINCT subject_id) AS patients
        FROM fitted ANTI JOIN known USING (code) GROUP BY ALL"""
    name = "diagnoses_without_a_token_are_rare_together"
    return View(
        "vocab_of_the_rare", query, (holds(name, f"patients < {min_count}", "token"),), is_stored=True
    )


def basket_vocab_with_counts(layout: Layout) -> Suite:
    """Return the suite of a shop's vocab/1, with a tenth of its products counted again, under any rules.

    Counted are the orders of training buyers, and those of test buyers before their last non-empty order, which may be
    the one to predict. Orders of validation buyers are not counted.
    """
    query = """
        WITH visible AS (
            SELECT subject_id, max(time) AS last FROM events JOIN subjects USING (subject_id)
            WHERE split = 'test' GROUP BY subject_id
        )
        SELECT v.token, v.count_train, coalesce(counted.events, 0) AS events
        FROM vocab v LEFT JOIN (
            SELECT code, count(*) AS events
            FROM events JOIN subjects USING (subject_id) LEFT JOIN visible USING (subject_id)
            WHERE code LIKE '%7' AND (split = 'train' OR (split = 'test' AND time < last)) GROUP BY code
        ) counted USING (code)
        WHERE v.kind = 'ITEM' AND code LIKE '%7'"""
    rule = holds(
        "product_is_counted_without_the_orders_asked_for", "count_train = events", "token", "count_train"
    )
    return _with_recounts(layout, View("vocab_as_derived", query, (rule,), is_stored=True))


def _with_recounts(layout: Layout, *views: View) -> Suite:
    """Return the suite of vocab/1 with additional views that compare tokens with their counts in the events."""
    suite = vocab(layout)
    sources = (
        SuiteTable("events", layout.events, EVENTS),
        SuiteTable("subjects", layout.subjects, SUBJECTS),
        SuiteTable("encounters", layout.encounters, ENCOUNTERS),
    )
    return replace(suite, tables=(*suite.tables, *sources), views=(*suite.views, *views))


def _rules(layout: Layout) -> DataRules:
    """Return the rules recorded in the metadata of the vocabulary."""
    rules = table_metadata(layout.vocab).get("rules", "{}") if is_written(layout.vocab) else "{}"
    return DataRules.model_validate_json(rules)


def seqset_with_derivation(layout: Layout) -> Suite:
    """Return the suite of a hospital's seqset/2, also checked against the events and the drug lookup."""
    suite = seqset(layout)
    sources = (
        SuiteTable("events", layout.events, EVENTS),
        SuiteTable("drug_lookup", layout.drug_lookup, DRUG_LOOKUP),
    )
    return replace(suite, tables=(*suite.tables, *sources), views=(*suite.views, _derived_sets_view()))


def _derived_sets_view() -> View:
    """Return the view with the rules that each sampled set contains the tokens of its events, in order.

    It reads the tables seqset, vocab, events and drug_lookup of a hospital.
    """
    query = f"""
        WITH chosen AS (
            SELECT subject_id FROM (SELECT DISTINCT subject_id FROM seqset)
            ORDER BY hash(subject_id) LIMIT {SUBJECTS_DERIVED}
        ),
        own_events AS (
            SELECT v.encounter_id, v.kind, v.time, v.available_at, v.value,
                CASE v.kind WHEN 'LAB' THEN v.code WHEN 'MED' THEN coalesce(v.mapped, d.atc) ELSE v.mapped END AS code
            FROM events v SEMI JOIN chosen USING (subject_id)
            LEFT JOIN drug_lookup d ON v.vocab = 'name' AND v.code = d.name
            WHERE v.encounter_id IS NOT NULL
        ),
        words AS (
            SELECT encounter_id, e.kind, time, available_at,
                CASE e.kind WHEN 'LAB' THEN decile.token ELSE e.kind || ':' || e.code END AS word, e.code
            FROM own_events e LEFT JOIN (SELECT * FROM vocab WHERE kind = 'LAB') decile
                ON e.kind = 'LAB' AND decile.code = e.code AND (decile.low IS NULL OR e.value > decile.low)
                AND (decile.high IS NULL OR e.value <= decile.high)
        ),
        ancestors AS (
            SELECT word, CASE kind WHEN 'LAB' THEN word ELSE kind || ':' || unnest({_PREFIXES}) END AS ancestor
            FROM (SELECT DISTINCT word, kind, code FROM words WHERE word IS NOT NULL)
        ),
        ids AS (
            SELECT a.word, arg_max(v.token_id, len(v.token)) AS token_id
            FROM ancestors a JOIN vocab v ON v.token = a.ancestor AND v.token_id IS NOT NULL GROUP BY a.word
        ),
        derived AS (
            SELECT encounter_id, count(*) AS size,
                sum(hash(kind, coalesce(ids.token_id, {UNK})::UINTEGER, time, available_at)::HUGEINT) AS content
            FROM words LEFT JOIN ids USING (word) WHERE word IS NOT NULL GROUP BY encounter_id
        ),
        own_sets AS MATERIALIZED (
            SELECT encounter_id, tokens, kinds, times, available FROM seqset SEMI JOIN chosen USING (subject_id)
        ),
        members AS (
            SELECT encounter_id, unnest(tokens) AS token, {list(KINDS)}[unnest(kinds) + 1] AS kind,
                unnest(times) AS time, unnest(available) AS available_at
            FROM own_sets
        ),
        written AS (
            SELECT encounter_id, count(*) AS size,
                sum(hash(kind, token, time, available_at)::HUGEINT) AS content
            FROM members GROUP BY encounter_id
        )
        SELECT s.encounter_id, s.times, s.kinds, coalesce(w.size, 0) AS size, coalesce(d.size, 0) AS derived_size,
            w.content, d.content AS derived_content
        FROM own_sets s
        LEFT JOIN written w USING (encounter_id) LEFT JOIN derived d USING (encounter_id)"""
    rules = (
        holds("set_has_as_many_tokens_as_events", "size = derived_size", "tokens"),
        holds(
            "set_holds_the_tokens_of_its_events",
            "content IS NOT DISTINCT FROM derived_content",
            "tokens",
            "times",
            "available",
        ),
        holds(
            "set_begins_with_its_diagnoses",
            "list_sort(list_transform(kinds, lambda k: k <> 0)) = list_transform(kinds, lambda k: k <> 0)",
            "kinds",
        ),
        holds(
            "tokens_after_the_diagnoses_rise_in_time",
            "list_sort(times[1 + len(list_filter(kinds, lambda k: k = 0)):])"
            " = times[1 + len(list_filter(kinds, lambda k: k = 0)):]",
            "times",
        ),
    )
    return View("seqset_as_derived", query, rules, is_stored=True)
