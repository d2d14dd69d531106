"""The chapters of ICD-10-CM, with the first and last category of each."""

CHAPTERS = tuple("I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX XXI XXII".split())  # noqa: SIM905

CHAPTER_RANGES = (
    ("A00", "B99", "I"),
    ("C00", "D49", "II"),
    ("D50", "D89", "III"),
    ("E00", "E89", "IV"),
    ("F01", "F99", "V"),
    ("G00", "G99", "VI"),
    ("H00", "H59", "VII"),
    ("H60", "H95", "VIII"),
    ("I00", "I99", "IX"),
    ("J00", "J99", "X"),
    ("K00", "K95", "XI"),
    ("L00", "L99", "XII"),
    ("M00", "M99", "XIII"),
    ("N00", "N99", "XIV"),
    ("O00", "O9A", "XV"),
    ("P00", "P96", "XVI"),
    ("Q00", "Q99", "XVII"),
    ("R00", "R99", "XVIII"),
    ("S00", "T88", "XIX"),
    ("V00", "Y99", "XX"),
    ("Z00", "Z99", "XXI"),
    ("U00", "U85", "XXII"),
)


def chapter_of(category: str) -> str | None:
    """Return the chapter of a category (the first three characters of a code), or None if it is in no chapter."""
    return next((chapter for low, high, chapter in CHAPTER_RANGES if low <= category <= high), None)
