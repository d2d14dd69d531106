"""The cohort language as SQL, sharing no code with the pipeline, which must agree with it."""

import re

import duckdb
import polars as pl

Row = tuple

_TABLES = {"index.start": "start", "index.end": '"end"'}
_INDEX = "c.subject_id, c.encounter_id"


class CohortSql:
    """A normalized spec on three tables; `labels`, `attrition` and `features` are plain rows.

    Every step is a table of its own, named `s0`, `s1` …, the last of them the cohort.
    """

    def __init__(
        self,
        spec: dict,
        subjects: pl.DataFrame,
        encounters: pl.DataFrame,
        events: pl.DataFrame,
        clock: str,
        members: dict[str, list[int]] | None = None,
        death_follow_up_days: int = 0,
    ):
        """Derive a cohort; `members` are the index encounters of the cohorts it names."""
        self.spec, self.paper, self.members = spec, clock == "time", members or {}
        self.death_follow_up_days = death_follow_up_days
        self.db = duckdb.connect()
        for name, table in (("subjects", subjects), ("encounters", encounters), ("events", events)):
            self.db.register(f"{name}_given", table.to_arrow())
            self.db.execute(f"create table {name} as select * from {name}_given")
        self.attrition: list[Row] = []
        self.table = ""
        self._candidates()
        self._index_steps()
        for item in spec["require"]:
            ((name, condition),) = item.items()
            self.sees_codes = self.paper or name in (spec.get("looks_ahead") or ())
            self._step(
                name, self._condition(condition), drops=not (self.paper and "index_longer_than" in condition)
            )
        self.index_ids = [
            row[0] for row in self.db.execute(f"select encounter_id from {self.table}").fetchall()
        ]
        self._outcome()

    # --- steps

    def _candidates(self) -> None:
        self.db.execute(f"""
            create table s0 as
            with e as (
                select e.*, s.birth_date, s.split, max(e."end") over of_one as end_of_data,
                    coalesce(max(case when e.died then least(e.death_time, e."end") end) over of_one,
                             s.death_date + interval 1 day) as death
                from encounters e join subjects s using (subject_id)
                window of_one as (partition by e.subject_id))
            select *, {self._time(self.spec["predict_at"], "e")} as predict_at from e""")
        self.table = "s0"
        self._count("all encounters", 0)

    def _count(self, name: str, previous: int) -> int:
        query = f"select count(*), count(distinct subject_id) from {self.table}"
        rows, patients = self.db.execute(query).fetchone()
        self.attrition.append((name, rows, patients, previous - rows if previous else 0))
        return rows

    def _step(self, name: str, condition: str, *, drops: bool = True) -> None:
        previous = self.attrition[-1][1]
        if drops:
            table = f"s{len(self.attrition)}"
            self.db.execute(f"create table {table} as select c.* from {self.table} c where {condition}")
            self.table = table
        self._count(name, previous)

    def _index_steps(self) -> None:
        index = self.spec["index"]
        if index["encounter"]:
            self._step("matches the index filter", self._filter(index["encounter"], "c"))
        self._step("has an end after its start", 'c."end" is not null')
        if "from" in index:
            self._step(f"from {index['from']}", f"cast(c.start as date) >= date '{index['from']}'")
        if "to" in index:
            self._step(f"to {index['to']}", f"cast(c.start as date) <= date '{index['to']}'")
        if "age" in index:
            young, old = index["age"]
            self._step(f"age {young} to {old}", self._age(young, old))
        keep = index.get("keep", "every")
        if keep != "every":
            distance = "0"
            if keep != "first":
                distance = f"abs(epoch_us(start) - epoch_us(birth_date + {_interval(keep.removeprefix('nearest '))}))"
            ranking = f"""select encounter_id from (
                select encounter_id, row_number() over (
                    partition by subject_id order by {distance}, start, encounter_id) as place
                from {self.table} where {distance} is not null) where place = 1"""
            self._step(f"keep {keep}", f"c.encounter_id in ({ranking})")

    # --- the language's words

    def _time(self, text: str, row: str = "c") -> str:
        anchor, sign, length = re.fullmatch(r"([a-z_.]+)(?: ([+-]) (.+))?", text).groups()
        column = {"birth": "birth_date", **_TABLES}.get(anchor, anchor)
        return f"{row}.{column}" + (f" {sign} {_interval(length)}" if sign else "")

    def _codes(self, name: str, row: str) -> str:
        conditions = []
        for vocab, patterns in self.spec["codes"][name].items():
            column, row_filter = (
                ("mapped", "kind = 'MED'") if vocab == "atc" else ("code", f"vocab = '{vocab}'")
            )
            for pattern in patterns:
                like = f"starts_with({row}.{column}, '{pattern[:-1]}')"
                test = like if pattern.endswith("*") else f"{row}.{column} = '{pattern}'"
                conditions.append(f"({row}.{row_filter} and {test})")
        return f"coalesce({' or '.join(conditions)}, false)"

    def _has_code(self, name: str, row: str) -> str:
        return f"""exists (select 1 from events v where v.subject_id = {row}.subject_id
                   and v.encounter_id = {row}.encounter_id and {self._codes(name, "v")})"""

    def _filter(self, spec: dict, row: str) -> str:
        conditions = ["true"]
        for column in ("type", "discharge_status", "admission_type", "insurance", "race", "sex"):
            if column in spec:
                values = ", ".join(f"'{value}'" for value in spec[column])
                value = f"{row}.{column}"
                if column == "sex":
                    value = f"(select p.sex from subjects p where p.subject_id = {row}.subject_id)"
                conditions.append(f"coalesce({value} in ({values}), false)")
        if "with" in spec:
            conditions.append(self._has_code(spec["with"], row))
        return " and ".join(conditions)

    def _age(self, young: str, old: str) -> str:
        return f"c.start >= c.birth_date + {_interval(young)} and c.start < c.birth_date + {_interval(old)}"

    def _number(self, part: dict, limit: str) -> str:
        """Return a value of an event in the unit of a limit; null where the units do not compare."""
        ratios = _RATIOS[limit.partition(" ")[2]]
        if "substance" not in part:
            ratios = {unit: ratio for unit, ratio in ratios.items() if "mol" not in unit}
        cases = " ".join(f"when '{unit}' then v.value * {ratio}" for unit, ratio in ratios.items())
        return f"case v.unit {cases} end"

    def _lab_classes(self, outcome: dict, last: str) -> None:
        terms, limit = [], ""
        for item in outcome["classes"]:
            ((name, part),) = item.items()
            ((word, limit),) = part.items()
            sign = {"above": ">", "below": "<", "at_least": ">=", "at_most": "<="}[word]
            terms.append(f"when {self._number(outcome, limit)} {sign} {limit.split()[0]} then '{name}'")
        order = "v.time, v.available_at, v.rank nulls first, v.value"
        if outcome["which"] == "last":
            order = "v.time desc, v.available_at desc, v.rank desc nulls last, v.value desc"
        self.db.execute(f"""create table classes as
            select c.encounter_id, v.time as came, case {" ".join(terms)} else '{outcome["otherwise"]}' end as label
            from s0 c join events v using (subject_id)
            where {self._codes(outcome["lab_class"], "v")} and {self._number(outcome, limit)} is not null
                and v.time > c.predict_at and v.time <= {last}
            qualify row_number() over (partition by c.encounter_id order by {order}) = 1""")
        self.db.execute("create table outcomes as select encounter_id, came from classes")
        name = f"has a value of {outcome['lab_class']} in the window"
        self._step(name, "c.encounter_id in (select encounter_id from classes)")

    def _values(self, part: dict, window: str) -> str:
        """Return a query of subject_id, encounter_id, moment: of the values in a window those that meet a limit."""
        signs = {"above": ">", "below": "<", "at_least": ">=", "at_most": "<="}
        limits = [(signs[key], part[key]) for key in signs if key in part]
        limits += zip((">=", "<="), part.get("between", ()), strict=False)
        number = self._number(part, limits[0][1])
        meets = " and ".join(f"{number} {sign} {limit.split()[0]}" for sign, limit in limits)
        query = f"""select {_INDEX}, v.time as moment, v.available_at as known, v.rank, v.value, {meets} as meets
            from {"s0" if not self.table else self.table} c join events v using (subject_id)
            where {self._codes(part["lab"], "v")} and {number} is not null and {window}"""
        if part.get("which") in ("first", "last"):
            order = "moment, known, rank nulls first, value"
            if part["which"] == "last":
                order = "moment desc, known desc, rank desc nulls last, value desc"
            query = f"""select * from ({query})
                qualify row_number() over (partition by encounter_id order by {order}) = 1"""
        query = f"select distinct subject_id, encounter_id, moment from ({query}) where meets"
        if "times" in part:
            count, length = re.fullmatch(r"(\d+) in (.+)", part["times"]).groups()
            earlier = f"lag(moment, {int(count) - 1}) over (partition by encounter_id order by moment)"
            query = f"select * from ({query}) qualify {earlier} + {_interval(length)} >= moment"
        return query

    def _combination(self, condition: dict) -> str | None:
        """Return a condition made of others; None for a plain one."""
        if "not" in condition:
            return f"not coalesce({self._condition(condition['not'])}, false)"  # what is not known is not met
        key = next((key for key in ("any_of", "all_of", "of") if key in condition), None)
        if key is None:
            return None
        terms = [f"coalesce({self._condition(part)}, false)" for part in condition[key]]
        if key == "of":
            return f"{' + '.join(f'cast({term} as int)' for term in terms)} >= {condition['at_least']}"
        return f"({(' or ' if key == 'any_of' else ' and ').join(terms)})"

    def _span(self, condition: dict, moment: str) -> str:
        conditions = ["true"]
        if "after" in condition:
            conditions.append(f"{moment} > {self._time(condition['after'])}")
        if "before" in condition:
            conditions.append(f"{moment} <= {self._time(condition['before'])}")
        return " and ".join(conditions)

    def _condition(self, condition: dict) -> str:
        if combination := self._combination(condition):
            return combination
        if "lab" in condition:
            window = [f"v.time > {self._time(condition['after'])}"] if "after" in condition else []
            window += (
                [f"v.available_at <= {self._time(condition['before'])}"] if "before" in condition else []
            )
            return f"c.encounter_id in (select encounter_id from ({self._values(condition, ' and '.join(window))}))"
        (word,) = [word for word in condition if word not in ("after", "before")]
        value = condition[word]
        if word == "index_has":
            dx = "v.kind = 'DX' and v.rank = 1 and v.encounter_id = c.encounter_id and v.subject_id = c.subject_id"
            return 'c."end" is not null' if value == "end" else f"exists (select 1 from events v where {dx})"
        if word == "index_is":
            return self._filter(value, "c")
        if word == "index_age":
            return f"coalesce({self._age(*value)}, false)"
        if word == "in_cohort":
            return f"list_contains({self.members[value]}::bigint[], c.encounter_id)"
        if word == "index_without":
            return f"not {self._has_code(value, 'c')}"
        if word == "index_longer_than":
            return f'c."end" > c.start + {_interval(value)}'
        if word == "index_alive":
            return "not c.died"
        if word == "data_until":
            return f"c.end_of_data >= {self._time(value)}"
        if word == "any_encounter":
            other_stay = "o.subject_id = c.subject_id and o.encounter_id != c.encounter_id"
            span = self._span(condition, "o.start")
            return f"exists (select 1 from encounters o where {other_stay} and {self._filter(value, 'o')} and {span})"
        event = (
            f"v.subject_id = c.subject_id and {self._codes(value, 'v')} and {self._span(condition, 'v.time')}"
        )
        if (
            "before" in condition
            and self.spec["predict_at"].startswith("index.start")
            and not self.sees_codes
        ):
            looks_past = f"{self._time(condition['before'])} > c.predict_at"
            event += f" and (v.kind not in ('DX', 'PR') or v.available_at <= c.predict_at or {looks_past})"
        return f"{'not ' if word == 'no_event' else ''}exists (select 1 from events v where {event})"

    # --- outcomes: a query of subject_id, encounter_id, came (when it came true)

    def _outcome(self) -> None:
        outcome = self.spec["outcome"]
        if "class_of" in outcome or "labels_of" in outcome:
            self._classes(outcome)
            return
        if "lab_class" in outcome:
            self._lab_classes(outcome, self._window_end(outcome))
            return
        if "value_of" in outcome:
            self._values_of(outcome, self._window_end(outcome))
            return
        if "time_to" in outcome:
            self._times(outcome)
            return
        self.db.execute(f"create table outcomes as {self._came(outcome)}")
        if "index_days_left" in outcome:
            self._step("still in the stay at predict_at", 'c."end" > c.predict_at')
            return
        came = "(select o.came from outcomes o where o.encounter_id = c.encounter_id)"
        self._step("no outcome by predict_at", f"coalesce({came} > c.predict_at, true)", drops=not self.paper)

    def _values_of(self, outcome: dict, last: str) -> None:
        """Of the values in the window that are in the unit or convert to it, keep the one the file asks for."""
        number = self._number(outcome, f"0 {outcome['unit']}")
        order = {
            "first": "v.time, v.available_at, v.rank nulls first, v.value",
            "last": "v.time desc, v.available_at desc, v.rank desc nulls last, v.value desc",
            "lowest": f"{number}, v.time",
            "highest": f"{number} desc, v.time",
        }[outcome["which"]]
        self.db.execute(f"""create table outcomes as
            select c.encounter_id, v.time as came, {number} as number from s0 c join events v using (subject_id)
            where {self._codes(outcome["value_of"], "v")} and {number} is not null
                and v.time > c.predict_at and v.time <= {last}
            qualify row_number() over (partition by c.encounter_id order by {order}) = 1""")
        window = "c.encounter_id in (select encounter_id from outcomes)"
        self._step(f"has a value of {outcome['value_of']} in the window", window)

    def _times(self, outcome: dict) -> None:
        """A row's follow-up ends at `censored`; `came` is the first event up to the end of the window."""
        to, last = outcome["time_to"], self._window_end(outcome)
        if "died" in to:
            end_of_follow_up = f"least({last}, c.end_of_data + interval {self.death_follow_up_days} day)"
            moments = f"select {_INDEX}, c.death as moment, {end_of_follow_up} as last from s0 c"
        else:
            end_of_follow_up = f"least({last}, c.end_of_data, c.death)"
            if "any_event" in to:
                rows, moment = f"events w where {self._codes(to['any_event'], 'w')}", "time"
            else:
                rows, moment = f"encounters w where {self._filter(to['any_encounter'], 'w')}", "start"
            moments = f"""select {_INDEX}, m.moment, {last} as last
                from s0 c join (select w.subject_id, w.{moment} as moment from {rows}) m using (subject_id)"""
        self.db.execute(f"""create table outcomes as
            select c.encounter_id, min(m.moment) as came, any_value(c.censored) as censored
            from (select c.*, case when {last} is not null then {end_of_follow_up} end as censored from s0 c) c
            left join ({moments}) m
                on m.encounter_id = c.encounter_id and m.moment > c.predict_at and m.moment <= m.last
            group by c.encounter_id""")
        self._step("alive at predict_at", "c.death is null or c.death > c.predict_at")
        end = "(select coalesce(o.came, o.censored) from outcomes o where o.encounter_id = c.encounter_id)"
        self._step("followed after predict_at", f"{end} > c.predict_at")

    def _came(self, outcome: dict) -> str:
        if "index_days_left" in outcome:
            return f'select {_INDEX}, c."end" as came from s0 c'
        if "index_died" in outcome:
            return f'select {_INDEX}, least(c.death_time, c."end") as came from s0 c where c.died'
        if "index_longer_than" in outcome:
            length = _interval(outcome["index_longer_than"])
            return f'select {_INDEX}, c.start + {length} as came from s0 c where c."end" > c.start + {length}'
        last = self._window_end(outcome)
        if "died" in outcome:
            return f"select {_INDEX}, c.death as came from s0 c where c.death <= {last}"
        if "lab" in outcome:
            values = self._values(outcome, f"v.time > c.predict_at and v.time <= {last}")
            return f"select subject_id, encounter_id, min(moment) as came from ({values}) group by all"
        if "first_ever" in outcome:
            codes = self._codes(outcome["any_event"], "w")
            firsts = f"select subject_id, min(time) as came from events w where {codes} group by all"
            return f"select {_INDEX}, m.came from s0 c join ({firsts}) m using (subject_id) where m.came <= {last}"
        if "episodes_of" in outcome:
            return self._episodes(outcome, last)
        if "any_event" in outcome:
            rows, moment = f"events w where {self._codes(outcome['any_event'], 'w')}", "w.time"
        else:
            spec = outcome.get("any_encounter", {"with": outcome.get("encounters_with")})
            rows, moment = f"encounters w where {self._filter(spec, 'w')}", "w.start"
        query = f"""select {_INDEX}, m.moment, cast(m.moment as date) as day
            from s0 c join (select w.subject_id, {moment} as moment from {rows}) m using (subject_id)
            where m.moment > c.predict_at and m.moment <= {last}"""
        if outcome.get("on_distinct_days"):
            first = "select subject_id, encounter_id, day, min(moment) as moment"
            query = f"{first} from ({query}) group by subject_id, encounter_id, day"
        return f"""select subject_id, encounter_id, moment as came from (
            select *, row_number() over (partition by subject_id, encounter_id order by moment) as place
            from ({query})) where place = {outcome.get("at_least", 1)}"""

    def _window_end(self, outcome: dict) -> str:
        if "until" in outcome:
            return self._time(outcome["until"])
        return self._time(
            "end_of_data" if outcome["within"] == "end_of_data" else f"predict_at + {outcome['within']}"
        )

    def _episodes(self, outcome: dict, last: str) -> str:
        has_code = self._has_code(outcome["episodes_of"], "o")
        rates = []
        for rate in outcome["at_least"]:
            count, length = re.fullmatch(r"(\d+) in (.+)", rate).groups()
            rates.append(f"b.place = a.place + {int(count) - 1} and b.day <= a.day + {_interval(length)}")
        return f"""
            with days as (
                select {_INDEX}, cast(o.start as date) as day, min(o.start) as moment
                from s0 c join encounters o using (subject_id)
                where {has_code} and o.start >= c.start and o.start <= {last} group by all),
            gaps as (select *, lag(day) over (partition by encounter_id order by day) as before from days),
            episodes as (
                select *, row_number() over (partition by encounter_id order by day) as place from gaps
                where before is null or day > before + {_interval(outcome["new_episode_after"])})
            select b.subject_id, b.encounter_id, min(b.moment) as came
            from episodes a join episodes b using (encounter_id) where {" or ".join(f"({term})" for term in rates)}
            group by all"""

    def _classes(self, outcome: dict) -> None:
        label = "mapped[1:3]" if outcome["map"] == "icd10_3char" else _CHAPTER
        self.db.execute(
            "create table outcomes as select null::bigint as encounter_id, null::timestamp as came limit 0"
        )
        if "class_of" in outcome:
            self.db.execute(f"""create table classes as select encounter_id, arg_min({label}, (vocab, code)) as label
                from events where kind = 'DX' and rank = {outcome["rank"]} and encounter_id is not null group by all""")
            has_class = "c.encounter_id in (select encounter_id from classes where label is not null)"
            self._step("its diagnosis has a class", has_class)
            return
        is_fit_row = "true" if self.paper else "c.split = 'train'"
        self.db.execute(f"""create table carried as
            select distinct c.encounter_id, {label} as label, {is_fit_row} as fitted
            from {self.table} c join events v using (subject_id, encounter_id)
            where v.kind = 'DX' and {label} is not null""")
        enough = f"having count(*) >= {outcome['min_index']}"
        self.db.execute(f"""create table classes as select encounter_id, list_sort(list(label)) as label from carried
            where label in (select label from carried where fitted group by all {enough}) group by all""")

    # --- results

    @property
    def labels(self) -> list[Row]:
        outcome = self.spec["outcome"]
        label = "o.came is not null"
        if "value_of" in outcome:
            label = "o.number"
        if "time_to" in outcome:
            days = "(epoch_us(coalesce(o.came, o.censored)) - epoch_us(c.predict_at)) / 86400e6"
            label = f"{{'days': {days}, 'event': o.came is not null}}"
        if "index_days_left" in outcome:
            label = "(epoch_us(o.came) - epoch_us(c.predict_at)) / 86400e6"
        if "class_of" in outcome or "labels_of" in outcome or "lab_class" in outcome:
            label = "(select k.label from classes k where k.encounter_id = c.encounter_id)"
            label = f"coalesce({label}, []::varchar[])" if "labels_of" in outcome else label
        return self.db.execute(f"""
            select c.subject_id, c.encounter_id, c.start, c.predict_at, {label}, o.came,
                greatest(0, epoch_us(least(c.end_of_data, c.death)) - epoch_us(c.predict_at)) / 86400e6, c.split
            from {self.table} c left join outcomes o on o.encounter_id = c.encounter_id
            order by c.subject_id, c.start, c.encounter_id""").fetchall()

    @property
    def features(self) -> list[Row]:
        """Return (index encounter, event number) of every event a model may see, in order."""
        rule = self.spec["features"]
        clock = "v.time < c.predict_at" if self.paper else "v.available_at <= c.predict_at"
        conditions = [clock, "(e.start, e.encounter_id) <= (c.start, c.encounter_id)"]
        for kind in rule["drop_types"]:
            conditions.append(f"v.kind != '{kind}'")
        for kind in rule["drop_from_index"]:
            conditions.append(f"not (v.kind = '{kind}' and v.encounter_id = c.encounter_id)")
        if "since" in rule:
            conditions.append(f"v.{'time' if self.paper else 'available_at'} > {self._time(rule['since'])}")
        return self.db.execute(f"""
            select c.encounter_id, v.value from {self.table} c join events v using (subject_id)
            join encounters e on e.encounter_id = v.encounter_id
            where {" and ".join(conditions)} order by all""").fetchall()


_RATIOS: dict[str, dict[str, float]] = {
    "mg/dL": {"mg/dL": 1, "MG/DL": 1, "g/L": 100, "umol/L": 0.011312, "mmol/L": 11.312},
    "mmol/L": {"mEq/L": 1, "mg/dL": 1 / 18.0156},
    "mEq/L": {"mEq/L": 1},
    "g/L": {"g/dL": 10},
    "g/dL": {"g/dL": 1},
    "K/uL": {"K/uL": 1},
    "10^9/L": {"K/uL": 1},
}
"""What a recorded value is multiplied by, by the unit of the limit: creatinine in random worlds, glucose in mmol/L."""


def _interval(length: str) -> str:
    count, unit = length.split()
    return f"interval {count} {unit}"


_CHAPTER = """case when mapped[1] = 'I' then 'IX' when mapped[1] = 'E' then 'IV' when mapped[1] = 'T' then 'XIX'
    when mapped is null and vocab = 'icd9cm' and code[1] = 'E' then 'XX'
    when mapped is null and vocab = 'icd9cm' and code[1] = 'V' then 'XXI' end"""
"""The chapters of the codes in random worlds, and of no others."""
