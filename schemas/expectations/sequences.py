"""Expectations on the vocabulary and on the SeqSet shards."""

from schemas.expectations.suite import (
    Suite,
    SuiteTable,
    View,
    after,
    between,
    holds,
    not_null_as_in,
    unique,
    unique_rows,
)
from schemas.layout import Layout
from schemas.tables.events import CODED_AT_THE_END, ENCOUNTERS, HIDDEN, KINDS
from schemas.tables.seqset import NO_END, SEQSET, TARGET_HIDDEN
from schemas.tables.vocab import SPECIAL_KIND, SPECIALS, UNK, VOCAB

CAN_HOLD_A_VALUE = 0.5  # items of whole numbers can have equal cuts, with an empty decile between them
_KINDS_SQL = f"{list(KINDS)}"
_CODED_SQL = f"{[KINDS.index(kind) for kind in CODED_AT_THE_END]}"


def vocab(layout: Layout) -> Suite:
    """Return the suite of vocab/1: ids without gaps, special tokens first, cuts ascending and contiguous."""
    specials = ", ".join(f"({number}, '{token}')" for number, token in enumerate(SPECIALS))
    rules = (
        *not_null_as_in(VOCAB),
        unique("token"),
        unique("token_id"),
        between("count_train", 0),
        holds(
            "specials_come_first",
            f"CASE WHEN kind = '{SPECIAL_KIND}' OR token_id < {len(SPECIALS)}"
            f" THEN kind = '{SPECIAL_KIND}' AND (token_id, token) IN ({specials}) END",
            "token_id",
            "token",
        ),
        holds("kind_is_one_of_its_values", f"kind = '{SPECIAL_KIND}' OR kind IN {KINDS}", "kind"),
        holds(
            "token_begins_with_its_kind",
            f"kind = '{SPECIAL_KIND}' OR starts_with(token, kind || ':')",
            "token",
        ),
    )
    in_order = (
        holds("ids_have_no_gaps", "token_id = row_number() OVER (ORDER BY token_id) - 1", "token_id"),
        holds(
            "all_specials_are_there", f"count_if(kind = '{SPECIAL_KIND}') OVER () = {len(SPECIALS)}", "kind"
        ),
    )
    deciles = (
        holds("laboratory_item_has_ten_deciles", "decile IS NOT NULL AND rows_of_item = 10", "code", "token"),
        holds("cuts_rise", "low <= high", "low", "high"),
        holds("decile_begins_where_the_last_ended", "low IS NOT DISTINCT FROM high_before", "low", "high"),
        holds("only_the_outer_deciles_are_open", "(high IS NULL) = (decile = 10)", "high"),
        holds(
            "decile_can_hold_a_value", "low < high", "low", "high", severity="WARN", at_least=CAN_HOLD_A_VALUE
        ),
    )
    deciles_query = """
        SELECT *, count(*) OVER item AS rows_of_item, lag(high) OVER (item ORDER BY decile) AS high_before
        FROM (
            SELECT *, TRY_CAST(regexp_extract(token, '_Q(10|[1-9])$', 1) AS INTEGER) AS decile
            FROM vocab WHERE kind IN ('LAB', 'VIT') AND regexp_matches(token, '_Q[0-9]+$')
        ) WINDOW item AS (PARTITION BY kind, code)"""
    views = (
        View("vocab_rules", "FROM vocab", rules, private=False),
        View("vocab_in_order", "FROM vocab WHERE token_id IS NOT NULL", in_order, private=False),
        View("vocab_deciles", deciles_query, deciles, private=False),
    )
    return Suite("vocab", (SuiteTable("vocab", layout.vocab, VOCAB),), views)


def seqset(layout: Layout) -> Suite:
    """Return the suite of seqset/2, checked against vocab/1 and encounters/1."""
    tables = (
        SuiteTable("seqset", layout.seqset, SEQSET),
        SuiteTable("vocab", layout.vocab, VOCAB),
        SuiteTable("encounters", layout.encounters, ENCOUNTERS),
    )
    return Suite("seqset", tables, (_sets(), _sets_in_order(), _tokens(), _encounters()))


def _sets() -> View:
    lengths = " AND ".join(f"len({name}) = len(tokens)" for name in ("kinds", "hours", "times", "available"))
    rules = (
        *not_null_as_in(SEQSET),
        unique("subject_id", "set_index"),
        unique("encounter_id"),
        after("end", "start"),
        between("days_since_prior", 0),
        between("days_since_first", 0),
        holds("lists_are_equally_long", lengths, "tokens", "kinds", "hours", "times", "available"),
        holds(
            "flag_says_whether_it_ends", f'(flags & {NO_END} = {NO_END}) = ("end" IS NULL)', "flags", "end"
        ),
        holds(
            "hidden_set_is_empty",
            f"CASE WHEN flags & {TARGET_HIDDEN} <> 0 THEN len(tokens) = 0 END",
            "flags",
            "tokens",
        ),
        holds(
            "set_has_tokens",
            f"CASE WHEN flags & {TARGET_HIDDEN} = 0 THEN len(tokens) > 0 END",
            "tokens",
            severity="WARN",
            at_least=0.95,
        ),
    )
    return View("seqset_rules", "FROM seqset", rules)


def _sets_in_order() -> View:
    """Return the rules on the order of sets; float32 days are exact to a minute per century, hence 0.01 days."""
    rules = (
        holds("set_index_counts_from_0", "set_index = position - 1", "subject_id", "set_index"),
        holds(
            "sets_are_in_order_of_start",
            "CASE WHEN position > 1 THEN (start, encounter_id) > (start_before, encounter_before) END",
            "start",
        ),
        holds(
            "days_since_prior_fits_the_starts",
            "abs(days_since_prior - coalesce(epoch_us(start) - epoch_us(start_before), 0) / 86400e6) < 0.01",
            "days_since_prior",
            "start",
        ),
        holds(
            "days_since_first_fits_the_starts",
            "abs(days_since_first - (epoch_us(start) - epoch_us(first_start)) / 86400e6) < 0.01",
            "days_since_first",
            "start",
        ),
        holds("subject_lies_in_one_shard", "first_file = last_file", "subject_id"),
        holds(
            "shard_is_sorted",
            "(subject_id, set_index) > lag((subject_id, set_index)) OVER"
            " (PARTITION BY filename ORDER BY file_row_number)",
            "subject_id",
            "set_index",
        ),
    )
    query = """
        SELECT subject_id, set_index, start, encounter_id, days_since_prior, days_since_first, filename,
            file_row_number, row_number() OVER ordered AS position, lag(start) OVER ordered AS start_before,
            lag(encounter_id) OVER ordered AS encounter_before,
            first_value(start) OVER ordered AS first_start,
            min(filename) OVER whole AS first_file, max(filename) OVER whole AS last_file
        FROM seqset_files
        WINDOW whole AS (PARTITION BY subject_id), ordered AS (PARTITION BY subject_id ORDER BY set_index)"""
    return View("seqset_in_order", query, rules)


def _tokens() -> View:
    """Return the rules on events, one row each; float32 hours are exact to a minute over ten years."""
    rules = (
        holds("token_is_in_the_vocabulary", "vocab_kind IS NOT NULL", "tokens"),
        holds(
            "token_is_of_its_kind",
            f"CASE WHEN token <> {UNK} THEN vocab_kind = {_KINDS_SQL}[kind + 1] END",
            "tokens",
            "kinds",
        ),
        holds("kind_is_known", f"kind < {len(KINDS)}", "kinds"),
        holds(
            "hours_fit_the_times",
            "isfinite(hours) AND abs(hours - (epoch_us(time) - epoch_us(start)) / 3600e6) < 0.02",
            "hours",
            "times",
        ),
        holds("available_is_not_before_time", "available >= time", "available", "times"),
        holds(
            "icd_code_is_known_from_the_end_on",
            f'CASE WHEN kind IN {_CODED_SQL} THEN available >= coalesce("end", start) END',
            "available",
            "end",
        ),
        holds("token_is_not_unknown", f"token <> {UNK}", "tokens", severity="WARN", at_least=0.90),
    )
    query = f"""
        SELECT s.token, s.kind, hours, time, available, start, "end", v.kind AS vocab_kind
        FROM (
            SELECT start, "end", unnest(tokens) AS token, unnest(kinds) AS kind, unnest(hours) AS hours,
                unnest(times) AS time, unnest(available) AS available
            FROM seqset
        ) s LEFT JOIN {unique_rows("vocab", "token_id", "kind")} v ON s.token = v.token_id"""
    return View("seqset_tokens", query, rules)


def _encounters() -> View:
    is_matched = "start IS NOT NULL AND set_start IS NOT NULL"
    rules = (
        holds("set_is_an_encounter", "start IS NOT NULL", "encounter_id"),
        holds("encounter_has_a_set", "set_start IS NOT NULL", "encounter_id"),
        holds("set_starts_with_its_encounter", f"CASE WHEN {is_matched} THEN start = set_start END", "start"),
        holds(
            "set_ends_with_its_encounter",
            f'CASE WHEN {is_matched} THEN "end" IS NOT DISTINCT FROM set_end END',
            "end",
        ),
        holds(
            "set_has_the_admission_type_of_its_encounter",
            f"CASE WHEN {is_matched} THEN admission_type IS NOT DISTINCT FROM set_admission_type END",
            "admission_type",
        ),
        holds(
            "set_is_hidden_with_its_encounter",
            f"CASE WHEN {is_matched} THEN (flags & {TARGET_HIDDEN} <> 0) = (type IS NOT DISTINCT FROM '{HIDDEN}') END",
            "flags",
        ),
    )
    query = """
        SELECT e.start, e.end, e.type, e.admission_type, s.start AS set_start, s.end AS set_end,
            s.admission_type AS set_admission_type, s.flags
        FROM encounters e FULL JOIN seqset s USING (subject_id, encounter_id)"""
    return View("seqset_encounters", query, rules)
