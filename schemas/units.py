"""Units of measurement: which of them can be compared, and the exact factor from one to the other.

Units of one dimension always compare (g/dL and g/L, K/uL and 10^9/L). Mass, amount of substance and charge per volume
compare only where the substance is named, by its formula and the standard atomic weights of IUPAC (abridged, 2021;
https://iupac.org/what-we-do/periodic-table-of-elements/). All other units compare only with themselves.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

ATOMIC_WEIGHTS = {
    "H": "1.008",
    "C": "12.011",
    "N": "14.007",
    "O": "15.999",
    "Na": "22.990",
    "Mg": "24.305",
    "P": "30.974",
    "Cl": "35.45",
    "K": "39.098",
    "Ca": "40.078",
    "Fe": "55.845",
}

SUBSTANCES: dict[str, tuple[str, int]] = {
    "bicarbonate": ("CHO3", 1),
    "bilirubin": ("C33H36N4O6", 0),
    "calcium": ("Ca", 2),
    "chloride": ("Cl", 1),
    "cholesterol": ("C27H46O", 0),
    "creatinine": ("C4H7N3O", 0),
    "glucose": ("C6H12O6", 0),
    "iron": ("Fe", 0),
    "lactate": ("C3H5O3", 1),
    "magnesium": ("Mg", 2),
    "phosphate": ("P", 0),  # reported as the mass of phosphorus
    "potassium": ("K", 1),
    "sodium": ("Na", 1),
    "urea_nitrogen": ("N2", 0),  # the mass of the two nitrogen atoms of one molecule of urea
    "uric_acid": ("C5H4N4O3", 0),
}
"""Formula and charge of an ion (0: none, or not reported in equivalents), by the word a cohort file uses."""

_MASS = {"kg": "1e3", "g": "1", "mg": "1e-3", "ug": "1e-6", "mcg": "1e-6", "ng": "1e-9", "pg": "1e-12"}
_AMOUNT = {"mol": "1", "mmol": "1e-3", "umol": "1e-6", "nmol": "1e-9", "pmol": "1e-12"}
_CHARGE = {"eq": "1", "meq": "1e-3", "ueq": "1e-6"}
_ACTIVITY = {"u": "1", "iu": "1", "[iu]": "1", "mu": "1e-3", "miu": "1e-3", "ku": "1e3"}
_COUNT = {"": "1", "#": "1", "cells": "1", "k": "1e3", "thou": "1e3", "m": "1e6", "mill": "1e6"}
_DIMENSIONS = {
    **dict.fromkeys(_MASS, "mass"),
    **dict.fromkeys(_AMOUNT, "amount"),
    **dict.fromkeys(_CHARGE, "charge"),
    **dict.fromkeys(_ACTIVITY, "activity"),
    **dict.fromkeys(_COUNT, "count"),
}
_SCALES = _MASS | _AMOUNT | _CHARGE | _ACTIVITY | _COUNT
_VOLUMES = {"l": "1", "dl": "0.1", "ml": "1e-3", "cc": "1e-3", "ul": "1e-6", "mm3": "1e-6", "cumm": "1e-6"}
_POWER = re.compile(r"x?10[\^*e](\d{1,2})")  # 10^9/L, 10*9/L, x10e3/uL


@dataclass(frozen=True)
class Unit:
    """A unit as a multiple of the base unit of its dimension, per litre where it is of a concentration."""

    dimension: str
    scale: Fraction = Fraction(1)


@cache
def unit_of(text: str) -> Unit:
    """Return the unit a text stands for; case, blanks and the form of the Greek mu do not matter."""
    plain = re.sub(r"\s", "", text).lower().replace("µ", "u").replace("μ", "u")
    upper, slash, lower = plain.rpartition("/")
    if slash and lower in _VOLUMES:
        volume = Fraction(_VOLUMES[lower])
        power = _POWER.fullmatch(upper)
        if power:
            return Unit("count", 10 ** int(power[1]) / volume)
        if upper in _SCALES:
            return Unit(_DIMENSIONS[upper], Fraction(_SCALES[upper]) / volume)
    return Unit(f"'{plain}'")


def molar_mass(substance: str) -> Fraction:
    """Return grams per mole, from the formula."""
    formula, _ = SUBSTANCES[substance]
    atoms = re.findall(r"([A-Z][a-z]?)(\d*)", formula)
    return sum((Fraction(ATOMIC_WEIGHTS[element]) * int(count or 1) for element, count in atoms), Fraction())


def factor(unit: str, into: str, substance: str | None = None) -> Fraction | None:
    """Return what a number in `unit` is multiplied by to be in `into`; None where the two do not compare."""
    old, new = unit_of(unit), unit_of(into)
    if old.dimension == new.dimension:
        return old.scale / new.scale
    moles = _moles(substance)
    if old.dimension in moles and new.dimension in moles:
        return old.scale * moles[old.dimension] / (new.scale * moles[new.dimension])
    return None


def _moles(substance: str | None) -> dict[str, Fraction]:
    """Return the moles in a gram, a mole and an equivalent of a substance."""
    if substance is None:
        return {}
    charge = SUBSTANCES[substance][1]
    moles = {"mass": 1 / molar_mass(substance), "amount": Fraction(1)}
    return moles | ({"charge": Fraction(1, charge)} if charge else {})
