"""Small random raw MIMIC-IV tables with every data fault of the rules, at rates below the bounds."""

import csv
import gzip
import random
from datetime import datetime, timedelta
from pathlib import Path

ICD9 = ["4019", "25000", "E8889", "V5867", "0010", "99999"]  # 99999 is in no crosswalk
ICD10 = ["I10", "E11.9", "e119", "E1165", "S72001A", "S72001D", "Z7901"]
PCS9 = ["3961", "0331", "9999"]
PCS10 = ["0DTJ4ZZ", "5A1221Z"]
DRUGS = ["Aspirin", " aspirin ", "Heparin", "Insulin Glargine", "Snake Oil", "Saline"]
GSNS = ["000101", "000102", "000102  000103", " 000104 ", "", "999999"]
UNITS = {50912: ["mg/dL", "mg/dL", "mg/L"], 50971: ["mEq/L"], 51221: ["%", ""], 50802: [""], 51301: ["K/uL"]}

CROSSWALKS = {
    "icd_cm_9_to_10_mapping": (
        ["icd_9", "icd_10", "flags"],
        [
            ["4019", "I10", "0"],
            ["25000", "E119", "0"],
            ["25000", "E1165", "0"],
            ["25000", "E118", "0"],
            ["E8889", "W1830XA", "0"],
            ["V5867", "Z794", "0"],
            ["0010", "NoDx", "1"],
        ],
    ),
    "icd_pcs_9_to_10_mapping": (
        ["icd_9", "icd_10", "flags", "year"],
        [["3961", "5A1221Z", "0", "2018"], ["3961", "021009W", "0", "2018"], ["0331", "NoPCS", "1", "2018"]],
    ),
    "gsn_atc_ndc_mapping": (
        ["gsn", "atc", "ndc"],
        [
            ["000101", "B01AC06", "1"],
            ["000101", "N02BA01", "2"],
            ["000102", "B01AB", "3"],
            ["000103", "A10AE04", "4"],
            ["000104", "A10AE", "5"],
            ["000104", "A10AE", "6"],
        ],
    ),
}


NOTHING_ELSE_WRONG = {"valuenum": "2", "event_txt": "Administered", "medication": "Heparin"}


def make_tables(seed: int, patients: int = 60) -> dict[str, tuple[list[str], list[list]]]:
    """Return table -> (header, rows), with one odd stay per hundred and one foreign row per thousand."""
    chance = random.Random(seed)
    tables: dict[str, tuple[list[str], list[list]]] = {
        "patients": (["subject_id", "gender", "anchor_age", "anchor_year", "anchor_year_group", "dod"], []),
        "admissions": (
            [
                "subject_id",
                "hadm_id",
                "admittime",
                "dischtime",
                "deathtime",
                "admission_type",
                "discharge_location",
                "insurance",
                "language",
                "race",
                "hospital_expire_flag",
            ],
            [],
        ),
        "diagnoses_icd": (["subject_id", "hadm_id", "seq_num", "icd_code", "icd_version"], []),
        "procedures_icd": (["subject_id", "hadm_id", "seq_num", "chartdate", "icd_code", "icd_version"], []),
        "labevents": (
            [
                "labevent_id",
                "subject_id",
                "hadm_id",
                "itemid",
                "charttime",
                "storetime",
                "value",
                "valuenum",
                "valueuom",
                "comments",
            ],
            [],
        ),
        "emar": (
            [
                "subject_id",
                "hadm_id",
                "emar_id",
                "emar_seq",
                "pharmacy_id",
                "charttime",
                "medication",
                "event_txt",
                "storetime",
            ],
            [],
        ),
        "prescriptions": (["subject_id", "hadm_id", "pharmacy_id", "drug_type", "drug", "gsn"], []),
    }
    add = {name: rows.append for name, (_, rows) in tables.items()}
    stays = []
    for subject in range(1, patients + 1):
        dead = f"{chance.randint(2160, 2170)}-03-04" if chance.random() < 0.1 else ""
        add["patients"]([subject, chance.choice("FM"), chance.randint(18, 91), 2150, "2011 - 2013", dead])
        start = datetime(2150, 1, 1) + timedelta(hours=chance.randint(0, 8000))
        for _ in range(chance.choice([0, 1, 1, 2, 3, 6])):
            end = start + timedelta(minutes=chance.randint(60, 9000))
            stays.append((subject, 1000 + len(stays), start, end))
            start += timedelta(minutes=chance.randint(-200, 60000) + 200)  # some overlap, some start together
    for subject, hadm, start, end in stays:
        is_odd = hadm == 1007 and len(stays) > 100  # with fewer stays, one would exceed the bound
        backwards = start - timedelta(minutes=chance.choice([0, 30]))
        # odd stays end before they begin, or are open
        discharge = end if not is_odd else backwards if seed % 2 else ""
        flag = int(chance.random() < 0.1)
        is_timed = flag and hadm % 5  # for the others, only the flag records the death
        dead = start + (end - start) * (hadm % 3) / 2 if is_timed else ""
        add["admissions"](
            [subject, hadm, start, discharge, dead, "URGENT", "HOME", "Other", "?", "WHITE", flag]
        )
    lab, sequence, pharmacy = 0, 0, 0
    for subject, hadm, start, _ in stays:
        for place in range(chance.randint(0, 24)):
            old = chance.random() < 0.5
            code = chance.choice(ICD9 if old else [*ICD10, f"M54{chance.randint(0, 60)}"])
            add["diagnoses_icd"]([subject, hadm, place + 1, code, 9 if old else 10])
        for place in range(chance.randint(0, 24)):
            old = chance.random() < 0.5
            day = (start + timedelta(days=chance.randint(-1, 3))).date()
            code = chance.choice(PCS9 if old else PCS10)
            add["procedures_icd"]([subject, hadm, place + 1, day, code, 9 if old else 10])
        for _ in range(chance.randint(0, 60)):
            lab += 1
            time = start + timedelta(minutes=chance.randint(-2000, 9000))
            store_time = "" if chance.random() < 0.1 else time + timedelta(minutes=chance.randint(-30, 300))
            item = chance.choice([50912, 50912, 50971, 51221, 50802, 51301])
            no_number = "NaN" if lab % 2 else "1e999"  # with "", two in five: half would be refused
            value = chance.choice(
                [str(chance.randint(0, 40) / 10), str(chance.randint(0, 4)), str(lab % 5), "", no_number]
            )
            unit = chance.choice(UNITS[item])
            stay_id = hadm if chance.random() < 0.6 else ""
            remark = 'he said "no",\nthen yes' if chance.random() < 0.2 else ""
            add["labevents"]([lab, subject, stay_id, item, time, store_time, value, value, unit, remark])
        for _ in range(chance.randint(0, 30)):
            sequence += 1
            time = start + timedelta(minutes=chance.randint(-100, 9000))
            stay_id = hadm if chance.random() < 0.9 else ""
            event_text = chance.choice(["Administered"] * 4 + ["Not Given", "administered", ""])
            name = chance.choice([*DRUGS, "", "  "])
            pharmacy_id = chance.randint(1, pharmacy + 2)
            add["emar"](
                [
                    subject,
                    stay_id,
                    f"{subject}-{sequence}",
                    sequence,
                    pharmacy_id,
                    time,
                    name,
                    event_text,
                    time,
                ]
            )
        for _ in range(chance.randint(0, 24)):
            pharmacy += 1
            number = pharmacy if chance.random() < 0.9 else ""
            drug = chance.choice(DRUGS)
            gsn = "999999" if drug == "Snake Oil" else chance.choice(GSNS)
            add["prescriptions"]([subject, hadm, number, "MAIN", drug, gsn])
    for name in ("diagnoses_icd", "procedures_icd", "labevents", "emar", "prescriptions"):
        header, rows = tables[name]
        stray = list(rows[0])
        foreign = {"subject_id": stays[-1][0], "hadm_id": stays[0][1]}
        for column, value in (foreign | NOTHING_ELSE_WRONG).items():
            if column in header:
                stray[header.index(column)] = value
        if len(rows) >= 1000:
            rows.append(stray)
        chance.shuffle(rows)
    return tables


def write_tables(folder: Path, tables: dict[str, tuple[list[str], list[list]]]) -> tuple[Path, Path]:
    """Write the tables as csv.gz under hosp and the crosswalks under vocab, and return both folders."""
    for name, (header, rows) in {**tables, **CROSSWALKS}.items():
        into = folder / ("vocab" if name in CROSSWALKS else "hosp")
        into.mkdir(parents=True, exist_ok=True)
        with gzip.open(into / f"{name}.csv.gz", "wt", newline="", compresslevel=1) as file:
            writer = csv.writer(file)
            writer.writerow(header)
            writer.writerows(rows)
    return folder / "hosp", folder / "vocab"
