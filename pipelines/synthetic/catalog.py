"""The facts the generator draws from: codes, drugs, laboratory items and their relation to conditions.

They are small CSV files in `catalog/`, read once; `catalog/README.md` gives their origins.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from schemas.io.paths import scan_csv

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]

FOLDER = Path(__file__).parent / "catalog"
FACTORS = (
    "renal",
    "hepatic",
    "inflammation",
    "anemia",
    "cardiac",
    "glucose",
    "clotting",
    "acidosis",
    "nutrition",
)
CROSSWALKS = ("icd_cm_9_to_10_mapping", "icd_pcs_9_to_10_mapping", "gsn_atc_ndc_mapping", "atc_coding")
OTHER_FLUIDS = ("Urine", "Ascites", "Pleural", "CSF", "Body Fluid")
"""What an item's name ends in where it is not measured in blood."""
CATEGORY_OF_PANEL = {
    **dict.fromkeys(("gas", "lactate", "vent"), "Blood Gas"),
    **dict.fromkeys(
        ("blood", "diff", "count", "bands", "clot", "index", "fibrinogen", "hemolysis"), "Hematology"
    ),
}
ANY = "any"  # the condition every stay has
OF_MEN = ("185", "600", "C61", "N40")  # prefixes of the codes of conditions that only men have


@dataclass(frozen=True)
class Conditions:
    """The conditions of patients. C conditions, F factors."""

    names: list[str]
    chronic_share: Floats  # [C]
    acute_weight: Floats  # [C] as the reason for a stay
    age_slope: Floats  # [C] change of the log-odds per 18 years of age
    female_only: Bools  # [C]
    loadings: Floats  # [C, F]


@dataclass(frozen=True)
class CodeBook:
    """The codes of one table in one ICD version. K codes."""

    codes: Texts  # [K]
    weights: Floats  # [C + 1, K]; the last row applies to every stay
    has_target: Bools  # [K] has a target in the crosswalk (always true in version 10)
    at_least_hours: Floats  # [K] least duration stated by the code; NaN if it states none
    under_hours: Floats  # [K] upper bound of the duration, infinite if open; NaN if the code states none
    men_only: Bools  # [K] only men have the condition


@dataclass(frozen=True)
class DrugList:
    """D drugs, under the names of the pharmacy."""

    names: list[str]
    interval_hours: Floats  # [D]
    gsn_groups: list[list[str]]  # per drug and ATC code: GSNs separated by blanks
    atc: list[list[str]]  # per drug: its ATC codes, in the order of gsn_groups
    orders: pl.DataFrame  # route, dose_val_rx, dose_unit_rx, form_rx
    weights: Floats  # [C + 1, D]


@dataclass(frozen=True)
class LabItems:
    """I laboratory items in P panels, the rows of a panel in sequence."""

    rows: pl.DataFrame  # itemid, valueuom, ref_range_lower, ref_range_upper, label
    mean: Floats  # [I] mean of the value, or of its logarithm
    sd: Floats
    decimals: Ints
    is_log: Bools
    loadings: Floats  # [I, F]
    panels: list[str]
    first_item: Ints  # [P + 1] offsets into the items
    first_draw: Floats  # [P] probability in the first draw of a stay
    later_draw: Floats
    gain: Floats  # [P, F] on the log-odds


@dataclass(frozen=True)
class Catalog:
    conditions: Conditions
    diagnoses: dict[int, CodeBook]  # by ICD version
    procedures: dict[int, CodeBook]
    drugs: DrugList
    labs: LabItems


@cache
def catalog() -> Catalog:
    """Read the catalog once and return the same object every time."""
    conditions = _conditions()
    return Catalog(
        conditions=conditions,
        diagnoses=_code_books("diagnoses", "icd_cm_9_to_10_mapping", conditions.names),
        procedures=_code_books("procedures", "icd_pcs_9_to_10_mapping", conditions.names),
        drugs=_drugs(conditions.names),
        labs=_labs(),
    )


def read(name: str) -> pl.DataFrame:
    """Read one catalog file with all columns as text."""
    return scan_csv(FOLDER / f"{name}.csv", infer_schema=False).collect()


def lab_items() -> pl.DataFrame:
    """Return `d_labitems`: the items of `labs` in the fluid that their name or panel says, in categories of ours."""
    label, panel = pl.col("label"), pl.col("panel")
    fluid = label.str.extract(f", ({'|'.join(OTHER_FLUIDS)})$")
    fluid = pl.coalesce(fluid, pl.when(panel == "urine").then(pl.lit("Urine")), pl.lit("Blood"))
    category = panel.replace_strict(CATEGORY_OF_PANEL, default="Chemistry")
    items = read("labs").select("itemid", "label", fluid=fluid, category=category)
    return items.sort(pl.col("itemid").cast(pl.Int64))


def _floats(table: pl.DataFrame, column: str) -> Floats:
    return table[column].cast(pl.Float64).fill_null(0.0).to_numpy().copy()


def _conditions() -> Conditions:
    table = read("conditions")
    return Conditions(
        names=table["condition"].to_list(),
        chronic_share=_floats(table, "chronic_share"),
        acute_weight=_floats(table, "acute_weight"),
        age_slope=_floats(table, "age_slope"),
        female_only=table["female_only"].to_numpy() == "1",
        loadings=np.stack([_floats(table, factor) for factor in FACTORS], axis=1),
    )


def _weights(table: pl.DataFrame, columns: list[str], of: str, conditions: list[str]) -> Floats:
    """Return [C + 1, len(columns)]: the weight of each column under each condition."""
    row = {name: index for index, name in enumerate([*conditions, ANY])}
    column = {name: index for index, name in enumerate(columns)}
    weights = np.zeros((len(row), len(column)))
    rows = [row[name] for name in table["condition"]]
    np.add.at(weights, (rows, [column[name] for name in table[of]]), _floats(table, "weight"))
    return weights


def _code_books(name: str, crosswalk: str, conditions: list[str]) -> dict[int, CodeBook]:
    table, targets = read(name), read(crosswalk)
    durations = read("durations")
    codes_with_target = set(targets.filter(~pl.col("icd_10").is_in(["NoDx", "NoPCS"]))["icd_9"])
    books = {}
    for version in (9, 10):
        part = table.filter(pl.col("icd_version") == str(version))
        codes = part["icd_code"].unique(maintain_order=True).to_list()
        version_durations = durations.filter(pl.col("icd_version") == str(version))
        hours = pl.DataFrame({"icd_code": codes}).join(
            version_durations, on="icd_code", how="left", maintain_order="left"
        )
        at_least, under = (
            hours[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
            for name in ("at_least_hours", "under_hours")
        )
        books[version] = CodeBook(
            codes=np.array(codes, dtype=object),
            weights=_weights(part, codes, "icd_code", conditions),
            has_target=np.array([version == 10 or code in codes_with_target for code in codes]),
            at_least_hours=at_least,
            under_hours=np.where(np.isnan(at_least), np.nan, np.nan_to_num(under, nan=np.inf)),
            men_only=np.array([name == "diagnoses" and code.startswith(OF_MEN) for code in codes]),
        )
    return books


def _drugs(conditions: list[str]) -> DrugList:
    table, uses = read("drugs"), read("drug_uses")
    atc_of = dict(read("gsn_atc_ndc_mapping").select("gsn", "atc").iter_rows())
    groups = [text.split("|") if text else [] for text in table["gsn"].fill_null("")]
    names = table["drug"].to_list()
    return DrugList(
        names=names,
        interval_hours=_floats(table, "interval_hours"),
        gsn_groups=groups,
        atc=[[atc_of[group.split()[0]] for group in drug_groups] for drug_groups in groups],
        orders=table.select("route", "dose_val_rx", "dose_unit_rx", "form_rx"),
        weights=_weights(uses, names, "drug", conditions),
    )


def _labs() -> LabItems:
    panels = read("panels")
    order = {name: index for index, name in enumerate(panels["panel"])}
    rows = read("labs").with_columns(panel_index=pl.col("panel").replace_strict(order, return_dtype=pl.Int64))
    rows = rows.sort("panel_index", maintain_order=True)
    factor_of = [FACTORS.index(factor) if factor else 0 for factor in panels["factor"].fill_null("")]
    gain = np.zeros((len(order), len(FACTORS)))
    gain[np.arange(len(order)), factor_of] = _floats(panels, "gain")
    return LabItems(
        rows=rows,
        mean=_floats(rows, "mean"),
        sd=_floats(rows, "sd"),
        decimals=rows["decimals"].cast(pl.Int64).to_numpy().copy(),
        is_log=rows["scale"].to_numpy() == "log",
        loadings=np.stack([_floats(rows, factor) for factor in FACTORS], axis=1),
        panels=panels["panel"].to_list(),
        first_item=np.searchsorted(rows["panel_index"].to_numpy(), np.arange(len(order) + 1)),
        first_draw=_floats(panels, "first_draw"),
        later_draw=_floats(panels, "later_draw"),
        gain=gain,
    )
