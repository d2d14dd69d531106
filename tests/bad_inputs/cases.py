"""The table of bad inputs: each case damages a good input and states the required outcome."""

from tests.bad_inputs.files import FILES
from tests.bad_inputs.row_cases import ROWS_CASES
from tests.bad_inputs.stored import STORED_CASES
from tests.bad_inputs.texts import TEXTS
from tests.bad_inputs.values import VALUES

CASES = [*FILES, *TEXTS, *VALUES, *ROWS_CASES, *STORED_CASES]
