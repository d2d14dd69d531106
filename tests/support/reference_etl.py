"""An independent ETL in plain loops, written from the rules alone, with which the pipeline must agree."""

import csv
import gzip
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from hashlib import blake2b
from io import StringIO
from pathlib import Path

DAY, LOOKBACK = timedelta(days=1), timedelta(hours=24)
NEVER = datetime(2299, 12, 31, 23, 59, 59, 999999)


@dataclass
class Token:
    text: str
    kind: str
    time: datetime
    available: datetime
    order: tuple  # within its set


@dataclass
class ReferenceData:
    """The result of the rules: sets with tokens as written and as encoded, cuts, counts, drops."""

    subjects: dict[int, tuple]  # birth, death?, sex, split, pretrain_split
    stays: list[tuple]  # subject, hadm, start, end?, admission type?
    deaths: dict[int, tuple[bool, datetime | None]]  # hadm -> died there, and when
    sets: dict[int, list[Token]]
    token_texts: dict[int, list[str]]  # hadm -> token texts, [UNK] without a token in the vocabulary
    kept_counts: dict[str, int]  # token -> count, only those with an id
    cuts: dict[str, list[float]]
    units: dict[str, str | None]
    lookup: dict[str, tuple[str, int]]
    drop_counts: Counter = field(default_factory=Counter)


def rows(folder: Path, table: str) -> list[dict]:
    path = next(p for p in (folder / f"{table}.csv.gz", folder / f"{table}.csv") if p.exists())
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return [
        {k: v if v != "" else None for k, v in row.items()}
        for row in csv.DictReader(StringIO(text, newline=""))
    ]


def split_of(subject: int, low: float, high: float) -> str:
    u = int.from_bytes(blake2b(f"42:{subject}".encode(), digest_size=8).digest(), "big") / 2**64
    return "train" if u < low else "val" if u < high else "test"


def cuts_of(values: list[float]) -> list[float]:
    v, n, cuts = sorted(values), len(values), []
    for k in range(1, 10):
        q, r = divmod(k * (n - 1), 10)
        cuts.append(v[q] if r == 0 else v[q] + (v[q + 1] - v[q]) * r / 10)
    return cuts


def parent(token: str) -> str | None:
    kind, code = token.split(":", 1)
    if kind == "DX" and len(code) > 3:
        return token[:-1]
    if kind == "MED":
        shorter = [level for level in (7, 5, 4, 3, 1) if level < len(code)]
        return f"MED:{code[: shorter[0]]}" if shorter else None
    return None


def ancestors(token: str) -> list[str]:
    chain = []
    while (token := parent(token)) is not None:  # type: ignore[assignment, arg-type]
        chain.append(token)
    return chain


def gem(folder: Path, table: str) -> dict[str, str | None]:
    targets = defaultdict(list)
    for row in rows(folder, table):
        targets[row["icd_9"]].append(row["icd_10"])
    mapping = {}
    for code, codes in targets.items():
        real = sorted((t for t in codes if t not in ("NoDx", "NoPCS")), key=lambda t: (len(t), t))
        mapping[code] = real[0] if real else None
    return mapping


def derive(
    hosp: Path,
    crosswalks: Path,
    *,
    fit_on="all",
    min_count=1,
    med_link="name",
    top=200,
    pretrain_split=(0.70, 0.85),
) -> ReferenceData:
    patients = rows(hosp, "patients")
    fit_subjects = {
        int(p["subject_id"])
        for p in patients
        if fit_on == "all" or split_of(int(p["subject_id"]), 0.70, 0.85) == "train"
    }
    subjects = {int(p["subject_id"]) for p in patients}
    stays, stays_of, deaths, coded_at = {}, defaultdict(list), {}, {}
    for row in rows(hosp, "admissions"):
        start, end = at(row["admittime"]), at(row["dischtime"])
        coded_at[int(row["hadm_id"])] = NEVER if end is None else max(start, end)
        end = end if end is not None and end > start else None
        deaths[int(row["hadm_id"])] = (row["hospital_expire_flag"] == "1", at(row["deathtime"]))
        kind = row["admission_type"] or None
        stays[int(row["hadm_id"])] = (int(row["subject_id"]), int(row["hadm_id"]), start, end, kind)
    for stay in sorted(stays.values(), key=lambda s: (s[0], s[2], s[1])):
        stays_of[stay[0]].append(stay)

    drop_counts: Counter = Counter()
    sets: dict[int, list[Token]] = {hadm: [] for hadm in stays}

    def is_foreign(row, kind):
        hadm = row["hadm_id"]
        if hadm is not None and (int(hadm) not in stays or stays[int(hadm)][0] != int(row["subject_id"])):
            drop_counts[kind, "foreign_hadm_id"] += 1
            return True
        return False

    for kind, table, crosswalk in (
        ("DX", "diagnoses_icd", "icd_cm_9_to_10_mapping"),
        ("PR", "procedures_icd", "icd_pcs_9_to_10_mapping"),
    ):
        targets = gem(crosswalks, crosswalk)
        for row in rows(hosp, table):
            if is_foreign(row, kind):
                continue
            code = row["icd_code"].replace(".", "").replace(" ", "").upper()
            if row["icd_version"] == "9":
                if code not in targets:
                    drop_counts[kind, "not_in_gem"] += 1
                    continue
                code = targets[code]
                if code is None:
                    drop_counts[kind, "NoDx" if kind == "DX" else "NoPCS"] += 1
                    continue
            _, hadm, start, *_ = stays[int(row["hadm_id"])]
            seq = int(row["seq_num"])
            if kind == "DX":
                sets[hadm].append(Token(f"DX:{code}", kind, start, coded_at[hadm], (0, start, 0, seq, code)))
            else:
                day = datetime.combine(date.fromisoformat(row["chartdate"]), datetime.min.time())
                sets[hadm].append(
                    Token(f"PR:{code}", kind, day, max(day + DAY, coded_at[hadm]), (1, day, 1, seq, code))
                )

    gsn_atc = defaultdict(set)
    for row in rows(crosswalks, "gsn_atc_ndc_mapping"):
        gsn_atc[row["gsn"]].add(row["atc"])
    by_name, by_pharmacy = defaultdict(Counter), defaultdict(Counter)
    for row in rows(hosp, "prescriptions"):
        subject = int(row["subject_id"])
        if is_foreign(row, "prescriptions"):
            continue
        atcs = {atc for gsn in (row["gsn"] or "").split() for atc in gsn_atc.get(gsn, ())}
        name = (row["drug"] or "").strip().lower()
        if subject in fit_subjects and name:
            by_name[name].update(atcs)
        if row["pharmacy_id"] is not None:
            by_pharmacy[subject, row["pharmacy_id"]].update(atcs)
    lookup = {name: commonest(counts) for name, counts in by_name.items() if counts}

    for row in rows(hosp, "emar"):
        if row["event_txt"] != "Administered":
            drop_counts["MED", "event_txt"] += 1
            continue
        name = (row["medication"] or "").strip().lower()
        if not name:
            drop_counts["MED", "no_name"] += 1
            continue
        if is_foreign(row, "MED"):
            continue
        same_kind = (
            by_pharmacy.get((int(row["subject_id"]), row["pharmacy_id"])) if med_link == "pharmacy" else None
        )
        atc = commonest(same_kind)[0] if same_kind else lookup.get(name, (None,))[0]
        if atc is None:
            drop_counts["MED", "no_atc"] += 1
            continue
        time = at(row["charttime"])
        hadm = row["hadm_id"] or containing(stays_of[int(row["subject_id"])], time)
        if hadm is None:
            drop_counts["MED", "no_stay"] += 1
            continue
        order = (1, time, 2, int(row["emar_seq"]), name)
        sets[int(hadm)].append(Token(f"MED:{atc}", "MED", time, time, order))

    item_values, frequency, units = defaultdict(list), Counter(), defaultdict(Counter)
    labs = []
    for row in rows(hosp, "labevents"):
        if row["valuenum"] is None:
            drop_counts["LAB", "no_valuenum"] += 1
            continue
        value = float(row["valuenum"])
        if value != value or abs(value) == float("inf"):
            drop_counts["LAB", "not_finite"] += 1
            continue
        if is_foreign(row, "LAB"):
            continue
        if int(row["subject_id"]) not in subjects:
            drop_counts["LAB", "unknown_subject"] += 1
            continue
        labs.append((row, value))
        if int(row["subject_id"]) in fit_subjects:
            frequency[row["itemid"]] += 1
            item_values[row["itemid"]].append(value)
            if row["valueuom"] is not None:
                units[row["itemid"]][row["valueuom"]] += 1
    items = sorted(frequency, key=lambda item: (-frequency[item], item))[:top]
    cuts = {item: cuts_of(item_values[item]) for item in items}
    for row, value in labs:
        item = row["itemid"]
        if item not in cuts:
            drop_counts["LAB", "not_top_lab"] += 1
            continue
        time, store_time = at(row["charttime"]), at(row["storetime"])
        patient_stays = stays_of[int(row["subject_id"])]
        hadm = row["hadm_id"] or containing(patient_stays, time) or soon(patient_stays, time)
        if hadm is None:
            drop_counts["LAB", "no_stay"] += 1
            continue
        decile = 1 + bisect_left(cuts[item], value)
        known_at = time if store_time is None else max(time, store_time)
        order = (1, time, 3, int(row["labevent_id"]), item)
        sets[int(hadm)].append(Token(f"LAB:{item}_Q{decile}", "LAB", time, known_at, order))

    for tokens in sets.values():
        tokens.sort(key=lambda token: token.order)
    text_counts = Counter(
        t.text for hadm, tokens in sets.items() if stays[hadm][0] in fit_subjects for t in tokens
    )
    patients_of, item_subjects = defaultdict(set), defaultdict(set)
    for hadm, tokens in sets.items():
        if stays[hadm][0] in fit_subjects:
            for token in tokens:
                patients_of[token.text].add(stays[hadm][0])
                item_subjects[token.text.partition("_Q")[0]].add(stays[hadm][0])
    totals = Counter(text_counts)
    for token in sorted(
        {*text_counts, *(a for t in text_counts for a in ancestors(t))}, key=len, reverse=True
    ):
        if len(patients_of[token]) < min_count and (above := parent(token)) is not None:
            totals[above] += totals[token]
            patients_of[above] |= patients_of[token]

    def is_common(token: str) -> bool:
        if token.startswith("LAB:"):  # the patients of a decile are those of its item
            return totals[token] >= min_count and len(item_subjects[token.partition("_Q")[0]]) >= min_count
        return len(patients_of[token]) >= min_count

    kept_tokens = {token: count for token, count in totals.items() if count and is_common(token)}

    def nearest(token):
        return next((t for t in (token, *ancestors(token)) if t in kept_tokens), None)

    return ReferenceData(
        subjects={int(p["subject_id"]): person(p, pretrain_split) for p in patients},
        stays=[stay for subject in sorted(stays_of) for stay in stays_of[subject]],
        deaths=deaths,
        sets=sets,
        token_texts={hadm: [nearest(t.text) or "[UNK]" for t in tokens] for hadm, tokens in sets.items()},
        kept_counts=kept_tokens,
        cuts=cuts,
        units={i: commonest(units[i])[0] if units[i] else None for i in items},
        lookup=lookup,
        drop_counts=drop_counts,
    )


def person(patient: dict, pretrain_split: tuple[float, float]) -> tuple:
    subject, birth_year = int(patient["subject_id"]), int(patient["anchor_year"]) - int(patient["anchor_age"])
    splits = split_of(subject, 0.70, 0.85), split_of(subject, *pretrain_split)
    return datetime(birth_year, 7, 1), at(patient["dod"]), patient["gender"], *splits


def at(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def commonest(counts: Counter) -> tuple[str, int]:
    return min(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def containing(stays: list[tuple], time: datetime) -> int | None:
    return next((hadm for _, hadm, start, end, *_ in stays if end is not None and start <= time <= end), None)


def soon(stays: list[tuple], time: datetime) -> int | None:
    return next((hadm for _, hadm, start, *_ in stays if start - LOOKBACK <= time < start), None)
