"""Plausibility of stays and of the patients' life spans."""

from schemas.expectations.suite import Rule, View, holds, share_rules
from schemas.expectations.usual import UsualStays

ALIKE = 100  # this many subjects with one birthday, or stays at one age, are accepted whatever their share
FEWEST_STAYS_WITHOUT_DEATH = 1000
PARTS, LEAST_OF_A_PART = 10, 0.25
FEWEST_OF_A_PART = 10  # expected subjects with a stay in a part; with fewer it may have none by chance

COUNTS = {
    "stays": "true",
    "ended": '"end" IS NOT NULL',
    "over_a_year": '"end" > start + INTERVAL 366 DAY',
    "over_ten_years": '"end" > start + INTERVAL 3653 DAY',
    "recorded_twice": "copies > 1",
    "overlapping": "start < latest_end_before",
    "start_at_midnight": "start = date_trunc('day', start)",
    "end_at_midnight": """"end" = date_trunc('day', "end")""",
    "start_on_the_hour": "start = date_trunc('hour', start)",
    "end_on_the_hour": """"end" = date_trunc('hour', "end")""",
    "deaths": "died",
    "deaths_before_another": 'died AND next_start > coalesce("end", start)',
    "death_times": "death_time IS NOT NULL",
    "deaths_outside": """death_time < start - INTERVAL 1 DAY OR death_time > "end" + INTERVAL 1 DAY""",
    "deaths_dated_twice": "death_time IS NOT NULL AND death_date IS NOT NULL",
    "deaths_apart": "abs(date_diff('hour', death_time, death_date)) > 48",
    "of_the_dead": "death_date IS NOT NULL",
    "after_death": "start > death_date + INTERVAL 2 DAY",
    "with_age": "age_years IS NOT NULL",
    "of_minors": "age_years < 18",
    "of_the_oldest": "age_years >= 100",
    "with_two_ages": "age_years IS NOT NULL AND birth_date IS NOT NULL",
    "with_unlike_ages": "abs(age_years - date_diff('day', birth_date, start) / 365.25) > 1.5",
}

_COUNTED = f"""
    SELECT {", ".join(f"count_if({sql}) AS {name}" for name, sql in COUNTS.items())},
        (SELECT max(n) FROM (SELECT count(*) AS n FROM encounters
            WHERE age_years IS NOT NULL GROUP BY floor(age_years))) AS of_one_age
    FROM (
        SELECT e.*, s.birth_date, s.death_date,
            count(*) OVER (PARTITION BY e.subject_id, e.start, e."end", e.type) AS copies,
            lead(e.start) OVER in_time AS next_start,
            max(e."end") OVER (in_time ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS latest_end_before
        FROM encounters e LEFT JOIN subjects s USING (subject_id)
        WINDOW in_time AS (PARTITION BY e.subject_id ORDER BY e.start, e."end"))"""
_SPREAD = f"""
    SELECT min(share) AS least, avg(share) AS usual, min(size) AS size FROM (
        SELECT part, count(*) AS size, avg((subject_id IN (SELECT subject_id FROM encounters))::INT) AS share FROM (
            SELECT subject_id, ntile({PARTS}) OVER (ORDER BY subject_id) AS part FROM subjects
            QUALIFY count(*) OVER () >= {PARTS * 10}) GROUP BY part)"""
_LIVES = """
    SELECT count(birth_date) AS births, count(*) AS subjects, count(death_date) AS deaths,
        (SELECT max(n) FROM (SELECT count(*) AS n FROM subjects
            WHERE birth_date IS NOT NULL GROUP BY birth_date)) AS born_together
    FROM subjects"""


def stay_counts(usual: UsualStays) -> list[View]:
    """Return the views of counts of stays, with their rules."""
    rules = (*_lengths(usual), *_times_of_day(usual), *_deaths(usual), *_ages(usual))
    spread = holds(
        "stays_are_spread_over_the_subjects",
        f"CASE WHEN usual * size >= {FEWEST_OF_A_PART} THEN least >= {LEAST_OF_A_PART} * usual END",
        "subject_id",
        severity="WARN",
    )
    return [
        View("encounters_counted", _COUNTED, rules, is_stored=True),
        View("encounters_spread", f"{_SPREAD} HAVING count(*) > 0", (spread,), private=False, is_stored=True),
    ]


def subject_counts() -> View:
    """Return the view of counts of subjects, with its rules."""
    rules = (
        *share_rules(
            "birth_dates_differ",
            "born_together",
            "births",
            "birth_date",
            bounds=(0.50, None),
            tolerance=ALIKE,
        ),
        *share_rules("subjects_are_mostly_alive", "deaths", "subjects", "death_date", bounds=(0.90, None)),
    )
    return View("subjects_counted", _LIVES, rules, is_stored=True)


def _lengths(usual: UsualStays) -> list[Rule]:
    span = ("start", "end")
    twice = ("subject_id", *span)
    return [
        *share_rules("stays_last_under_a_year", "over_a_year", "ended", *span, bounds=usual.over_a_year),
        *share_rules(
            "stays_last_under_ten_years", "over_ten_years", "ended", *span, bounds=usual.over_ten_years
        ),
        *share_rules(
            "stays_are_recorded_once", "recorded_twice", "stays", *twice, bounds=usual.recorded_twice
        ),
        *share_rules("stays_seldom_overlap", "overlapping", "stays", *twice, bounds=usual.overlapping),
    ]


def _times_of_day(usual: UsualStays) -> list[Rule]:
    return [
        rule
        for column, of in (("start", "stays"), ("end", "ended"))
        for name, violations, bounds in (
            (f"stays_{column}_at_times_of_day", f"{column}_at_midnight", usual.at_midnight),
            (f"stays_{column}_at_all_minutes", f"{column}_on_the_hour", usual.on_the_hour),
        )
        for rule in share_rules(name, violations, of, column, bounds=bounds)
    ]


def _deaths(usual: UsualStays) -> list[Rule]:
    rarely, seldom = (0.001, 0.05), (0.05, 0.50)
    last, inside, agree = (
        "deaths_end_the_last_stay",
        "deaths_lie_in_their_stays",
        "death_times_agree_with_death_dates",
    )
    has_enough_deaths = f"stays < {FEWEST_STAYS_WITHOUT_DEATH} OR deaths > 0"
    return [
        *share_rules("stays_are_mostly_survived", "deaths", "stays", "died", bounds=usual.died),
        *share_rules(last, "deaths_before_another", "deaths", "died", "start", bounds=seldom),
        *share_rules(inside, "deaths_outside", "death_times", "death_time", "start", "end", bounds=seldom),
        *share_rules(agree, "deaths_apart", "deaths_dated_twice", "death_time", "death_date", bounds=seldom),
        *share_rules(
            "stays_precede_death", "after_death", "of_the_dead", "start", "death_date", bounds=rarely
        ),
        *(
            [holds("some_stays_end_in_death", has_enough_deaths, "died", severity="WARN")]
            if usual.has_deaths
            else []
        ),
    ]


def _ages(usual: UsualStays) -> list[Rule]:
    age, fit = "age_years", "ages_fit_birth_dates"
    return [
        *share_rules("stays_are_of_adults", "of_minors", "with_age", age, bounds=usual.of_minors),
        *share_rules("stays_are_of_the_under_100", "of_the_oldest", "with_age", age, bounds=(0.01, None)),
        *share_rules("ages_differ", "of_one_age", "with_age", age, bounds=usual.of_one_age, tolerance=ALIKE),
        *share_rules(fit, "with_unlike_ages", "with_two_ages", age, "birth_date", bounds=(0.001, 0.05)),
    ]
