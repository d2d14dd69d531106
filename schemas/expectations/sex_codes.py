"""Sex-specific codes, which show whether the sexes of a source were swapped.

ICD-10-CM and ICD-9-CM chapters of pregnancy and of the organs of one sex; ICD-10-PCS sections of obstetrics and of the
reproductive systems. Codes that both sexes can have (breast; Z38 "liveborn infant", V29 "observation of newborns") are
not included.
"""

FEMALE_ICD10 = "O|Z33|Z34|Z36|Z37|Z39|Z3A|C5[1-8]|D06|D2[5-8]|N7[0-7]|N8|N9[0-8]"
MALE_ICD10 = "C6[0-3]|D29|D40|N4|N5[0-3]"
FEMALE_ICD9 = "6[3-7][0-9]|V2[23478]|179|18[0-4]|218|219|22[01]|61[4-9]|62[0-9]"
MALE_ICD9 = "18[5-7]|222|60[0-8]"
FEMALE_PCS = "1|0U"
MALE_PCS = "0V"


def is_sex_specific(female: bool) -> str:
    """Return SQL that tells whether an event's code is specific to a sex; null for vocabularies without such codes."""
    icd10, icd9, pcs = (
        (FEMALE_ICD10, FEMALE_ICD9, FEMALE_PCS) if female else (MALE_ICD10, MALE_ICD9, MALE_PCS)
    )
    return f"""CASE
        WHEN kind = 'DX' AND (mapped IS NOT NULL OR vocab = 'icd10cm')
            THEN regexp_matches(coalesce(mapped, code), '^({icd10})')
        WHEN kind = 'DX' AND vocab = 'icd9cm' THEN regexp_matches(code, '^({icd9})')
        WHEN kind = 'PR' AND (mapped IS NOT NULL OR vocab = 'icd10pcs')
            THEN regexp_matches(coalesce(mapped, code), '^({pcs})')
        END"""
