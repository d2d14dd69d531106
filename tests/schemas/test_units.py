"""Units compare only where they are of one dimension, or where the substance says how."""

from fractions import Fraction

import pytest

from schemas.units import SUBSTANCES, factor, molar_mass, unit_of


@pytest.mark.parametrize(
    ("unit", "into", "expected"),
    [
        ("g/dL", "g/L", 10),
        ("mg/dL", "MG/DL", 1),
        ("K/uL", "10^9/L", 1),
        ("10*3/uL", "x10e9/L", 1),
        ("m/uL", "10^12/L", 1),
        ("/mm3", "cells/µL", 1),
        ("ng/mL", "ug/L", 1),
        ("IU/L", "U/L", 1),
        ("%", "%", 1),
        ("", "", 1),
        ("units", "Units", 1),
    ],
)
def test_units_of_one_dimension_compare_exactly(unit, into, expected):
    assert factor(unit, into) == expected


@pytest.mark.parametrize(
    ("unit", "into"),
    [("mg/dL", "umol/L"), ("mEq/L", "mmol/L"), ("%", ""), ("K/uL", "g/L"), ("mm Hg", "kPa"), ("mg/dL", "mg")],
)
def test_units_of_different_dimensions_do_not_compare(unit, into):
    assert factor(unit, into) is None


@pytest.mark.parametrize(
    ("substance", "unit", "into", "expected"),
    [  # as common tables of SI units print them, rounded
        ("creatinine", "mg/dL", "umol/L", 88.4),
        ("bilirubin", "mg/dL", "umol/L", 17.104),
        ("glucose", "mg/dL", "mmol/L", 0.0555),
        ("urea_nitrogen", "mg/dL", "mmol/L", 0.357),
        ("cholesterol", "mg/dL", "mmol/L", 0.0259),
        ("calcium", "mg/dL", "mmol/L", 0.25),
        ("calcium", "mEq/L", "mmol/L", 0.5),
        ("magnesium", "mg/dL", "mEq/L", 0.823),
        ("phosphate", "mg/dL", "mmol/L", 0.323),
        ("lactate", "mg/dL", "mmol/L", 0.111),
        ("uric_acid", "mg/dL", "mmol/L", 0.0595),
        ("iron", "ug/dL", "umol/L", 0.179),
        ("potassium", "mEq/L", "mmol/L", 1),
        ("sodium", "mEq/L", "mmol/L", 1),
        ("chloride", "mEq/L", "mmol/L", 1),
        ("bicarbonate", "mEq/L", "mmol/L", 1),
    ],
)
def test_factors_of_substances_are_those_of_published_tables(substance, unit, into, expected):
    assert float(factor(unit, into, substance)) == pytest.approx(expected, rel=0.012)


def test_substance_without_a_charge_has_no_equivalents():
    assert factor("mEq/L", "mmol/L", "glucose") is None


def test_molar_mass_is_the_sum_of_the_atoms():
    assert molar_mass("creatinine") == Fraction("113.120")
    assert all(molar_mass(substance) > 0 for substance in SUBSTANCES)


def test_conversion_there_and_back_changes_nothing():
    for substance in SUBSTANCES:
        assert factor("mg/dL", "umol/L", substance) * factor("umol/L", "mg/dL", substance) == 1


def test_letter_case_and_blanks_of_a_unit_do_not_matter():
    assert unit_of(" MG / dL") == unit_of("mg/dl")
